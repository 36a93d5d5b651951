"""Every block of Python on a page of the docs runs as it stands there, behind the names that its page speaks of.

Commands of pages are those of `tests/cli/test_documented_commands.py`.
"""

import json
import re
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from programs import run_python

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md")
    for path in sorted(REPOSITORY.glob(pattern))
    if path.name != "CHANGELOG.md"  # tells of code as it was
}
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

ELSEWHERE = {
    "docs/tutorials/": "test_tutorials.py: the code is that of the examples",
    "docs/trackers.md": "tests/end_to_end/test_trackers.py, with the trackers themselves",
    "docs/events.md: metrics_csv": "tests/events/test_documented_sink.py",
    "docs/evaluator.md: SidecarEvaluator": "tests/evaluation/test_sidecar_evaluator.py: it waits for ten checkpoints",
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
    model.compile("sgd", "mse")
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

DAYS = """
for day in range(4):
    with tf.io.TFRecordWriter(f"day-{day}.tfrecord") as writer:
        for row in range(32):
            writer.write(bytes([row]))

def parse(record):
    return tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32)[0] * tf.ones([28, 28, 1]), tf.constant(3)
"""


@dataclass(frozen=True)
class Job:
    """How the blocks of some pages run, one after the other, each with fresh names.

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
            "docs/data.md": READ,
            "docs/events.md": "import shutil; shutil.copy('told.jsonl', 'events.jsonl')",
            "docs/rules.md": "",
            "docs/step_costs.md": "",
        },
        {"docs/events.md": "assert losses == [0.5], losses"},
    ),
    "two workers": Job(
        WORKERS,
        {
            "docs/sections/start.md": "",
            "docs/scripts.md": "URL, download_and_extract = '', lambda url, folder: os.makedirs(folder)",
            "docs/exactness.md": AUGMENTED,
        },
        {"docs/scripts.md": "if 'prepare' in globals(): prepare(); assert os.path.isdir('data')"},
    ),
    "two stages": Job(WORKERS, {"docs/guide/pipeline.md": ""}, {}),
    "servers": Job((*WORKERS, "--ps", "1"), {"docs/parameter_servers.md": DAYS}, {}, goes_on=True),
}


def blocks_of(page: str, language: str) -> list[str]:
    """Those of a page that no other test runs."""
    return [
        textwrap.dedent(text)
        for _, kind, text in BLOCK.findall(PAGES[page])
        if kind == language
        and not any(page.startswith(name.partition(": ")[0]) and name.partition(": ")[2] in text for name in ELSEWHERE)
    ]


def test_each_block_of_python_is_run_by_a_test() -> None:
    run = {page for job in JOBS.values() for page in job.pages}
    assert [page for page in PAGES if blocks_of(page, "python") and page not in run] == []
    assert [page for page in run if not blocks_of(page, "python")] == []


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
    epoch_ended = {"event": "EpochEnded", "rank": 0, "logs": {"loss": 0.5}}
    (tmp_path / "told.jsonl").write_text(json.dumps(epoch_ended) + "\n")
    told = []
    script = ["import runpy"]
    for page, given in job.pages.items():
        blocks = blocks_of(page, "python")
        for number, text in enumerate(["\n".join(blocks)] if job.goes_on else blocks):
            file = f"{Path(page).stem}_{number}.py"
            (tmp_path / file).write_text(f"{GIVEN}\n{given}\n{text}\n{job.behind.get(page, '')}\n")
            told.append(f"ran {page} {number}")
            script.append(f"runpy.run_path({file!r}, run_name='__main__')\nprint({told[-1]!r}, flush=True)")
    (tmp_path / "blocks.py").write_text("\n".join(script))
    launcher = ("-m", "paceline", "run", *job.options) if job.options else ()
    ended = run_python(*launcher, "blocks.py", folder=tmp_path, variables={"KERAS_MAX_STEPS_PER_EPOCH": "8"})
    assert ended.code == 0, ended.output
    assert [one for one in told if one not in ended.output] == []
