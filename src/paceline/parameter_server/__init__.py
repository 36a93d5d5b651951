"""`fit`, `evaluate`, `predict` under parameter servers: the chief runs Keras's loop and dispatches steps to workers."""
