"""WRITE DOWN: a `paceline run` for many hosts as the files that Kubernetes, Slurm and Google Cloud take. Pure."""
