"""Imports point down the layers of docs/architecture.md, and heavy or private packages stay where they may be."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import paceline

ROOT = Path(paceline.__file__).parent

GROUND = (
    "__version__",
    "errors",
    "importing",
    "leaving",
    "plan",
    "wire",
    "cluster",
    "events",
    "chaos",
    "store",
    "rendezvous",
    "observe",
)
"""Each may import those before it."""

WORKER_SIDE = (
    *GROUND,
    "comm",
    "spmd",
    "data",
    "strategy",
    "resilience",
    "fit",
    "parameter_server",
    "pipeline",
    "evaluation",
    "seams",
    "bootstrap",
)
LAUNCHER_SIDE = (*GROUND, "report", "launcher", "render", "doctor", "cli")

MAY_IMPORT: dict[str, set[str]] = {
    **{package: set(WORKER_SIDE[:index]) for index, package in enumerate(WORKER_SIDE)},
    **{package: set(LAUNCHER_SIDE[:index]) for index, package in enumerate(LAUNCHER_SIDE)},
    # Files of the top level, each with a place of its own.
    "ranks": {"cluster", "comm"},
    "launching": {"cluster"},
    "rates": {"ranks"},
    "callbacks": {"fit", "seams"},
    "__init__": {
        "importing",
        "rendezvous",
        "ranks",
        "launching",
        "rates",
        "callbacks",
        "data",
        "spmd",
        "events",
        "strategy",
        "resilience",
        "fit",
        "evaluation",
        "seams",
    },
    "__main__": {"cli"},
}
MAY_IMPORT["fit"] |= {"ranks"}
MAY_IMPORT["bootstrap"] |= {"ranks", "launching"}

LIGHT = (
    *GROUND,
    "report",
    "launcher",
    "render",
    "doctor",
    "cli",
    "ranks",
    "launching",
    "rates",
    "__init__",
    "__main__",
)
"""They start in milliseconds: none of the packages below, wherever in the file."""

HEAVY = {"tensorflow", "keras", "mpi4py", "numpy"}
HEAVY_IN = {("numpy", "store/tensors.py")}
"""Files of light packages that are loaded only by who has loaded the heavy one anyway."""

PRIVATE = {
    "tensorflow.python": ("strategy/compat.py", "data/compat.py", "spmd/compat.py"),
    "keras.src": ("fit/compat.py", "pipeline/compat.py"),
}
LIBRARIES = {
    "typer": ("cli",),
    "rich": ("cli", "launcher"),
    "psutil": ("cluster", "launcher", "doctor"),
    "pynvml": ("launcher",),
    "cloudpickle": ("launching", "bootstrap"),
    "msgspec": ("wire", "events", "rendezvous", "store", "launcher", "comm"),
    "safetensors": ("store",),
    "xxhash": ("store",),
    "fsspec": ("store",),
    "yaml": ("render",),
    "llvmlite": ("strategy",),
    "debugpy": ("bootstrap",),
    "prometheus_client": ("launcher",),
    "tensorboard": ("report",),
    "matplotlib": ("report",),
    "jinja2": ("report",),
}
"""Which packages may use which library."""


@dataclass(frozen=True)
class Import:
    """One imported module, and where."""

    file: str
    package: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def _imports() -> Iterator[Import]:
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        package = relative.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            for module in _modules(node):
                yield Import(str(relative), package, node.lineno, module)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide the layer"
        assert node.module is not None
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


IMPORTS = tuple(_imports())


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def test_every_package_has_its_layer() -> None:
    assert {one.package for one in IMPORTS} <= MAY_IMPORT.keys()


def test_imports_point_down() -> None:
    upward = [
        str(one)
        for one in IMPORTS
        if _is_within(one.module, "paceline")
        and (target := one.module.split(".")[1]) != one.package
        and target not in MAY_IMPORT[one.package]
    ]
    assert not upward


def test_the_two_sides_never_import_each_other() -> None:
    worker_side, launcher_side = set(WORKER_SIDE) - set(GROUND), set(LAUNCHER_SIDE) - set(GROUND)
    for side, other in ((worker_side, launcher_side), (launcher_side, worker_side)):
        for package in side:
            assert not MAY_IMPORT[package] & other, "the table above contradicts itself"


LAUNCHER_LAYERS = ("output", "workers", "generations", "hosts")
"""The launcher's own packages; each may import those before it."""


def test_the_launchers_packages_import_down() -> None:
    upward = [
        str(one)
        for one in IMPORTS
        if (own := Path(one.file).parts)[0] == "launcher"
        and own[1] in LAUNCHER_LAYERS
        and (target := one.module.split("."))[:2] == ["paceline", "launcher"]
        and target[2] in LAUNCHER_LAYERS[LAUNCHER_LAYERS.index(own[1]) + 1 :]
    ]
    assert not upward


def _graph() -> dict[str, set[str]]:
    """By file, the files that it imports, wherever in it. Types do not count, nor the version in `__init__.py`."""
    files = {
        ".".join(("paceline", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in ROOT.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text())
        of_types = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
            for node in ast.walk(block)
        }
        modules = [one for node in ast.walk(tree) if id(node) not in of_types for one in _modules(node)]
        found = {next((head for head in _heads(one) if head in files), "") for one in modules}
        graph[name] = found - {"", "paceline"}
    return graph


def _heads(module: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def test_no_files_import_each_other() -> None:
    graph = _graph()
    assert not [name for name, imported in graph.items() if name in imported]
    with_what_they_import: dict[str, set[str]] = {}

    def reached(name: str, before: tuple[str, ...]) -> set[str]:
        assert name not in before, f"a circle of imports: {' -> '.join((*before[before.index(name) :], name))}"
        if name not in with_what_they_import:
            with_what_they_import[name] = set().union(
                *(reached(one, (*before, name)) | {one} for one in graph.get(name, ()))
            )
        return with_what_they_import[name]

    for name in graph:
        reached(name, ())


BY_NAME = {"__init__.py", "data/__init__.py", "bootstrap/agent_line.py", "events/bus.py"}
"""Files that import by a text, which no other check sees: names of the public interface, what a standby loads ahead,
and `events.subscribe`, without which nobody would emit."""


def test_imports_by_text_are_known() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if any(
            isinstance(node, ast.Attribute) and node.attr == "import_module"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert found == BY_NAME


MAX_LINES = 400


def test_every_file_can_be_read_at_one_sitting() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert not {file: length for file, length in lengths.items() if length > MAX_LINES}


@pytest.mark.parametrize("heavy", sorted(HEAVY))
def test_light_packages_load_nothing_heavy(heavy: str) -> None:
    light = [one for one in IMPORTS if one.package in LIGHT and (heavy, one.file) not in HEAVY_IN]
    assert not [str(one) for one in light if _is_within(one.module, heavy)]


@pytest.mark.parametrize("private", sorted(PRIVATE))
def test_private_names_are_where_they_are_checked(private: str) -> None:
    elsewhere = [str(one) for one in IMPORTS if _is_within(one.module, private) and one.file not in PRIVATE[private]]
    assert not elsewhere


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_libraries_stay_where_they_belong(library: str) -> None:
    allowed = LIBRARIES[library]
    assert not [str(one) for one in IMPORTS if _is_within(one.module, library) and one.package not in allowed]
