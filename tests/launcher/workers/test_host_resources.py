import os

import pytest

from paceline.launcher.workers.host_resources import gpu_names, num_workers_for, usable_cores


def test_usable_cores_are_those_of_the_affinity_mask():
    assert sorted(usable_cores()) == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("listed", "present", "names"),
    [
        (None, 0, ()),
        (None, 3, ("0", "1", "2")),
        ("2, 0", 3, ("2", "0")),
        ("", 3, ()),
        ("-1", 3, ()),
        ("1,7,0", 3, ("1",)),
        ("GPU-8f3c,GPU-11aa", 2, ("GPU-8f3c", "GPU-11aa")),
        ("0,1", 0, ()),
    ],
)
def test_gpu_names_follow_cuda(listed: str | None, present: int, names: tuple[str, ...]):
    assert gpu_names(listed, present) == names


@pytest.mark.parametrize(
    ("cores", "quota", "gpus", "expected"),
    [
        ((0, 1, 2, 3), None, (), 4),
        ((0, 1, 2, 3), 2.9, (), 2),
        ((0, 1), 0.5, (), 1),
        ((0, 1), 64.0, (), 2),
        ((0,), None, ("0", "1", "2"), 3),
    ],
)
def test_auto_fills_the_host(cores, quota, gpus, expected):
    assert num_workers_for(cores, quota, gpus) == expected
