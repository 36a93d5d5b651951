"""`MirroredStrategy` over several devices where this process cannot become several."""

import pytest

import paceline


def test_under_pytest_it_raises_and_names_what_can() -> None:
    with pytest.raises(RuntimeError, match=r"paceline\.launch\(function, workers=3\)"):
        paceline.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])


def test_one_device_needs_no_other_process() -> None:
    strategy = paceline.MirroredStrategy(["CPU:0"])
    assert strategy.num_replicas_in_sync == 1


def test_all_devices_of_a_host_without_accelerators_are_its_cpu() -> None:
    assert paceline.MirroredStrategy().num_replicas_in_sync == 1
