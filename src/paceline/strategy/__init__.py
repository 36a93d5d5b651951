"""SPREAD: `tf.distribute` strategies, one per file."""
