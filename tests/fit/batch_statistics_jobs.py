"""Small networks trained by plain Keras's `fit`, or by a loop of the script's own, under `--batch-statistics`."""

from typing import Any


def run_case(name: str, statistics: str = "exact") -> dict[str, Any]:
    """The losses and weights after two epochs of batches of 7 rows and a last one of a single row.

    Args:
        name: `normalized`, `plain` (without BatchNormalization), `frozen` (a layer that only infers), `named` (the data
            say how many rows a batch has), `broken` (what is to be summed is not), or `loop`.
        statistics: As the job was started with; plain Keras knows nothing of it.
    """
    import sys

    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(5)
    if "paceline" not in sys.modules:
        return {"numbers": _trained(name), "messages": 0}
    from paceline.comm.world import current_world
    from paceline.fit import divided_steps
    from paceline.strategy.step_messages import StepMessages

    sent: list[str] = []

    class Counted(StepMessages):
        def sum(self, addends: Any) -> Any:
            sent.append("sum")
            sums = super().sum(addends)
            return sums if name != "broken" else [tf.identity(own) for own in addends]

    world = current_world()
    before = world.batch_statistics
    world.batch_statistics, divided_steps.StepMessages = statistics, Counted
    try:
        numbers = _trained(name)
    except RuntimeError as error:
        return {"raised": str(error)}
    finally:
        world.batch_statistics, divided_steps.StepMessages = before, StepMessages
    assert np.isfinite(numbers).all()
    return {"numbers": numbers, "messages": len(sent)}


def _trained(name: str) -> list[float]:
    import keras
    import numpy as np
    import tensorflow as tf

    layers = keras.layers
    blocks: list[Any] = []
    for number in range(3):
        blocks.append(layers.Conv2D(4, 3, padding="same", use_bias=False))
        if name != "plain":
            blocks.append(layers.BatchNormalization(name=f"bn{number}", trainable=name != "frozen"))
        blocks.append(layers.ReLU())
    model = keras.Sequential([keras.Input((6, 6, 3)), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(3)])
    x = np.random.default_rng(1).normal(size=(15, 6, 6, 3)).astype("float32")
    y = np.arange(15) % 3
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.1)
    if name != "loop":
        model.compile(optimizer, loss_of, jit_compile=False)
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(7, drop_remainder=name == "named")
        losses = model.fit(data, epochs=2, verbose=0).history["loss"]
        losses.append(model.evaluate(x, y, batch_size=7, verbose=0))
    else:

        @tf.function(reduce_retracing=True)
        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        losses = [float(step(*batch)) for batch in tf.data.Dataset.from_tensor_slices((x, y)).batch(7)]
    weights = np.concatenate([weight.reshape(-1) for weight in model.get_weights()])
    return [float(number) for number in [*losses, *weights]]


if __name__ == "__main__":
    import paceline

    print("numbers", paceline.rank(), _trained("normalized"), flush=True)
