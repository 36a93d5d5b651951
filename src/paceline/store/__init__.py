"""KEEP: snapshots as directories that exist whole or not at all, with checksums and retention.

What is in a snapshot is not known here. Nothing is re-exported: `snapshots.py` lists a directory without NumPy, which
only those load that write or read tensors.
"""
