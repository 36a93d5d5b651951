"""Metrics over batches that do not divide equal one process's over all rows: in the history, and from `evaluate`."""

from typing import Any

import keras
import numpy as np
from keras import metrics, optimizers

from parity.ingredients import BATCH, batches, layers, table, train
from parity.registry import job

_ROWS = 3 * BATCH + 5


class Range(metrics.Metric):
    """A stateful metric of a user: the sum of squares and the count, as one variable of two numbers."""

    def __init__(self) -> None:
        super().__init__(name="range")
        self.state = self.add_variable((2,), "zeros", name="state")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        squares = keras.ops.sum(keras.ops.cast(y_pred, self.dtype) ** 2)
        self.state.assign(self.state + keras.ops.stack([squares, keras.ops.cast(keras.ops.size(y_pred), self.dtype)]))

    def result(self) -> Any:
        return keras.ops.sqrt(self.state[0] / (self.state[1] + 1e-9))


def _top_two(y_true: Any, y_pred: Any) -> Any:
    """TensorFlow's top k takes nothing but float32."""
    return metrics.top_k_categorical_accuracy(y_true, keras.ops.cast(y_pred, "float32"), k=2)


def _evaluated(result: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    values = result["model"].evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
    result["history"] |= {f"evaluated_{name}": value for name, value in values.items()}
    return result


@job(worlds=())
def metrics_of_one_class() -> dict[str, Any]:
    x, y = table(_ROWS)
    y = (y > 1).astype("float64")[:, None]
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8, "relu"), layers.Dense(1, "sigmoid")])
    watched = [
        "accuracy",
        metrics.AUC(num_thresholds=50),
        metrics.AUC(curve="PR", num_thresholds=50, name="pr"),
        metrics.Precision(),
        metrics.Recall(thresholds=[0.3, 0.6]),
        metrics.F1Score(threshold=0.5, average="micro"),
        metrics.SensitivityAtSpecificity(0.5, num_thresholds=50),
        metrics.BinaryIoU(),
        Range(),
    ]
    options = {"loss": "binary_crossentropy", "metrics": watched, "weighted_metrics": ["mse"]}
    result = train(model, optimizers.Adam(0.01), x, y, batch_size=BATCH, compile_options=options)
    return _evaluated(result, x, y)


@job(worlds=())
def metrics_of_several_classes() -> dict[str, Any]:
    x, y = table(_ROWS)
    one_hot = np.eye(4)[y]
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8, "relu"), layers.Dense(4, "softmax")])
    watched = [
        "accuracy",
        metrics.MeanMetricWrapper(_top_two, name="top_two"),
        metrics.F1Score(average="macro"),
        metrics.OneHotMeanIoU(4),
        metrics.CategoricalCrossentropy(),
        metrics.AUC(multi_label=True, num_thresholds=20),
    ]
    options = {"loss": "categorical_crossentropy", "metrics": watched}
    result = train(model, optimizers.Adam(0.01), x, one_hot, batch_size=BATCH, compile_options=options)
    return _evaluated(result, x, one_hot)


@job(worlds=())
def metrics_of_regression() -> dict[str, Any]:
    x, _ = table(_ROWS)
    y = np.sin(x[:, :3])
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8, "relu"), layers.Dense(3)])
    watched = [
        metrics.R2Score(),
        metrics.PearsonCorrelation(),
        metrics.ConcordanceCorrelation(),
        metrics.CosineSimilarity(),
        metrics.RootMeanSquaredError(),
        metrics.MeanAbsolutePercentageError(),
        metrics.MeanRelativeError(normalizer=np.ones((1, 3))) if hasattr(metrics, "MeanRelativeError") else "mae",
    ]
    options = {"loss": "mse", "metrics": watched}
    result = train(model, optimizers.Adam(0.01), x, y, batch_size=BATCH, compile_options=options)
    return _evaluated(result, x, y)


class ReadsMetrics(keras.callbacks.Callback):
    """A callback that reads a metric by itself, on every rank."""

    def __init__(self, metric: Any) -> None:
        super().__init__()
        self.metric = metric
        self.values: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.values.append(float(self.metric.result()))


class KeepsBatchLogs(keras.callbacks.Callback):
    """What a callback is told after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[list[float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.values.append([logs[name] for name in sorted(logs)])


@job()
def logs_of_batches_and_a_metric_read_by_a_callback() -> dict[str, Any]:
    metric = metrics.SparseCategoricalAccuracy()
    reader, keeper = ReadsMetrics(metric), KeepsBatchLogs()
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8, "relu"), layers.Dense(4, "softmax")])
    options = {"loss": "sparse_categorical_crossentropy", "metrics": [metric]}
    result = train(
        model, optimizers.Adam(0.01), batches(table(_ROWS)), callbacks=[reader, keeper], compile_options=options
    )
    result["history"] |= {"read": reader.values, "batches": keeper.values}
    return result
