"""Keras's and TensorFlow's ways to write files, called on every rank with one path: one writer, whole files only."""
