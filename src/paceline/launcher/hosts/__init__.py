"""Bringing the hosts of a job together, whichever way they are reached, and the agent of each."""
