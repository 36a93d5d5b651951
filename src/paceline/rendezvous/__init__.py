"""MEET: how ranks find each other, agree on the group, and exchange MPI's keys. Knows no TensorFlow."""
