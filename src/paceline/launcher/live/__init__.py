"""What a job does now, for `paceline status`, `paceline top` and Prometheus: sinks of the head's events."""
