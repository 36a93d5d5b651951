"""Every block of Python on a page of the docs, and in the docstring of a public name, runs as it stands there.

It runs behind the names that its page speaks of. Commands of pages are those of
`tests/cli/test_documented_commands.py`, examples with `>>>` those of `tests/test_docstrings.py`.
"""

import ast
import importlib
import json
import re
import textwrap
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import paceline.events
from page_makers import page_maker
from programs import run_python

REPOSITORY = Path(__file__).parents[2]
site_pages = page_maker("site_pages")


def _parsed(module: str) -> ast.Module:
    """Read, not imported: most modules of public names import TensorFlow."""
    path = REPOSITORY / "src" / module.replace(".", "/")
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))


def _docstrings() -> Iterator[tuple[str, str]]:
    """Of each public module, and of each public name with its methods: what the site makes of them."""
    for module in site_pages.MODULES:
        tree = _parsed(module)
        yield module, _as_page(tree)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        homes = {alias.name: node.module or "" for node in imports for alias in node.names}
        for name in importlib.import_module(module).__all__:
            if not name.startswith("_") and f"{module}.{name}" not in site_pages.MODULES:
                definitions = [one for one in _parsed(homes[name]).body if getattr(one, "name", "") == name]
                assert definitions, f"{module}.{name} is not defined in {homes[name]}"
                yield f"{module}.{name}", "".join(_as_page(node) for one in definitions for node in ast.walk(one))


def _as_page(node: ast.AST) -> str:
    has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    docstring = ast.get_docstring(node) if has_docstring else None
    return "\n".join((*site_pages.as_rst((docstring or "").splitlines()), "", ""))


DOCSTRINGS = dict(_docstrings())
KINDS_OF_EVENTS = {
    f"paceline.events.{name}"
    for name, found in vars(paceline.events).items()
    if isinstance(found, type) and issubclass(found, paceline.events.Event) and found is not paceline.events.Event
}
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md")
    for path in sorted(REPOSITORY.glob(pattern))
    if path.name != "CHANGELOG.md"  # tells of code as it was
} | DOCSTRINGS
FENCED = re.compile(r"^(?P<margin> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=margin)```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^\.\. code-block:: (?P<language>\w+)\n\n(?P<text>(?: {4}.*\n|\n)+)", re.MULTILINE)
UNMARKED = re.compile(r"(?<=\n\n)(?: {4}.*\n|\n)+", re.MULTILINE)
"""An indented block of Markdown has no language."""

ELSEWHERE = {
    "docs/tutorials/": "test_tutorials.py: the code is that of the examples",
    "docs/trackers.md": "tests/end_to_end/test_trackers.py, with the trackers themselves",
    "docs/events.md: metrics_csv": "tests/events/test_documented_sink.py",
    "docs/exactness.md: # refused": "the row `data-differs` of tests/refusals",
    "docs/hosts_lab.md": "tests/hosts make these calls: they need root",
}
"""Pages, or blocks with a word of theirs, that others run."""

GIVEN = """
import os
import keras
import numpy as np
import tensorflow as tf
import paceline
import paceline.data

keras.utils.set_random_seed(1)
x, y = np.random.rand(64, 28, 28, 1).astype("float32"), np.arange(64) % 10
x_test, y_test = x[:32], y[:32]

def build_model():
    layers = [keras.layers.Flatten(), keras.layers.Dense(8), keras.layers.Dense(8), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((28, 28, 1)), *layers])

def build_and_compile():
    model = build_model()
    model.compile("adam", "mse")
    return model

model = build_and_compile()
dataset = tf.data.Dataset.from_tensor_slices((x, np.float32(y))).batch(32)
train, validation = dataset, dataset.take(1)
"""

AUGMENTED = """
data = tf.data.Dataset.from_tensor_slices((x[..., :1], np.float32(y)))
seeds = tf.data.Dataset.random(1).batch(2, drop_remainder=True)
augment = lambda image, label: (image + tf.random.uniform([]), label)
augment_with_seed = lambda row, seed: (row[0] + tf.random.stateless_uniform([], seed), row[1])
"""

READ = """
paths = tf.data.Dataset.from_tensor_slices([str(number) for number in range(200)])
decode = lambda path: tf.strings.to_number(path)

def batches():
    while True:
        yield x[:16], np.float32(y[:16])
"""

LOOP = """
loss_fn, mean_loss = keras.losses.MeanSquaredError(), keras.metrics.Mean()
optimizer = keras.optimizers.SGD(1e-3)
optimizer.build(model.trainable_weights)

@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = loss_fn(batch[1], model(batch[0], training=True))
    optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
    mean_loss.update_state(loss)
"""

ONCE = "import zipfile; path, post, draw = 'digits.keras', print, lambda epoch, logs: None"

TEN_EPOCHS = """
validation_dataset = validation
from paceline.callbacks import Snapshot
model.fit(dataset, epochs=10, verbose=0, callbacks=[Snapshot(FOLDER)])
"""

IMAGES = """
def decode(path):
    image = tf.numpy_function(lambda path: np.full((28, 28, 1), len(path) / 10, "float32"), [path], tf.float32)
    return tf.ensure_shape(image, (28, 28, 1)), 1.0

paths = tf.data.Dataset.from_tensor_slices([f"{number}.png" for number in range(64)])
images = list(zip(x, np.float32(y)))
"""

LARGER = """
def larger(image, label):
    return tf.image.resize(image, (512, 512)), label

dataset = tf.data.Dataset.from_tensor_slices((x, y)).map(larger).batch(32)
"""

MATRICES = """
image = keras.Input((28, 28, 1))
factors = keras.layers.Lambda(lambda image: tf.linalg.lu(image[..., 0])[0])(image)
model = keras.Model(image, keras.layers.Dense(1)(keras.layers.Flatten()(factors)))
model.compile("adam", "mse")
model.fit(dataset)
"""

DAYS = """
import glob

@paceline.once
def write():
    for day in range(4):
        with tf.io.TFRecordWriter(f"day-{day}.tfrecord") as writer:
            for row in range(32):
                writer.write(bytes([row]))

write()

def parse(record):
    return tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32)[0] * tf.ones([28, 28, 1]), tf.constant(3)

files = sorted(glob.glob("day-*.tfrecord"))
"""


@dataclass(frozen=True)
class Job:
    """How the blocks of some pages run, one after the other, each with fresh names in a folder of its own.

    Args:
        options: Of `paceline run`; none: plain Python.
        pages: With what each gives its blocks, besides `GIVEN`.
        behind: What runs behind the block of a page, if it only defines something.
        goes_on: Whether a block knows the names of those before it on its page.
    """

    options: tuple[str, ...]
    pages: dict[str, str]
    behind: dict[str, str]
    goes_on: bool = False


WORKERS = ("--workers", "2")
JOBS = {
    "plain Python": Job(
        (),
        {
            "paceline.callbacks.Snapshot": "",  # first: behind other examples its import would not matter
            "docs/data.md": READ,
            "docs/evaluator.md": TEN_EPOCHS.replace("FOLDER", "'checkpoints'"),
            "docs/events.md": "",
            "docs/rules.md": "",
            "docs/step_costs.md": "",
            "paceline.SidecarEvaluator": TEN_EPOCHS.replace("FOLDER", "'snapshots'"),
            "paceline.data.profile": LARGER,
            "paceline.explain": "",
            "paceline.launch": "",
        },
        {"docs/events.md": "assert losses == [0.5], losses"},
    ),
    "two workers": Job(
        (*WORKERS, "--data-workers", "1"),
        {
            "docs/sections/start.md": "",
            "docs/exactness.md": AUGMENTED,
            "docs/files.md": ONCE,
            "docs/own_loops.md": LOOP,
            "docs/snapshots.md": LOOP,
            "paceline.LearningRateWarmup": "",
            "paceline.TrainingState": LOOP,
            "paceline.callbacks.Snapshot": "",
            "paceline.chief_only": ONCE,
            "paceline.data.element_wise": IMAGES,
            "paceline.data.once_per_host": READ,
            "paceline.data.records": DAYS,
            "paceline.data.rows": IMAGES,
            "paceline.data.service": "",
            "paceline.data.shard": f"{DAYS}\ndataset = tf.data.TFRecordDataset(files).map(parse).batch(32)",
            "paceline.events.Event": "",
            "paceline.events.subscribe": "",
            "paceline.is_chief": "",
            "paceline.local_rank": "",
            "paceline.once": ONCE,
            "paceline.once_per_host": ONCE,
            "paceline.rank": "",
            "paceline.register_rule": "",
            "paceline.scale_learning_rate": "",
            "paceline.world_size": "",
            # Last: behind a script's own strategy a `fit` without one trains apart.
            "docs/scripts.md": "URL, download_and_extract = '', lambda url, folder: os.makedirs(folder)",
            "paceline": "",
            "paceline.MirroredStrategy": "",
            "paceline.MultiWorkerMirroredStrategy": "",
            "paceline.OneDeviceStrategy": "",
        },
        {
            "docs/scripts.md": "if 'prepare' in globals(): prepare(); assert os.path.isdir('data')",
            "paceline.register_rule": MATRICES,
        },
    ),
    "two stages": Job(WORKERS, {"docs/guide/pipeline.md": "", "paceline.PipelineStrategy": ""}, {}),
    "servers": Job(
        (*WORKERS, "--ps", "1"),
        {
            "docs/parameter_servers.md": f"os.chdir('..')  # where workers read\n{DAYS}",
            "paceline.ParameterServerStrategy": "",
        },
        {},
        goes_on=True,
    ),
}


def blocks_of(page: str, language: str) -> list[str]:
    """Those of a page that no other test runs."""
    return [
        textwrap.dedent(found["text"])
        for found in (INDENTED if page in DOCSTRINGS else FENCED).finditer(PAGES[page])
        if found["language"] == language
        and not any(
            page.startswith(name.partition(": ")[0]) and name.partition(": ")[2] in found["text"] for name in ELSEWHERE
        )
    ]


def _is_python(text: str) -> bool:
    try:
        return bool(ast.parse(textwrap.dedent(text)).body)
    except SyntaxError:
        return False


def test_each_block_of_python_is_run_by_a_test() -> None:
    run = {page for job in JOBS.values() for page in job.pages}
    assert [page for page in PAGES if blocks_of(page, "python") and page not in run] == []
    assert [page for page in run if not blocks_of(page, "python")] == []


def test_each_block_of_python_on_a_page_says_that_it_is_python() -> None:
    for page in PAGES.keys() - DOCSTRINGS.keys():
        unmarked = UNMARKED.findall(FENCED.sub("", PAGES[page]))
        assert [text for text in unmarked if _is_python(text)] == [], f"{page}: put ```python before it, ``` behind it"


def test_each_public_name_has_an_example() -> None:
    """An indented block in its docstring. `paceline.events.Event` has one for all kinds of events."""
    missing = [name for name in DOCSTRINGS.keys() - set(site_pages.MODULES) if not blocks_of(name, "python")]
    assert [name for name in missing if name not in KINDS_OF_EVENTS] == [], "see CONTRIBUTING.md, The site"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page, "json") or blocks_of(page, "toml")])
def test_what_is_no_program_can_be_read(page: str) -> None:
    for text in blocks_of(page, "json"):
        assert [json.loads(one) for one in ([text] if text.startswith("{\n") else text.splitlines())]
    for text in blocks_of(page, "toml"):
        assert tomllib.loads(text)


@pytest.mark.processes
@pytest.mark.parametrize("name", JOBS)
def test_the_blocks_of_pages_run_as_they_stand_there(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    told = []
    # Kept: freeing the script's own `iter(dataset)` may take TensorFlow a minute (`data/freed_iterators.py`).
    script = ["import os", "import runpy", "kept = []"]
    for page, given in job.pages.items():
        blocks = blocks_of(page, "python")
        for number, text in enumerate(["\n".join(blocks)] if job.goes_on else blocks):
            folder = tmp_path / f"{Path(page).name}_{number}"
            _write_what_examples_read(folder)
            (folder / "block.py").write_text(f"{GIVEN}\n{given}\n{text}\n{job.behind.get(page, '')}\n")
            told.append(f"ran {page} {number}.")
            script.append(f"os.chdir({str(folder)!r})")
            script.append("kept.append(runpy.run_path('block.py', run_name='__main__'))")
            script.append(f"print({told[-1]!r}, flush=True)")
    (tmp_path / "blocks.py").write_text("\n".join(script))
    launcher = ("-m", "paceline", "run", *job.options) if job.options else ()
    ended = run_python(*launcher, "blocks.py", folder=tmp_path, variables={"KERAS_MAX_STEPS_PER_EPOCH": "8"})
    assert ended.code == 0, ended.output
    assert [one for one in told if one not in ended.output] == []


def _write_what_examples_read(folder: Path) -> None:
    folder.mkdir()
    epoch_ended = {"event": "EpochEnded", "rank": 0, "logs": {"loss": 0.5}}
    (folder / "events.jsonl").write_text(json.dumps(epoch_ended) + "\n")
    with zipfile.ZipFile(folder / "digits.zip", "w") as archive:
        archive.writestr("digits.txt", "0123456789")
