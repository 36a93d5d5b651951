"""START and WATCH: the agent of a host, its worker processes, and the guard that outlives it. Knows no TensorFlow."""
