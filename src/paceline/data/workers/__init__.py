"""Data workers: datasets that other processes of the job make batches of."""
