"""python does_once.py TRACE: what users prepare, on every rank, without TensorFlow; each rank that does it says so."""

import functools
import os
import sqlite3
import sys
import zipfile
from pathlib import Path

import paceline

TRACE = Path(sys.argv[1])


def did(what: str) -> None:
    with TRACE.open("a") as trace:
        trace.write(f"{what}\n")


@paceline.once_per_host
def prepare(folder: str, number: int) -> dict[str, object]:
    """Extracts an archive.

    Args:
        folder: Where to.
        number: Comes back.
    """
    os.makedirs(folder)  # noqa: PTH103  # as users write it
    with zipfile.ZipFile(f"{folder}.zip", "w") as archive:
        for name in range(20):
            archive.writestr(str(name), b"whole" * 50_000)
    with zipfile.ZipFile(f"{folder}.zip") as archive:
        archive.extractall(folder)
    did(f"prepared {number}")
    return {"path": Path(folder), "number": number}


@paceline.once
def count_down(number: int) -> int:
    did(f"counted {number}")
    return number if number == 0 else count_down(number - 1)


for number in range(3):  # the n-th call of a rank is the others' n-th
    prepared = prepare(f"data{number}", number)
    assert prepared == {"path": Path(f"data{number}"), "number": number}
    assert {len((Path(f"data{number}") / str(name)).read_bytes()) for name in range(20)} == {250_000}
assert prepare.__name__ == "prepare"
for callable_, argument, expected in ((functools.partial(max, 3), 4, 4), (abs, -1, 1)):  # no functions of a module's
    assert paceline.once_per_host(callable_)(argument) == expected
assert "Extracts" in str(prepare.__doc__)
assert count_down(3) == 0

with paceline.once_per_host() as first:
    if first:
        with sqlite3.connect("runs.sqlite") as database:
            database.execute("create table runs (name text)")
        did("made table")
assert sqlite3.connect("runs.sqlite").execute("select count(*) from runs").fetchone() == (0,)

if paceline.rank() == 0:  # nobody waits for a rank that does not come
    with paceline.once() as first:
        assert first

for kind in (RuntimeError, KeyError):  # each rank hears of it, each time
    try:
        with paceline.once_per_host() as first:
            did(f"tried {kind.__name__}")
            raise kind("disk is full")
    except KeyError:
        print("own", first)
    except RuntimeError as error:
        print("own" if "first" in vars() and str(error) == "disk is full" else f"told {paceline.rank()}:", error)


@paceline.once_per_host
def gives_what_cannot_travel() -> object:
    return (number for number in ())


if paceline.world_size() > 1:
    try:
        gives_what_cannot_travel()
    except TypeError as error:
        print("typed:", error)
    except RuntimeError as error:
        print(f"told {paceline.rank()}:", error)

assert "tensorflow" not in sys.modules
assert "numpy" not in sys.modules
assert "mpi4py.MPI" not in sys.modules, "no rank starts MPI for it"
