"""How processes of one host reach each other."""

LOCAL_HOST = "127.0.0.1"
"""Not ``localhost``, which may also mean ``::1``: then one side listens where the other does not call."""
