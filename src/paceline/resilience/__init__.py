"""SURVIVE: what a snapshot holds, when it is taken, and how a run continues from it."""
