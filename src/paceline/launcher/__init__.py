"""START and WATCH: the agent of a host, its workers, and the guard that outlives it. Knows no TensorFlow."""
