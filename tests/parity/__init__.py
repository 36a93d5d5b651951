"""Training jobs in plain Keras, grouped by what they exercise; `parity_jobs.py` runs them."""
