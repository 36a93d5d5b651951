"""The bytes that stand for a cluster."""

from paceline.cluster.spec import Address, ClusterSpec, canonical_bytes

A, B = Address("a", 1), Address("::1", 2)


def test_the_order_of_types_does_not_count() -> None:
    one = ClusterSpec({"chief": (A,), "worker": (B,)})
    other = ClusterSpec({"worker": (B,), "chief": (A,)})
    assert canonical_bytes(one) == canonical_bytes(other) == b'{"chief":["a:1"],"worker":["[::1]:2"]}'


def test_the_order_of_addresses_counts() -> None:
    assert canonical_bytes(ClusterSpec({"worker": (A, B)})) != canonical_bytes(ClusterSpec({"worker": (B, A)}))
