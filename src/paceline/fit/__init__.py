"""THE SEAM with Keras 3: what must change around `fit` so that N workers compute what one would."""
