"""`fit` and own training loops that go on after a death."""
