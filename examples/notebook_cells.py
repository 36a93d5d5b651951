"""A notebook as a script: each part from one "# %%" to the next is a cell, also to Jupytext, VS Code and PyCharm.

python notebook_cells.py
"""

# %% function
import os

import paceline

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def build_model():
    import keras

    model = keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def train(epochs):
    if epochs < 1:
        raise ValueError(f"epochs: received {epochs}; expected 1 or more")

    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    with np.load("data/mnist_10k.npz") as digits:
        x, y = digits["x_train"] / np.float32(255), digits["y_train"]
    model = build_model()
    history = model.fit(x, y, batch_size=128, epochs=epochs, verbose=2).history
    return history["accuracy"], model.get_weights()


# %% launch
results = paceline.launch(train, workers=2, args=(2,))

# %% results
for rank, (accuracies, _) in enumerate(results):
    print(f"rank {rank}: accuracy by epoch {', '.join(f'{accuracy:.4f}' for accuracy in accuracies)}")

# %% use
import numpy as np

model = build_model()
_, weights = results[0]
model.set_weights(weights)
with np.load("data/mnist_10k.npz") as digits:
    loss, accuracy = model.evaluate(digits["x_test"] / np.float32(255), digits["y_test"], batch_size=500, verbose=0)
print(f"on digits that nobody has trained on: {accuracy:.3f}")

# %% failure
try:
    paceline.launch(train, workers=2, args=(0,))
except RuntimeError as error:
    print("the cause:", repr(error.__cause__))
