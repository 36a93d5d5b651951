"""``paceline render``: one file per target. Nothing is started, and nobody is asked."""
