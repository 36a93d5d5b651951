"""A network as users write it: its bandwidth, and how long a small message takes there and back."""

import re

from paceline.plan.step_prediction import Network

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_PAYLOAD = 0.94
"""Of what a network carries: the rest is headers of Ethernet, IP and TCP."""


def read_network(text: str) -> Network:
    """The network that `text` says: bits per second and time, such as ``1Gbit,0.2ms``.

    >>> read_network("1Gbit,0.2ms")
    Network(round_trip_seconds=0.0002, bytes_per_second=117500000.0)

    Raises:
        ValueError: it says none.
    """
    found = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bit|bit/s|bps)\s*,\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s)\s*", text, re.IGNORECASE
    )
    if not found or float(found[1]) == 0:
        raise ValueError(
            f"received {text!r}; expected the bandwidth in bits per second and the time of a small message there and "
            "back (ping), such as 1Gbit,0.2ms"
        )
    bits, seconds = float(found[1]) * _UNITS[found[2].lower()], float(found[3]) * _SECONDS[found[4].lower()]
    return Network(seconds, bits / 8 * _PAYLOAD)
