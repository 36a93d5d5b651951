"""Whether a job could run well on some hosts: `paceline doctor`. Loads no TensorFlow, MPI or NumPy."""
