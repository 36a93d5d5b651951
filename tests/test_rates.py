import math

import pytest

from paceline.ranks import scale_learning_rate


@pytest.mark.parametrize(("rule", "factor"), [("linear", 8.0), ("sqrt", math.sqrt(8))])
def test_a_larger_batch_takes_a_larger_learning_rate(rule: str, factor: float) -> None:
    assert scale_learning_rate(0.1, rule=rule, replicas=8) == pytest.approx(0.1 * factor)


def test_the_replicas_are_the_jobs_workers_unless_told() -> None:
    assert scale_learning_rate(0.1) == 0.1


@pytest.mark.parametrize("arguments", [{"rule": "cubic"}, {"replicas": 0}])
def test_what_makes_no_sense_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        scale_learning_rate(0.1, **arguments)
