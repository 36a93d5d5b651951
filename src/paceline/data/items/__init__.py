"""Python generators and `PyDataset`s, read once for all ranks of a host."""
