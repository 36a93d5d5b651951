"""WHAT happened: rank-prefixed logging."""
