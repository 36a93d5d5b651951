"""What `fit`, `evaluate` and `predict` read: a class for each kind of data."""
