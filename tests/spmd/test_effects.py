"""What a step does besides computing tensors is done once, by rank 0, with whole tensors."""

import concurrent.futures
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.spmd.rank_threads import NotedMessages, Outcome, Step, assert_as_one_worker, by_one_worker, by_ranks, traced
from tests.strategy.thread_worlds import on_each_rank

from paceline.spmd.partition import Partitioner

ROWS = np.random.default_rng(0).normal(size=(7, 3))
COUNTS = (2, 5, 0)


class _Calls:
    """Makes steps that call Python, and notes the calls of each: one worker's are first, then those of each rank."""

    def __init__(self, step: Callable[[Any, Callable[[Any], Any]], Any], weights: int = 0) -> None:
        self._step = step
        self._weights = weights
        self.noted: list[list[tuple[int, ...]]] = []

    def __call__(self) -> Step:
        """A step like the others."""
        mine: list[tuple[int, ...]] = []
        self.noted.append(mine)
        weights = [tf.Variable(np.ones((3, 2))) for _ in range(self._weights)]

        def called(array: Any) -> Any:
            """Another result in each call, as from a generator of random numbers."""
            mine.append(tuple(array.shape))
            return array * array * float(len(mine))

        return Step(lambda x: self._step(x, called, *weights), lambda: weights)

    def assert_once(self) -> None:
        """Rank 0 has made one worker's calls, and the others none."""
        one, first, *others = self.noted
        assert one
        assert first == one
        assert others == [[] for _ in others]


def _with_gradient(x: Any, called: Callable[[Any], Any], weight: Any) -> Any:
    with tf.GradientTape() as tape:
        hidden = tf.matmul(x, weight)
        made = tf.py_function(called, [hidden], hidden.dtype)
        made.set_shape(hidden.shape)
        loss = tf.reduce_mean(made**2)
    weight.assign_sub(0.01 * tape.gradient(loss, weight))
    return loss, made


def test_python_is_called_once_and_has_a_gradient() -> None:
    calls = _Calls(_with_gradient, weights=1)
    sent = assert_as_one_worker(calls, [ROWS], COUNTS)
    calls.assert_once()
    assert sorted(sent) == ["call", "call", "gather", "gather"], "one message for a call, and one for its inputs"


def _in_loop(x: Any, called: Callable[[Any], Any]) -> Any:
    def body(turn: Any, value: Any) -> Any:
        made = tf.numpy_function(called, [value], value.dtype)
        made.set_shape(value.shape)
        return turn + 1, 0.5 * made + value - tf.reduce_mean(value, 0)

    return tf.while_loop(lambda turn, _: turn < 3, body, [0, x])[1]


def _in_branch(x: Any, called: Callable[[Any], Any]) -> Any:
    def call() -> Any:
        made = tf.py_function(called, [x], x.dtype)
        made.set_shape(x.shape)
        return made + tf.reduce_mean(x)

    chosen = tf.cond(tf.reduce_sum(x) < 1e9, call, lambda: x)
    return chosen, tf.cond(tf.reduce_sum(x) > 1e9, call, lambda: x)


def _row_by_row(x: Any, called: Callable[[Any], Any]) -> Any:
    return tf.map_fn(lambda row: tf.ensure_shape(tf.numpy_function(called, [row], row.dtype), [3]), x)


@pytest.mark.parametrize("step", [_in_loop, _in_branch, _row_by_row])
def test_python_is_called_once_in_loops_and_branches(step: Callable[..., Any]) -> None:
    calls = _Calls(step)
    assert_as_one_worker(calls, [ROWS], COUNTS)
    calls.assert_once()


def test_what_python_returns_may_be_text_or_several_or_of_any_shape() -> None:
    def step(x: Any, called: Callable[[Any], Any]) -> Any:
        def several(array: np.ndarray) -> Any:
            called(array)
            words = np.array([b"a", b"", "ü".encode()], dtype=object)
            return words, np.float32(len(array)), array[array[:, 0] > 0], np.array(array.shape), b"one"

        types = [tf.string, tf.float32, tf.float64, tf.int64, tf.string]
        words, count, chosen, shape, word = tf.numpy_function(several, [x], types, stateful=False)
        return words, count, chosen, tf.shape(chosen), shape, tf.strings.join([word, words])

    calls = _Calls(step)
    assert_as_one_worker(calls, [ROWS], COUNTS)
    calls.assert_once()


def test_python_without_a_result() -> None:
    def step(x: Any, called: Callable[[Any], Any]) -> Any:
        tf.py_function(lambda rows: [called(rows)][:0], [x], [])
        return tf.reduce_sum(x)

    calls = _Calls(step)
    assert assert_as_one_worker(calls, [ROWS], COUNTS) == ["gather", "call", "sum"]
    calls.assert_once()


def _printing(path: Path) -> Callable[[], Step]:
    def make() -> Step:
        count = tf.Variable(0)

        def step(x: Any) -> Any:
            count.assign_add(1)
            tf.print("rows", tf.reduce_sum(x, 1), "step", count, output_stream=f"file://{path}", summarize=-1)
            count.assign_add(1)

            def body(turn: Any, value: Any) -> Any:
                tf.print("turn", turn, tf.reduce_mean(value), output_stream=f"file://{path}")
                return turn + 1, value + 1

            return tf.while_loop(lambda turn, _: turn < 2, body, [0, x])[1]

        return Step(step, lambda: [count])

    return make


def test_prints_once_what_one_worker_prints(tmp_path: Path) -> None:
    by_one_worker(_printing(tmp_path / "one"), [ROWS])
    by_ranks(_printing(tmp_path / "several"), [ROWS], COUNTS)
    expected = (tmp_path / "one").read_text().splitlines()
    assert len(expected) == 6
    found = (tmp_path / "several").read_text().splitlines()
    assert len(found) == len(expected)
    for line, other in zip(found, expected, strict=True):
        words, others = ([word.strip("[]") for word in one.split()] for one in (line, other))
        assert len(words) == len(others)
        for word, same in zip(words, others, strict=True):
            assert word == same or float(word) == pytest.approx(float(same), abs=1e-12)


def test_writes_files_and_summaries_once(tmp_path: Path) -> None:
    def make() -> Step:
        folder = tmp_path / f"of_{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        writer = tf.summary.create_file_writer(str(folder))

        def step(x: Any) -> Any:
            tf.io.write_file(str(folder / "written"), tf.strings.as_string(tf.reduce_mean(x), precision=3))
            with writer.as_default():
                tf.summary.scalar("mean", tf.reduce_mean(x), step=1)
            return tf.reduce_sum(x)

        return Step(step)

    by_ranks(make, [ROWS], COUNTS)
    events = [
        [event for path in (tmp_path / f"of_{rank}").glob("events*") for event in _summaries(path)]
        for rank in range(len(COUNTS))
    ]
    assert events == [[pytest.approx(ROWS.mean(), rel=1e-6)] * 2, [], []]
    assert [path.parent.name for path in tmp_path.glob("*/written")] == ["of_0"]
    assert (tmp_path / "of_0" / "written").read_text() == f"{ROWS.mean():.3f}"


def _summaries(path: Path) -> list[float]:
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    events = [tf.compat.v1.Event.FromString(record) for record in records]
    return [float(tf.make_ndarray(value.tensor)) for event in events for value in event.summary.value]


def test_the_clock_is_the_same_on_all_ranks() -> None:
    outcomes, sent = by_ranks(lambda: Step(lambda x: (tf.timestamp(), tf.reduce_sum(x))), [ROWS], COUNTS)
    assert len({float(outcome.outputs[0]) for outcome in outcomes}) == 1
    assert float(outcomes[0].outputs[0]) > 1e9
    assert sent == ["sum"]


def test_assertions_fail_on_all_ranks() -> None:
    def step(x: Any) -> Any:
        tf.debugging.assert_negative(tf.reduce_sum(x) ** 2, message="too much")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="too much"):
        by_ranks(lambda: Step(step), [ROWS], COUNTS)


@pytest.mark.parametrize(
    ("error", "seen"), [(KeyError, tf.errors.UnknownError), (ValueError, tf.errors.InvalidArgumentError)]
)
def test_an_exception_in_python_is_raised_on_all_ranks(error: type[Exception], seen: type[Exception]) -> None:
    """And they are at the same message afterwards: the next step is right."""

    def make() -> Step:
        calls: list[int] = []

        def called(array: np.ndarray) -> np.ndarray:
            calls.append(1)
            if len(calls) == 2:
                raise error("no second call")
            return array + len(calls)

        def step(x: Any) -> Any:
            made = tf.numpy_function(called, [x], x.dtype)
            return made, tf.reduce_sum(x) * tf.reduce_mean(made), tf.reduce_sum(x)

        return Step(step)

    messages = on_each_rank(len(COUNTS), NotedMessages)
    steps = [make() for _ in COUNTS]
    divided = [
        Partitioner(one).divided(traced(step, [ROWS]), [True]).get_concrete_function()
        for one, step in zip(messages, steps, strict=True)
    ]

    def run(rank: int) -> list[Any]:
        first = sum(COUNTS[:rank])
        own = tf.constant(ROWS[first : first + COUNTS[rank]])
        results: list[Any] = []
        for _ in range(3):
            try:
                outputs = divided[rank](tf.constant(len(ROWS), tf.int64), tf.constant(first, tf.int64), own)
                results.append(Outcome([output.numpy() for output in outputs], []))
            except tf.errors.OpError as raised:
                results.append(raised)
        return results

    with concurrent.futures.ThreadPoolExecutor(len(COUNTS)) as threads:
        for before, raised, after in threads.map(run, range(len(COUNTS)), timeout=60):
            np.testing.assert_allclose(before.outputs[0], ROWS + 1)
            assert type(raised) is seen
            assert f"{error.__name__}: " in raised.message
            assert "no second call" in raised.message
            np.testing.assert_allclose(after.outputs[0], ROWS + 3)
            np.testing.assert_allclose(after.outputs[1], ROWS.sum() * (ROWS + 3).mean())
