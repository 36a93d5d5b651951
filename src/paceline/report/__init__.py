"""What ``--observe DIR`` has kept of a job, as a timeline, curves for TensorBoard, and a page."""
