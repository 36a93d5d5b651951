"""The process that evaluates beside the training: it follows snapshots or checkpoints, and writes their metrics."""
