"""Cases of `test_tables.py`: models with tables, trained on the servers of this process and in no strategy."""

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[2] / "strategy"))
from servers_in_process import strategy as strategy_of

import paceline

ROWS, COLUMNS, IDS = 11, 3, 4
Fixed = tf.distribute.experimental.partitioners.FixedShardsPartitioner

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.05),
    "global_clipnorm": lambda: keras.optimizers.Adagrad(0.1, global_clipnorm=0.05),
    "clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.01),
    "decay": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1),
    "ema": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3),
    "accumulation": lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "accumulation_clipped": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, clipnorm=0.05),
    "schedule": lambda: keras.optimizers.Adagrad(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.1, momentum=0.9, centered=True),
    "adadelta": lambda: keras.optimizers.Adadelta(1.0),
    "nadam": lambda: keras.optimizers.Nadam(0.1),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
    "lion": lambda: keras.optimizers.Lion(0.1),
    "lamb": lambda: keras.optimizers.Lamb(0.1),
    "adafactor": lambda: keras.optimizers.Adafactor(0.1),
}


def run_case(name: str, *arguments: str) -> Any:
    return globals()[name](*arguments)


def model_of(**options: Any) -> Any:
    """A table, whose ids come several times in a batch, and a kernel."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((IDS,), dtype="int64"),
            layers.Embedding(ROWS, COLUMNS, **options),
            layers.Flatten(),
            layers.Dense(6, "tanh"),
            layers.Dense(1),
        ]
    )


def batches(number: int) -> Iterator[tuple[Any, Any]]:
    random = np.random.default_rng(1)
    for _ in range(number):
        ids = random.integers(0, ROWS - 2, (5, IDS))
        yield tf.constant(ids), tf.constant(random.normal(size=(5, 1)))


def step_of(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    def step(ids: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(ids, training=True) - labels) ** 2)
            loss += sum(model.losses)
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def trained_plainly(optimizer: Any, number: int, **options: Any) -> list[Any]:
    model = model_of(**options)
    optimizer.build(model.trainable_variables)
    step = tf.function(step_of(model, optimizer))
    for ids, labels in batches(number):
        step(ids, labels)
    optimizer.finalize_variable_values(model.trainable_variables)
    return [*model.get_weights(), *(variable.numpy() for variable in optimizer.variables)]


def trained_on_servers(strategy: Any, make_optimizer: Any, number: int, **options: Any) -> tuple[Any, Any, list[Any]]:
    """One step after the other, so that the result is one process's."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = model_of(**options)
        optimizer = make_optimizer()
        optimizer.build(model.trainable_variables)
    inner = step_of(model, optimizer)
    step = tf.function(lambda ids, labels: strategy.run(inner, args=(ids, labels)))
    for batch in batches(number):
        coordinator.schedule(step, args=batch)
        coordinator.join()
    optimizer.finalize_variable_values(model.trainable_variables)
    return model, optimizer, [*model.get_weights(), *(variable.numpy() for variable in optimizer.variables)]


def differences(kinds: str, num_shards: str) -> Any:
    """By how much each optimizer's variables differ from those of one process."""
    keras.config.set_floatx("float64")
    told = {}
    for kind in kinds.split():
        expected = trained_plainly(OPTIMIZERS[kind](), 6)
        partitioner = Fixed(int(num_shards)) if num_shards != "1" else None
        strategy = strategy_of(num_servers=2, variable_partitioner=partitioner)
        model, _, found = trained_on_servers(strategy, OPTIMIZERS[kind], 6)
        assert len(model.layers[0].weights) == int(num_shards)
        assert [one.shape for one in expected] == [other.shape for other in found]
        told[kind] = max(float(np.abs(one - other).max()) for one, other in zip(expected, found, strict=True))
    return told


def saved(path: str) -> Any:
    """A model that was trained on two servers, in a file."""
    keras.config.set_floatx("float64")
    strategy = strategy_of(num_servers=2, variable_partitioner=Fixed(2))
    with strategy.scope():
        model = model_of()
        model.compile(keras.optimizers.Adagrad(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
    _trained(strategy, model, 3)
    model.save(path)
    model.export(f"{path}.exported", verbose=False)
    numbers = _numbers(model)
    checkpoint = tf.train.Checkpoint(model=model)
    checkpoint.write(f"{path}.checkpoint")
    model.set_weights([0.0 * weight for weight in model.get_weights()])
    checkpoint.read(f"{path}.checkpoint")
    assert _numbers(model) == numbers, "a checkpoint has whole tables"
    assert len(model.layers[0].weights) == 2, "an exported model is divided as before"
    return numbers


def frozen() -> Any:
    """By how much steps change a frozen table, and a kernel; then how many variables are trained and not."""
    strategy = strategy_of(num_servers=2, variable_partitioner=Fixed(2))
    with strategy.scope():
        model = model_of(trainable=False)
        model.compile(keras.optimizers.Adam(0.1), "mse")
    before = model.get_weights()
    model.fit(*next(batches(1)), epochs=2, verbose=0)
    table, kernel = (float(np.abs(model.get_weights()[at] - before[at]).max()) for at in (0, 1))
    counts = [(len(model.trainable_variables), len(model.non_trainable_variables))]
    model.layers[0].trainable = True
    counts.append((len(model.trainable_variables), len(model.non_trainable_variables)))
    return table, kernel, counts


def continued(path: str, num_servers: str) -> Any:
    """The model of a file, trained on by another number of servers."""
    keras.config.set_floatx("float64")
    strategy = strategy_of(int(num_servers), variable_partitioner=Fixed(int(num_servers)))
    with strategy.scope():
        model = keras.models.load_model(path)
    loaded = _numbers(model)
    _trained(strategy, model, 3)
    return loaded, _numbers(model)


def _trained(strategy: Any, model: Any, number: int) -> None:
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    inner = step_of(model, model.optimizer)
    step = tf.function(lambda ids, labels: strategy.run(inner, args=(ids, labels)))
    for batch in batches(number):
        coordinator.schedule(step, args=batch)
        coordinator.join()


def _numbers(model: Any) -> Any:
    return [weight.tolist() for weight in (*model.get_weights(), *(v.numpy() for v in model.optimizer.variables))]


def snapshot(num_servers: str, path: str) -> Any:
    """`TrainingState` stores a table whole, and gives it to another number of servers."""
    keras.config.set_floatx("float64")
    told = []
    for servers in (2, int(num_servers)):
        strategy = strategy_of(servers, variable_partitioner=Fixed(servers))
        with strategy.scope():
            model = model_of()
            model.compile(keras.optimizers.Adagrad(0.1), "mse")
            model.optimizer.build(model.trainable_variables)
        state = paceline.TrainingState(path, model=model, optimizer=model.optimizer)
        if servers == 2 and not told:
            _trained(strategy, model, 3)
            state.save(3)
        else:
            assert state.restore() == 3
        state.close()
        told.append(_numbers(model))
    return told


def ways(kinds: str) -> Any:
    """Whether each optimizer's step adds to rows, and how many variables it reads whole."""
    told = {}
    for kind in kinds.split():
        strategy = strategy_of(num_servers=2, variable_partitioner=Fixed(2))
        with strategy.scope():
            layer = keras.layers.Embedding(ROWS, 2)
            layer.build()
            optimizer = OPTIMIZERS[kind]()
            optimizer.build(layer.trainable_variables)

        def add(layer: Any = layer, optimizer: Any = optimizer) -> None:
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(layer(tf.constant([1, 9])))
            optimizer.apply(tape.gradient(total, layer.trainable_variables), layer.trainable_variables)

        function = tf.function(lambda strategy=strategy, add=add: strategy.run(add))
        operations = _operations(function.get_concrete_function().graph)
        told[kind] = "ResourceScatterNdAdd" in operations, operations.count("ReadVariableOp")
    return told


def warnings_of_a_large_table() -> Any:
    """What is logged while steps on a table of 102 MB are traced, twice each: by momentum, and by SGD without."""
    told: list[list[str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: told[-1].append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("paceline").addHandler(handler)
    try:
        strategy = strategy_of(num_servers=2, variable_partitioner=Fixed(2))
        with strategy.scope():
            layer = keras.layers.Embedding(400_000, 64, embeddings_initializer="zeros")
            layer.build()
        for momentum in (0.9, 0.0):
            told.append([])
            with strategy.scope():
                optimizer = keras.optimizers.SGD(0.1, momentum=momentum)
                optimizer.build(layer.trainable_variables)

            def add(optimizer: Any = optimizer) -> None:
                with tf.GradientTape() as tape:
                    total = tf.reduce_sum(layer(tf.constant([1, 9])))
                optimizer.apply(tape.gradient(total, layer.trainable_variables), layer.trainable_variables)

            for _ in range(2):
                tf.function(lambda add=add: strategy.run(add)).get_concrete_function()
    finally:
        logging.getLogger("paceline").removeHandler(handler)
    return told


def _operations(graph: Any) -> list[str]:
    nested = [_operations(function.graph) for function in graph._functions.values() if hasattr(function, "graph")]
    return [operation.type for operation in graph.get_operations()] + [name for names in nested for name in names]


def concurrent_additions(num_steps: str) -> Any:
    """Two workers add to the same rows at once; how many additions each row has had."""
    strategy = strategy_of(num_servers=2, variable_partitioner=Fixed(2))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        layer = keras.layers.Embedding(ROWS, 512, embeddings_initializer="zeros")
        layer.build()
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build(layer.trainable_variables)
    ids = tf.constant([0, 1, 5, 6, 10, 10])

    def add() -> None:
        with tf.GradientTape() as tape:
            total = -tf.reduce_sum(layer(ids))
        optimizer.apply(tape.gradient(total, layer.trainable_variables), layer.trainable_variables)

    step = tf.function(lambda: strategy.run(add))
    for _ in range(int(num_steps)):
        coordinator.schedule(step)
    coordinator.join()
    return [sorted(set(row)) for row in layer.get_weights()[0].tolist()], int(optimizer.iterations.numpy())


def lazy_adam() -> Any:
    """Adam on the rows that are looked up: these, and no others, have changed, and nothing beside the others."""
    keras.config.set_floatx("float64")
    strategy = strategy_of(num_servers=2, variable_partitioner=Fixed(2), lazy_rows=True)
    _, optimizer, found = trained_on_servers(strategy, lambda: keras.optimizers.Adam(0.1), 2)
    before = model_of().get_weights()[0]
    named = sorted({int(row) for ids, _ in batches(2) for row in np.asarray(ids).ravel()})
    moved = sorted(np.flatnonzero((found[0] != before).any(1)).tolist())
    slots = [variable for variable in optimizer.variables if tuple(variable.shape) == (ROWS, COLUMNS)]
    assert len(slots) == 2
    assert all(sorted(np.flatnonzero(slot.numpy().any(1)).tolist()) == named for slot in slots)
    # A row that every step has looked up has had what Adam always does.
    plain = trained_plainly(keras.optimizers.Adam(0.1), 2)[0]
    in_both = sorted(set.intersection(*({*np.asarray(ids).ravel().tolist()} for ids, _ in batches(2))))
    return named, moved, float(np.abs(plain - found[0])[in_both].max()), len(in_both)


def fewer_rows_than_shards() -> Any:
    with strategy_of(num_servers=2, variable_partitioner=Fixed(4), lazy_rows=True).scope():
        keras.layers.Dense(1).build((None, 2))
        keras.layers.Embedding(6, 2, lora_rank=1)(np.array([5]))


def kinds_of_models() -> Any:
    """Tables and kernels in shards, in models of every kind: outputs before and after some steps, as of one process."""
    keras.config.set_floatx("float64")
    layers = keras.layers

    class Subclassed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table = layers.Embedding(ROWS, COLUMNS, embeddings_regularizer=keras.regularizers.L2(0.1))
            self.bag = self.add_weight(shape=(ROWS, 2), name="bag", initializer="glorot_uniform")
            self.out = layers.Dense(1, kernel_constraint="non_neg")

        def call(self, ids: Any) -> Any:
            rows = keras.ops.mean(self.table(ids), 1)
            return self.out(keras.ops.concatenate([rows, keras.ops.mean(keras.ops.take(self.bag, ids, axis=0), 1)], 1))

    def functional() -> Any:
        ids = keras.Input((IDS,), dtype="int64")
        shared = layers.Embedding(ROWS, COLUMNS)
        pooled = layers.GlobalAveragePooling1D()(layers.Concatenate()([shared(ids), shared((ids + 1) % ROWS)]))
        return keras.Model(ids, layers.Dense(1)(layers.Dense(8, "relu")(pooled)))

    told = {}
    for make in (Subclassed, functional):
        results = []
        for strategy in (None, strategy_of(num_servers=3, variable_partitioner=Fixed(3))):
            keras.utils.set_random_seed(2)
            with strategy.scope() if strategy else tf.init_scope():
                model, optimizer = make(), keras.optimizers.RMSprop(0.1)
                ids, _ = next(batches(1))
                before = keras.ops.convert_to_numpy(model(ids))
            inner = step_of(model, optimizer)  # the optimizer is built in the step
            if strategy is None:
                step = tf.function(inner)
                for batch in batches(3):
                    step(*batch)
            else:
                coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
                step = tf.function(lambda *batch, inner=inner, strategy=strategy: strategy.run(inner, args=batch))
                for batch in batches(3):
                    coordinator.schedule(step, args=batch)
                    coordinator.join()
            results.append([before, keras.ops.convert_to_numpy(model(ids)), *model.get_weights()])
            counts = [len(model.weights), len(model.trainable_variables), model.count_params()]
        told[make.__name__] = (
            max(float(np.abs(one - other).max()) for one, other in zip(*results, strict=True)),
            counts,
        )
    return told


def mixed_precision() -> Any:
    """A table in float32 whose rows are computed with in float16, and a scaled loss."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        strategy = strategy_of(num_servers=2, variable_partitioner=Fixed(2))
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            model = model_of()
            optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adagrad(0.1))
        layer = model.layers[0]
        dtype = layer(next(batches(1))[0]).dtype.name

        def step(ids: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.cast(model(ids) - tf.cast(labels, "float16"), "float32") ** 2)
                scaled = optimizer.scale_loss(loss)
            optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
            return loss

        function = tf.function(lambda *batch: strategy.run(step, args=batch))
        batch = next(batches(1))
        losses = []
        for _ in range(12):
            losses.append(coordinator.schedule(function, args=batch))
            coordinator.join()
        return dtype, str(layer.weights[0].dtype), [float(loss.fetch()) for loss in losses]
    finally:
        keras.config.set_dtype_policy("float32")
