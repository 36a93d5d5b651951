"""The same numbers on several hosts as in one process, with all gradients over the network."""

from pathlib import Path

import pytest
from by_hand import start_by_hand
from lab import Lab
from trained import SCRIPT, assert_trained_alike

pytestmark = pytest.mark.processes


@pytest.mark.proof
def test_hosts_compute_what_one_process_computes(tmp_path: Path, alone, may_make_hosts) -> None:
    num_hosts = 3
    with Lab(num_hosts) as lab:
        ends = [program.ended() for program in start_by_hand(lab, SCRIPT, tmp_path)]
        moved = [lab.bytes(host) for host in lab.hosts]
    for ended in ends:
        assert ended.code == 0, ended.output
    trained = assert_trained_alike(tmp_path, num_hosts, alone)
    # An all-reduce moves at least (N - 1) / N of the gradients out of each rank and as much into it.
    at_least = trained["gradient_bytes"] * (num_hosts - 1) / num_hosts
    for received, sent in moved:
        assert received >= at_least
        assert sent >= at_least
