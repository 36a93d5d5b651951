"""What workers write, on its way to the user's screen and to the logs."""
