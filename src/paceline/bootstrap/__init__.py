"""BEFORE the user's script: seeds, threads, and the import hook that serves `tf.distribute`'s names."""
