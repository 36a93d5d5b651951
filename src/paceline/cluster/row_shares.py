"""``--shares``: how the rows of each batch are shared out among the workers, where these are not equally fast. Pure.

    shares 3,1, a batch of 64 rows:   rank 0: rows 0 to 47   rank 1: rows 48 to 63

A worker gets its share of every batch, rounded down with those before it, so slices stay contiguous and in rank order.
With ``auto`` all have as many rows at first, and other shares later, by how long they compute (`fit/auto_shares.py`).
"""

import os
from collections.abc import Mapping, Sequence
from itertools import accumulate

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.errors import ConfigurationError

AUTO = "auto"


def text_in(variables: Mapping[str, str] = os.environ) -> str:
    """What ``--shares`` says, if that is not the same as nothing; else empty."""
    text = read_variables(JobOptions, variables, "shares").shares
    return AUTO if text == AUTO else ",".join(map(str, parsed(text)))


def shares_in(variables: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """The fixed shares of a job, by rank; empty: all workers have as many rows, at least at first."""
    return parsed(text_in(variables))


def parsed(shares: str | None) -> tuple[int, ...]:
    """The shares in the text of the option.

    >>> parsed("3,1"), parsed("2,2"), parsed("auto"), parsed(None)
    ((3, 1), (), (), ())
    """
    if shares == AUTO:
        return ()
    numbers = tuple(int(number) for number in (shares or "").split(",") if number)
    return numbers if len(set(numbers)) > 1 else ()


def check_number(number: int, num_workers: int) -> None:
    """Refuses so many shares, if they are not one for each worker.

    Raises:
        ConfigurationError: that is so.
    """
    if number != num_workers:
        raise ConfigurationError(
            f"--shares has {number} number{'s' * (number > 1)}, but the job has {num_workers} "
            f"worker{'s' * (num_workers > 1)}: each worker needs one, in the order of ranks, such as --shares "
            f"{','.join(['1'] * num_workers)} [shares]"
        )


def check_text(shares: str, num_workers: int) -> None:
    """As `check_number`, of what the option says."""
    if shares != AUTO:
        check_number(len(shares.split(",")), num_workers)


def refuse_shares(strategy: str, variables: Mapping[str, str] = os.environ) -> None:
    """Refuses shares where workers do not divide a batch.

    Args:
        strategy: The name of its class.
        variables: Of this process.

    Raises:
        ConfigurationError: there are some.
    """
    if text_in(variables):
        raise ConfigurationError(
            f"--shares says how many rows of a batch each worker computes, but under {strategy} workers do not "
            "divide a batch like this. Leave --shares out. [shares]"
        )


def begins(shares: Sequence[int]) -> list[int]:
    """Of how many shares in all each rank's rows begin, and at last how many there are.

    >>> begins((3, 1))
    [0, 3, 4]
    """
    return [0, *accumulate(shares)]
