"""Names of the jobs that are made in a loop; imports nothing, so that the tests can list them."""

OPTIMIZERS = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "Nadam",
    "RMSprop",
    "SGD",
    "ScheduleFreeAdamW",
)

GENERATED = {f"optimizer_{name}": (2,) for name in OPTIMIZERS}
"""Name to world sizes."""
