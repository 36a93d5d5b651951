"""Short turns last as long as somebody wants them."""

import sys

from paceline.data.items.item_rings import ShortSwitchInterval


def test_turns_are_as_before_when_the_last_one_has_ended() -> None:
    before = sys.getswitchinterval()
    first, second = ShortSwitchInterval(), ShortSwitchInterval()
    second.end()
    first.begin()
    first.begin()
    second.begin()
    assert sys.getswitchinterval() < before
    first.end()
    first.end()
    assert sys.getswitchinterval() < before
    second.end()
    assert sys.getswitchinterval() == before
