"""`fit`, `evaluate`, `predict` under parameter servers: the chief runs Keras's loop and deals its steps to workers."""
