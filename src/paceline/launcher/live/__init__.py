"""What a job does now, for `paceline status` and `paceline top`: sinks of the head's events."""
