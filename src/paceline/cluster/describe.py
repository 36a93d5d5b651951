"""A cluster as bytes that are the same on every host, from which a job started by hand derives its key.

Each process reads its own TF_CONFIG, written on its own host: key order, spaces and the own task differ, the
cluster must not. The order of addresses counts, because ranks follow from it.
"""

import json

from paceline.cluster.spec import ClusterSpec


def canonical_bytes(spec: ClusterSpec) -> bytes:
    """The cluster as compact ASCII JSON with sorted keys; equal specs, and only those, give equal bytes.

    >>> from paceline.cluster.spec import Address
    >>> canonical_bytes(ClusterSpec({"worker": (Address("b", 2),), "chief": (Address("a", 1),)}))
    b'{"chief":["a:1"],"worker":["b:2"]}'
    """
    return json.dumps(spec.as_dict(), sort_keys=True, separators=(",", ":")).encode("ascii")
