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

EACH_OPTION = "_with_each_option"
IN_EVERY_CHECK = ("Adafactor",)
"""One that combines weights. `tests/spmd/test_fused_updates.py` has all; Adam and SGD are in most other jobs."""

GENERATED = {f"optimizer_{name}": (2,) if name in IN_EVERY_CHECK else () for name in OPTIMIZERS} | {
    f"optimizer_{name}{EACH_OPTION}": () for name in OPTIMIZERS
}
"""Name to the world sizes of every check."""
