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


def byte_text(number: float) -> str:
    """A number of bytes to read, in a unit of which there is at least one.

    >>> byte_text(1000), byte_text(2.5e9), byte_text(12)
    ('1.0 kB', '2.5 GB', '12 bytes')
    """
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
    unit = next((name for name, size in units.items() if number >= size), None)
    return f"{number:,.0f} bytes" if unit is None else f"{number / units[unit]:,.1f} {unit}"
