"""Which rows of a batch are a rank's, and where in a dataset they can be chosen."""
