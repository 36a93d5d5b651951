"""What Paceline replaces in Keras and TensorFlow, and the only place that knows all engines."""
