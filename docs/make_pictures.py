"""Draws the pictures in docs/pictures/: make pictures (a minute: it trains), make pictures PICTURES=batch for one.

batch      what two workers do with a batch
killed     a terminal in which a worker is killed: what the tutorial of the first script has printed
timeline   some steps of two workers, of which one shares its core with other programs; from a run with --observe
report     where the time of these workers went, as in the report of the same run

Nothing that is drawn loads a font or anything else.
"""

import html
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from make_tutorials import FOLDER as TUTORIALS
from make_tutorials import REPOSITORY, Block, blocks_of, folder_of_examples, variables
from matplotlib.patches import Rectangle

from paceline.report.charts import COLOURS, bars
from paceline.report.drawing import COLUMN_INCHES, svg
from paceline.report.kept_job import KeptJob, read_job
from paceline.report.step_spans import steps_of
from paceline.report.summary import WORDS, groups_of, means, seconds_by_rank

FOLDER = REPOSITORY / "docs" / "pictures"

_FIRST, _SECOND, _ALL = "#9ecae1", "#fdbe85", "#b8dcb0"
_ROWS = 4
"""Of each worker."""
_NUM_STEPS = 3
_COLUMNS = 104
_KILLED = (
    "2 workers on",
    "2 replicas",
    "Epoch",
    "32/32",
    "was killed by signal 9 (SIGKILL); stopping",
    "generation 2 begins",
    "resuming from",
    "(10 steps lost",
    "s: start",
    "96 steps",
)
"""Of the lines of the terminal those with one of these are shown."""
_LIMIT_SECONDS = 300


def batch() -> str:
    """What two workers do with a batch."""

    def draw(axes: Any) -> None:
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 42)
        axes.axis("off")
        for row in range(2 * _ROWS):
            colour = _FIRST if row < _ROWS else _SECOND
            _box(axes, 2, 33 - 4 * row, 10, 3.2, f"row {row}", colour)
        for worker, (colour, y) in enumerate(((_FIRST, 27), (_SECOND, 8))):
            _box(axes, 24, y, 19, 7, f"worker {worker}\nforward and backward\nof its {_ROWS} rows", colour)
            _box(axes, 50, y, 15, 7, f"sums over\n{_ROWS} rows", colour)
            _box(axes, 84, y, 15, 7, "update:\nthe same weights", _ALL)
            _arrow(axes, (13, y + 3.5), (23.5, y + 3.5))
            _arrow(axes, (43.5, y + 3.5), (49.5, y + 3.5))
            _arrow(axes, (65.5, y + 3.5), (69.5, 21 + (1 if y > 20 else -1)))
            _arrow(axes, (78.5, 21 + (1 if y > 20 else -1)), (83.5, y + 3.5))
        _box(axes, 70, 15, 8, 13, "added up,\nin the order\nof ranks", _ALL)
        for x, text in ((7, "one batch"), (33.5, "own rows"), (57.5, "addends"), (82, "the same on all workers")):
            axes.text(x, 39.5, text, ha="center", weight="bold")
        axes.text(57.5, 2, "gradients, losses, metrics", ha="center", style="italic")

    return svg(draw, COLUMN_INCHES, 3.6)


def _box(axes: Any, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="#555555", linewidth=0.8))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8)


def _arrow(axes: Any, begin: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, begin, arrowprops={"arrowstyle": "->", "color": "#555555"})


def killed() -> str:
    """A terminal in which a worker is killed."""
    block = next(one for one in _outputs("first_script") if "generation 2 begins" in one.text)
    lines = [line for line in block.text.splitlines() if any(word in line for word in _KILLED)]
    command = "paceline run --workers 2 --max-restarts 1 --snapshot-dir snapshots first_script.py"
    return terminal([f"$ {command}", *lines])


def _outputs(page: str) -> list[Block]:
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    return [one for one in blocks_of(text) if one.kind == "output"]


def terminal(lines: list[str]) -> str:
    """Lines as a terminal shows them: what is long goes on in the next one."""
    shown = [(part, _colour_of(line)) for line in lines for part in _folded(line)]
    height = 18 * len(shown) + 28
    texts = "\n".join(
        f'<text x="14" y="{18 * number + 26}" fill="{colour}" xml:space="preserve">{html.escape(part)}</text>'
        for number, (part, colour) in enumerate(shown)
    )
    width = round(7.9 * _COLUMNS) + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">\n'
        f'<rect width="100%" height="100%" rx="6" fill="#1e2227"/>\n{texts}\n</svg>\n'
    )


def _colour_of(line: str) -> str:
    if line.startswith("$"):
        return "#ffffff"
    if "was killed" in line:
        return "#ff9e8f"
    return "#a6d9a0" if "resuming" in line or "generation 2" in line else "#c9d1d9"


def _folded(line: str) -> Iterator[str]:
    left = line
    while len(left) > _COLUMNS:
        at = left.rfind(" ", 8, _COLUMNS)
        yield left[:at]
        left = f"    {left[at + 1 :]}"
    yield left


def timeline(job: KeptJob) -> str:
    """Some steps of all ranks, on one clock."""
    files = {file.header.rank: file for file in job.of("steps")}
    steps = {rank: [step for step in steps_of(file) if step.number is not None] for rank, file in files.items()}
    last = min(max(step.number or 0 for step in of_rank) for of_rank in steps.values()) // 2
    shown = {
        rank: [step for step in of_rank if last - _NUM_STEPS < (step.number or 0) <= last]
        for rank, of_rank in steps.items()
    }
    began = min(step.began for of_rank in shown.values() for step in of_rank)

    def draw(axes: Any) -> None:
        seen: set[str] = set()
        for rank, of_rank in shown.items():
            for step in of_rank:
                for span in step.spans:
                    word = _WORD_OF.get(span.phase, span.phase)
                    label = None if word in seen else word
                    seen.add(word)
                    start, length = (span.began - began) / 1e6, (span.ended - span.began) / 1e6
                    colour = COLOURS.get(word, "#999999")
                    axes.barh(f"rank {rank}", length, left=start, color=colour, label=label, height=0.6)
                axes.text((step.began - began) / 1e6, rank - 0.36, f"step {step.number}", fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds")
        axes.figure.legend(loc="outside right upper")

    return svg(draw, COLUMN_INCHES, 2.2)


_WORD_OF = {phase: word for word, phases in WORDS.items() for phase in phases}


def report(job: KeptJob) -> str:
    """Where the time of the ranks went."""
    by_rank = seconds_by_rank(job)
    return bars(means(by_rank, groups_of(job, by_rank)))


def observed_job(folder: Path) -> KeptJob:
    """Two workers, of which the second one shares its core with other programs; it trains."""
    command = ["paceline", "run", "--workers", "2", "--observe", str(folder / "seen"), "unequal_workers.py"]
    examples = folder_of_examples(folder)
    print(f"$ {' '.join(command)}", flush=True)
    ended = subprocess.run(
        command, cwd=examples, env=variables(), capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
    )
    if ended.returncode:
        sys.exit(f"{ended.stdout}{ended.stderr}")
    return read_job(folder / "seen")


DRAWN: dict[str, Callable[[], str]] = {"batch": batch, "killed": killed}
OF_A_JOB: dict[str, Callable[[KeptJob], str]] = {"timeline": timeline, "report": report}


def main(*names: str) -> None:
    """Draws the pictures that are named, or all."""
    wanted = names or (*DRAWN, *OF_A_JOB)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="paceline-pictures-") as folder:
        job = observed_job(Path(folder)) if any(name in OF_A_JOB for name in wanted) else None
        for name in wanted:
            drawn = OF_A_JOB[name](job) if job is not None and name in OF_A_JOB else DRAWN[name]()
            text = re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE)
            (FOLDER / f"{name}.svg").write_text(text.rstrip("\n") + "\n", encoding="utf-8")
            print(f"drew {FOLDER / name}.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
