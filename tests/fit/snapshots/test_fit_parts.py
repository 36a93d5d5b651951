"""What a snapshot notes of an epoch, and of its model."""

import numpy as np
import pytest

from paceline.errors import ConfigurationError
from paceline.fit.snapshots.fit_parts import MODEL, noted_metrics, refuse_another_model
from paceline.store.manifest import SnapshotInfo, SnapshotMeta
from paceline.store.retention import METRICS, METRICS_EPOCH


def test_logs_that_are_no_numbers_are_not_noted() -> None:
    logs = {
        "loss": np.float32(0.5),
        "none": None,
        "text": "x",
        "rows": [1.0, 2.0],
        "uneven": [1, [2]],
        "more": {"a": 1},
    }
    assert noted_metrics(logs, 3) == {METRICS: {"loss": 0.5}, METRICS_EPOCH: 3}


def test_a_snapshot_of_another_model_of_the_job_is_refused() -> None:
    """With 3 x 2 ranks and with 2 x 4, rank 4 is the first one of different models."""

    def found(**notes: object) -> SnapshotInfo:
        return SnapshotInfo("step-000000000007", "run/step-000000000007", 7, 0.0, SnapshotMeta(0, 0, 2, notes), ())

    refuse_another_model(found(), 0, 1)
    second = found(**{MODEL: [1, 3]})
    refuse_another_model(second, 1, 3)
    for index, num_models in ((2, 3), (1, 2), (0, 1)):
        with pytest.raises(ConfigurationError, match=r"is of model 2 of 3, but .*\[other-model\]"):
            refuse_another_model(second, index, num_models)
    with pytest.raises(ConfigurationError, match=r"is of model 1 of 1, but these workers train model 1 of 2\."):
        refuse_another_model(found(), 0, 2)
