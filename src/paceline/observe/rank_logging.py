"""Paceline's own log: one line each, to stderr, with the rank when nobody else prefixes it."""

import logging
import os

from paceline.cluster import environment


def log_with_rank(rank: int, size: int) -> None:
    """Sends the logger `paceline` to stderr as ``paceline: message``; by hand, in a world of several, with the rank.

    Under `paceline run` the launcher prefixes every line with the rank already. An application that has configured
    the logger itself keeps its configuration.
    """
    logger = logging.getLogger("paceline")
    if logger.handlers:
        return
    launched = environment.RANK in os.environ
    prefix = "paceline: " if launched or size == 1 else f"paceline [rank {rank}]: "
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
