"""Loops of plain TensorFlow: they print one worker's numbers, divided or whole; beside a strategy they are refused."""

from pathlib import Path

import pytest

from programs import Ended, run_workers
from worlds import Case, Worlds

pytestmark = [pytest.mark.processes]

PRELUDE = Path(__file__).with_name("loop_prelude.py").read_text()

PLAIN = """
model, optimizer = make()
for batch in dataset:
    loss = step(batch)
    print(f"loss {float(loss):.9f}")
print(f"weights {float(sum(tf.reduce_sum(w ** 3) for w in model.weights)):.9f}")
"""

IN_A_FUNCTION = """
model, optimizer = make()
train = tf.function(step)
for batch in dataset:
    loss = train(batch)
    print(f"loss {float(loss):.9f}")
print(f"weights {float(sum(tf.reduce_sum(w ** 3) for w in model.weights)):.9f}")
"""

BESIDE_A_STRATEGY = "import paceline\nstrategy = paceline.MultiWorkerMirroredStrategy()\n" + PLAIN

OTHER_DATA = """
import os
rank = int(os.environ["PACELINE_RANK"])
x, y = x + rank, (y + rank) % 4
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
"""

OWN_UPDATES = """
weights = tf.Variable(tf.zeros([8, 4], tf.float64))
before = weights.numpy()
for rows, labels in dataset:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, rows @ weights))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
assert (weights.numpy() != before).any()
print("came to its end")
"""

NOTHING_TO_TRAIN = """
import paceline
model, _ = make()
rows = tf.constant(x)
with tf.GradientTape() as tape:  # a map of what the model looks at
    tape.watch(rows)
    loss = tf.reduce_sum(model(rows))
print("came to its end", tape.gradient(loss, rows).shape, paceline.rank())
"""

GRADIENTS_ADDED_UP_BY_HAND = """
import paceline
strategy = paceline.MultiWorkerMirroredStrategy()
weights = tf.Variable(tf.zeros([8, 4], tf.float64))
for rows, labels in dataset:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, rows @ weights))
    weights.assign_sub(0.1 * strategy.reduce("MEAN", tape.gradient(loss, weights), axis=None))
print("came to its end")
"""


def _run(folder: Path, text: str, *options: str) -> Ended:
    script = folder / "train.py"
    script.write_text(PRELUDE + text)
    return run_workers(2, *options, script, folder=folder)


def _printed(ended: Ended | Case, word: str) -> list[str]:
    """What follows `word` in the chief's lines, or in those of the only process."""
    lines = [line.removeprefix("[0] ") for line in ended.output.splitlines()]
    return [line for line in lines if line.startswith(word)]


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [(PLAIN, True), pytest.param(IN_A_FUNCTION, False, marks=pytest.mark.proof)],
    ids=["eager", "in_a_function"],
)
def test_a_loop_that_names_no_strategy_prints_as_one_worker_does(
    tmp_path: Path, worlds: Worlds, text: str, is_whole: bool
) -> None:
    ended = _run(tmp_path, text)
    assert ended.code == 0, ended.output
    plain = worlds.plain.run_script(tmp_path / "train.py", folder=tmp_path)
    for word in ("loss", "weights"):
        printed = _printed(ended, word) + _printed(ended, f"[1] {word}")
        assert {line.removeprefix("[1] ") for line in printed} == {*_printed(plain, word)} != set(), ended.output
    assert ended.output.count("[whole-steps]") == is_whole, ended.output
    assert "never communicated" not in ended.output


@pytest.mark.parametrize(
    "text", [PLAIN, pytest.param(IN_A_FUNCTION, marks=pytest.mark.proof)], ids=["eager", "in_a_function"]
)
def test_ranks_that_read_other_data_are_stopped(tmp_path: Path, text: str) -> None:
    ended = _run(tmp_path, OTHER_DATA + text)
    assert ended.code != 0
    assert "[data-differs]" in ended.output


@pytest.mark.proof
def test_a_loop_as_its_refusal_says_trains_and_prints_as_one_worker_does(tmp_path: Path, worlds: Worlds) -> None:
    """The text left out that data are shared out, and the ranks' parts of the loss added up: half of it was printed."""
    refused = _run(tmp_path, BESIDE_A_STRATEGY)
    (tmp_path / "train.py").write_text(PRELUDE + PLAIN)
    plain = worlds.plain.run_script(tmp_path / "train.py", folder=tmp_path)
    assert refused.code == 1
    assert "[no-strategy]" in refused.output
    lines = refused.output.splitlines()
    first = next(index for index, line in enumerate(lines) if "strategy = paceline." in line)
    last = next(index for index in range(first, len(lines)) if "strategy.reduce(" in lines[index])
    indent = lines[first].index("strategy = ")
    told = "\n".join(line[indent:] for line in lines[first : last + 1])
    followed = _run(tmp_path, "import paceline\n" + PLAIN.replace(PLAIN[: PLAIN.index("    print(")], told + "\n"))
    assert followed.code == 0, followed.output
    assert "never communicated" not in followed.output
    for word in ("loss", "weights"):
        assert _printed(followed, word) == _printed(plain, word) != [], followed.output


@pytest.mark.parametrize(
    ("text", "options", "is_told"),
    [
        (OWN_UPDATES, ("--no-drop-in",), True),
        pytest.param(OWN_UPDATES, (), False, marks=pytest.mark.proof),
        pytest.param(OWN_UPDATES, ("--allow-independent",), False, marks=pytest.mark.proof),
        pytest.param(PLAIN, ("--allow-independent",), False, marks=pytest.mark.proof),
        pytest.param(PLAIN, ("--workers", "1"), False, marks=pytest.mark.proof),
        pytest.param(NOTHING_TO_TRAIN, (), False, marks=pytest.mark.proof),
        pytest.param(GRADIENTS_ADDED_UP_BY_HAND, (), False, marks=pytest.mark.proof),
    ],
    ids=[
        "own_updates",
        "alike",
        "on_purpose",
        "optimizer_on_purpose",
        "one_worker",
        "nothing_to_train",
        "added_up_by_hand",
    ],
)
def test_workers_that_never_exchanged_anything_say_so_once(
    tmp_path: Path, text: str, options: tuple[str, ...], is_told: bool
) -> None:
    """Each trained a copy of its own on all the data, and the job ended with 0 and without a word."""
    ended = _run(tmp_path, text, *options)
    assert ended.code == 0, ended.output
    told = [line for line in ended.output.splitlines() if "never communicated" in line]
    assert len(told) == is_told, ended.output
    assert all("--allow-independent" in line and line.endswith("[independent]") for line in told)
