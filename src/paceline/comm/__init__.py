"""TALK: the `Communicator` contract and its implementations."""
