"""Strategies in a process that nobody launched: a world of one, with the reason said."""

import logging

import pytest

import paceline


def test_no_tf_config_and_no_launcher_trains_alone_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "paceline"):
        strategy = paceline.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 1
    assert "paceline run --workers N" in caplog.text
    assert "TF_CONFIG" in caplog.text


def test_one_device() -> None:
    strategy = paceline.OneDeviceStrategy("/cpu:0")
    assert strategy.num_replicas_in_sync == 1
    assert strategy.cluster_resolver is None


def test_where_this_process_stands() -> None:
    assert (paceline.rank(), paceline.world_size(), paceline.local_rank()) == (0, 1, 0)
    assert paceline.is_chief()
