"""Rank R ends in the way HOW at the place WHERE of a small training; ``every``: all ranks do, rank 0 later."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

where, how, which = sys.argv[1:4]
rank = int(os.environ["PACELINE_RANK"])


def _in_thread(end: Callable[[], object]) -> None:
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()


HOW: dict[str, Callable[[], object]] = {
    "_exit(0)": lambda: os._exit(0),
    "_exit(3)": lambda: os._exit(3),
    "exit(0)": lambda: ctypes.CDLL(None).exit(0),
    "thread _exit(0)": lambda: _in_thread(lambda: os._exit(0)),
    "thread SIGKILL": lambda: _in_thread(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "raise": lambda: 1 / 0,
    "sys.exit(3)": lambda: sys.exit(3),
}


def at(place: str) -> None:
    if place == where and which in (str(rank), "every"):
        HOW[how]()


at("import")
import keras  # noqa: E402
import numpy as np  # noqa: E402


class Ends(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        if batch == 0:
            at("first step")

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 2:
            at("mid-epoch")

    def on_test_batch_end(self, batch: int, logs: object = None) -> None:
        at("validation")


class Saved(keras.layers.Dense):
    def save_own_variables(self, store: object) -> None:
        at("saving")
        super().save_own_variables(store)


rows, targets = np.zeros((32, 4), "float32"), np.zeros((32, 1), "float32")
model = keras.Sequential([keras.Input((4,)), Saved(1)])
model.compile("sgd", "mse")
at("before fit")
model.fit(rows, targets, batch_size=8, verbose=0, validation_data=(rows, targets), callbacks=[Ends()])
at("between fits")
model.fit(rows, targets, batch_size=8, verbose=0)
if where == "saving":
    model.save("model.keras")
    model.evaluate(rows, targets, verbose=0)
if which == "every" and rank == 0:
    # Work of the chief's own. The time is what is tested: the launcher first looks at the others after two seconds
    # (`FIRST_LOOK_SECONDS`), and must find the chief at work. On a slower machine it looks once more.
    time.sleep(4)
at("end")
