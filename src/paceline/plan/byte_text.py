"""Numbers of bytes as users write them."""

import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def num_bytes(text: str) -> int:
    """The bytes that `text` says: a number, and `kB`, `MB`, `GB`, `TB`, or with `i` the powers of 1024.

    >>> num_bytes("2GB"), num_bytes("1.5 MiB"), num_bytes("4096")
    (2000000000, 1572864, 4096)

    Raises:
        ValueError: it says none.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?|)b?\s*", text, re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise ValueError(f"received {text!r}; expected a number of bytes above 0, such as 2GB or 512MiB. [argument]")
    return int(float(found[1]) * _UNITS[found[2].lower()])
