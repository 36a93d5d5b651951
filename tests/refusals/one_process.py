"""What is refused in a process that nobody launched."""

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from refusal import Refusal

import paceline
from paceline.cluster.own_address import check_own_address
from paceline.cluster.spec import Address
from paceline.comm.group import Reduction
from paceline.comm.solo import SoloGroup
from paceline.errors import ConfigurationError, DesynchronizedError
from paceline.fit.building import build_from
from paceline.launcher.hosts.interfaces import own_interfaces

_EVALUATOR = json.dumps({"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}})
_RANK_1 = json.dumps({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}})
X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


def _model(*layers: Any) -> Any:
    with paceline.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([*(layers or (keras.Input((4,)),)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def _restored_as_another_weight() -> None:
    with contextlib.closing(paceline.TrainingState("snapshots", weight=tf.Variable([1.0]))) as state:
        state.save(1)
    with contextlib.closing(paceline.TrainingState("snapshots", weight=tf.Variable([1.0, 2.0]))) as state:
        state.restore()


def _state_of_an_iterator() -> None:
    numbers = np.random.default_rng(1)
    dataset = tf.data.Dataset.from_generator(lambda: (numbers.normal() for _ in range(4)), tf.float32).batch(2)
    with contextlib.closing(paceline.TrainingState("snapshots", rows=iter(dataset))) as state:
        state.save(1)


def _message_of_other_bytes() -> None:
    group = SoloGroup()
    group.send(np.ones(3, np.float32), to=0).wait()
    group.recv((2,), np.float32, source=0).wait()


def _taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        check_own_address(Address("127.0.0.1", taken.getsockname()[1]))


def _files(*records: bytes) -> str:
    with tf.io.TFRecordWriter("rows.tfrecord") as file:
        for record in records:
            file.write(record)
    return "rows.tfrecord"


def _damaged_record() -> None:
    path = Path(_files(b"first", b"second"))
    content = bytearray(path.read_bytes())
    content[13] ^= 1  # of the first record's data
    path.write_bytes(content)
    dataset = paceline.data.records(str(path), lambda record: (tf.zeros(4), tf.zeros(1)), batch_size=1)
    _model().fit(dataset, verbose=0)


def _hinted() -> Any:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.HINT
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).with_options(options)


ROWS = [
    Refusal("argument", lambda: paceline.chief_only(3), TypeError, "received 3", "Wrap each callback"),
    Refusal(
        "auto-shard", lambda: _model().fit(_hinted(), verbose=0), ConfigurationError, "policy is HINT", "SHARD_HINT"
    ),
    Refusal(
        "communication",
        paceline.MultiWorkerMirroredStrategy,
        ConfigurationError,
        "'ring'",
        "paceline run",
        {"PACELINE_COMMUNICATION": "ring", "TF_CONFIG": _RANK_1},
    ),
    Refusal(
        "data-profile",
        lambda: paceline.data.profile(X),
        ConfigurationError,
        "Received ndarray",
        "tf.data.Dataset of batches",
    ),
    Refusal(
        "distribute-api",
        lambda: paceline.MultiWorkerMirroredStrategy().gather(tf.constant(1.0), axis=0),
        ValueError,
        "gather along axis 0",
        "at least one dimension",
    ),
    Refusal(
        "dtype",
        lambda: SoloGroup().all_reduce([np.ones(1, np.complex64)], Reduction.MAX),
        TypeError,
        "complex numbers have no order",
        "Reduce their real and imaginary parts",
    ),
    Refusal(
        "evaluator",
        lambda: paceline.TrainingState("snapshots"),
        ConfigurationError,
        "is the evaluator of a job",
        "without --evaluator",
        {"TF_CONFIG": _EVALUATOR},
    ),
    Refusal(
        "imported-too-late",
        lambda: paceline.callbacks.Snapshot("snapshots").on_train_begin(),
        RuntimeError,
        "takes no snapshots",
        "at the top of the script",
    ),
    Refusal(
        "iterator-state", _state_of_an_iterator, ValueError, "cannot be stored", "Register an object with state_dict()"
    ),
    Refusal(
        "messages-differ",
        _message_of_other_bytes,
        DesynchronizedError,
        "sent 12 bytes",
        "Give `recv` the shape and dtype",
    ),
    Refusal(
        "network-interface",
        lambda: own_interfaces("none0", ""),
        ConfigurationError,
        "received 'none0'",
        "lo (127.0.0.1)",
    ),
    Refusal(
        "no-data",
        lambda: _model().predict(tf.data.Dataset.from_tensor_slices(X).take(0).batch(2), verbose=0),
        ValueError,
        "ended before the first step",
        "drop_remainder=True",
    ),
    Refusal(
        "no-servers",
        paceline.ParameterServerStrategy,
        ConfigurationError,
        "needs a chief, at least one worker and at least one parameter server",
        "paceline run --workers 2 --ps 1",
    ),
    Refusal(
        "not-a-rank",
        lambda: paceline.MirroredStrategy(["/cpu:0", "/cpu:1"]),
        RuntimeError,
        "cannot start itself again",
        "paceline.launch",
    ),
    Refusal(
        "other-model",
        _restored_as_another_weight,
        ConfigurationError,
        "(1,) in the snapshot, but (2,)",
        "Use another snapshot directory",
    ),
    Refusal(
        "pipeline",
        lambda: paceline.PipelineStrategy(stages=0, micro_batches=2),
        ConfigurationError,
        "stages=0 and micro_batches=2",
        "both are at least 1",
    ),
    Refusal("port", _taken_port, ConfigurationError, "already taken", "give this task a free port"),
    Refusal("record-damaged", _damaged_record, ValueError, "rows.tfrecord", 'on_error="skip"'),
    Refusal(
        "record-file",
        lambda: paceline.data.records("gone.tfrecord", lambda record: record, batch_size=1),
        ValueError,
        "gone.tfrecord cannot be read",
        "No such file",
    ),
    Refusal("row-source", lambda: paceline.data.rows([], batch_size=1), ValueError, "no rows", "len(source) is 0"),
    Refusal(
        "secret",
        paceline.MultiWorkerMirroredStrategy,
        ConfigurationError,
        "'gone', which cannot be read",
        "a file with the job's secret",
        {"PACELINE_SECRET_FILE": "gone", "TF_CONFIG": _RANK_1},
    ),
    Refusal(
        "tf-config",
        paceline.MultiWorkerMirroredStrategy,
        ConfigurationError,
        "line 1, column 2",
        "TF_CONFIG='{",
        {"TF_CONFIG": "{"},
    ),
    Refusal(
        "unbuilt-model",
        lambda: build_from(keras.Sequential([keras.layers.Dense(1)]), tf.TensorSpec(None)),
        RuntimeError,
        "cannot be built",
        "Call the model on a batch",
    ),
]
