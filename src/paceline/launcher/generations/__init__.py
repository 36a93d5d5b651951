"""One life of the group of workers after the other: what is decided, carried out and told."""
