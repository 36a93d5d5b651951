"""Importing Paceline is free, and its command answers at once."""

import json
import os
from pathlib import Path

import pytest

from programs import run_python

HEAVY = ("tensorflow", "keras", "mpi4py", "numpy")
MAX_HELP_SECONDS = 1.0

_REPORT = """
import json, os, sys, threading
environment, modules = dict(os.environ), set(sys.modules)
{imports}
print(json.dumps({{
    "heavy": sorted(set({heavy!r}) & set(sys.modules)),
    "environment": sorted(set(environment.items()) ^ set(os.environ.items())),
    "threads": threading.active_count(),
    "handlers": len(__import__("logging").getLogger("paceline").handlers),
}}))
"""
_LIGHT_MODULES = """
import importlib, pkgutil, paceline
for package in ("cluster", "rendezvous", "observe", "launcher", "cli"):
    package = importlib.import_module(f"paceline.{package}")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
"""
_FREE = {"heavy": [], "environment": [], "threads": 1, "handlers": 0}


@pytest.mark.parametrize(
    "imports",
    [
        pytest.param("import paceline", id="the package"),
        pytest.param("import paceline\npaceline.rank, paceline.launch, dir(paceline)", id="its light names"),
        pytest.param(_LIGHT_MODULES, id="everything that knows no TensorFlow"),
    ],
)
def test_importing_loads_nothing_heavy_and_changes_nothing(tmp_path: Path, imports: str) -> None:
    ended = run_python("-c", _REPORT.format(imports=imports, heavy=HEAVY), folder=tmp_path)
    assert ended.code == 0, ended.output
    assert json.loads(ended.output.splitlines()[-1]) == _FREE


def test_asking_where_this_process_stands_loads_nothing_heavy(tmp_path: Path) -> None:
    imports = "import paceline\nassert paceline.rank() == 0"
    ended = run_python("-c", _REPORT.format(imports=imports, heavy=HEAVY), folder=tmp_path)
    assert json.loads(ended.output)["heavy"] == []


_USERS = """
import paceline
import paceline.data

paceline.MirorredStrategy()
paceline.events.EpochEnd
paceline.callbacks.Snapshots
paceline.data.record
paceline.rank(), paceline.events.EpochEnded, paceline.callbacks.Snapshot, paceline.data.records
paceline.ParameterServerStrategy(max_staleness=3), paceline.PipelineStrategy(2, 4)
"""


def test_a_type_checker_tells_unknown_names_from_known_ones(tmp_path: Path) -> None:
    """The `__getattr__` with which names are found at their first use gave a type checker every name, of any type."""
    (tmp_path / "train.py").write_text(_USERS)
    ended = run_python("-m", "mypy", "--ignore-missing-imports", "--no-error-summary", "train.py", folder=tmp_path)
    told = [line.partition(" error: ")[0] for line in ended.lines("train.py")]
    assert told == [f"train.py:{line}:" for line in (5, 6, 7, 8)], ended.output
    assert 'has no attribute "MirorredStrategy"' in ended.output


_SIGNATURES = """
import inspect, json, paceline
names = [name for name in paceline.__all__ if name.endswith("Strategy")]
print(json.dumps({name: list(inspect.signature(getattr(paceline, name)).parameters) for name in names}))
"""


def test_the_signature_of_a_strategy_has_the_parameters_that_its_description_has(tmp_path: Path) -> None:
    """Two strategies have a `__new__` that takes anything, and `inspect.signature` and `help` showed that one."""
    ended = run_python("-c", _SIGNATURES, folder=tmp_path)
    assert json.loads(ended.output.splitlines()[-1]) == {
        "MirroredStrategy": ["devices", "cross_device_ops"],
        "MultiWorkerMirroredStrategy": ["cluster_resolver", "communication_options"],
        "OneDeviceStrategy": ["device"],
        "ParameterServerStrategy": ["cluster_resolver", "variable_partitioner", "max_staleness", "lazy_rows"],
        "PipelineStrategy": [
            *("stages", "micro_batches", "schedule", "balance"),
            *("split_after", "memory_limit", "recompute", "vertical_sync"),
        ],
    }


def test_an_unknown_name_is_told_with_the_known_ones(tmp_path: Path) -> None:
    ended = run_python("-c", "import paceline; paceline.MirorredStrategy", folder=tmp_path)
    assert ended.code == 1
    assert "no attribute 'MirorredStrategy'" in ended.output
    assert "MirroredStrategy, " in ended.output


def _child_seconds() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def test_help_answers_at_once(tmp_path: Path) -> None:
    seconds = []
    for _ in range(5):  # its processor time: the rest is other processes of a busy machine
        began = _child_seconds()
        ended = run_python("-m", "paceline", "--help", folder=tmp_path)
        seconds.append(_child_seconds() - began)
        assert ended.code == 0
        assert "run" in ended.output
    assert min(seconds) < MAX_HELP_SECONDS, seconds
