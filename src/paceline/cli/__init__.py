"""The `paceline` command, one file per verb."""
