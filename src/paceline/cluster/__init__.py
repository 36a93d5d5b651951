"""WHO is in the job: TF_CONFIG, a launcher's variables, or this host alone, each read into one `ClusterSpec`."""
