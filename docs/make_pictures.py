"""Draws the pictures in docs/pictures/: make pictures (a minute: it trains), make pictures PICTURES=batch for one.

batch      what two workers do with a batch
step       the tensors of a divided step: whole, own rows, addends
processes  the processes of a job on two hosts
killed     a terminal in which a worker is killed: what the tutorial of the first script has printed
timeline   some steps of two workers, of which one shares its core with other programs; from a run with --observe
scaling    how fast a script would be on up to 16 hosts, with two sizes of batches: `paceline predict --plot`
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


def step() -> str:
    """The tensors of a divided step on each of two workers."""
    names = ("batch", "weights", "batch × weights", "loss of a row", "sum of losses", "gradient", "gradient")
    shapes = ("[8, 4]", "[4, 2]", "[8, 2]", "[8]", "[ ]", "[4, 2]", "[4, 2]")
    places = ("own rows", "replicated", "own rows", "own rows", "partial", "partial", "replicated")

    def draw(axes: Any) -> None:
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 40)
        axes.axis("off")
        for column, (name, shape, place) in enumerate(zip(names, shapes, places, strict=True)):
            x = 9 + 13.5 * column
            axes.text(x + 4.5, 37, name, ha="center", weight="bold", fontsize=8)
            axes.text(x + 4.5, 34.3, shape, ha="center", fontsize=8)
            axes.text(x + 4.5, 2.5, place, ha="center", style="italic", fontsize=8)
            for worker, (colour, y) in enumerate(((_FIRST, 20), (_SECOND, 6))):
                if place == "own rows":
                    for half in range(2):
                        fill = colour if half == worker else "none"
                        axes.add_patch(
                            Rectangle((x, y + 5.5 * (1 - half)), 9, 5.5, facecolor=fill, edgecolor="#999999")
                        )
                else:
                    text = {"partial": f"addend\nof worker {worker}", "replicated": "the whole"}[place]
                    _box(axes, x, y, 9, 11, text, colour if place == "partial" else _ALL)
        for worker, y in enumerate((25.5, 11.5)):
            axes.text(0, y, f"worker {worker}", va="center", fontsize=8)
        _arrow(axes, (86.1, 25.5), (89.6, 25.5))
        _arrow(axes, (86.1, 11.5), (89.6, 11.5))
        axes.text(87.9, 18.5, "one\nmessage", ha="center", va="center", fontsize=7)

    return svg(draw, COLUMN_INCHES, 3.2)


def processes() -> str:
    """The processes of a job on two hosts."""

    def draw(axes: Any) -> None:
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 46)
        axes.axis("off")
        _box(axes, 1, 16, 17, 12, "paceline run\n--hosts a:2,b:2\nshows all output,\ndecides on restarts", "#eeeeee")
        for host, (name, y) in enumerate((("a", 25), ("b", 2))):
            axes.add_patch(Rectangle((30, y), 69, 18, facecolor="none", edgecolor="#555555", linestyle="--"))
            axes.text(31, y + 16, f"host {name}", fontsize=8, va="center")
            _box(axes, 32, y + 4, 17, 8, "agent\nstarts and watches", "#eeeeee")
            for place in range(2):
                rank = 2 * host + place
                says = ", the chief:\nwrites files" if rank == 0 else ""
                _box(axes, 58 + 22 * place, y + 3, 17, 10, f"rank {rank}{says}", _FIRST if rank == 0 else _ALL)
            _arrow(axes, (18.3, 22), (31.7, y + 8))
            _arrow(axes, (49.3, y + 8), (57.7, y + 8))
            axes.annotate("", (79.7, y + 8), (75.3, y + 8), arrowprops=_BOTH)
        axes.text(22, 34, "ssh", fontsize=8)
        axes.annotate("", (66.5, 28), (66.5, 15), arrowprops=_BOTH)
        axes.text(68, 22.3, "gradients: shared memory in a host, TCP between hosts", fontsize=8, va="center")

    return svg(draw, COLUMN_INCHES, 3.6)


_BOTH = {"arrowstyle": "<->", "color": "#555555"}


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


def scaling() -> str:
    """How fast a small network for digits would be on more hosts."""
    with tempfile.TemporaryDirectory(prefix="paceline-pictures-") as folder:
        picture = Path(folder, "scaling.svg")
        hosts = ["--workers", "1,2,4,8,16", "--hosts", "16", "--link", "10Gbit,0.1ms"]
        command = ["paceline", "predict", *hosts, "--batch", "128,1024", "--plot", str(picture)]
        _run([*command, "unequal_workers.py"], folder_of_examples(Path(folder)))
        return picture.read_text(encoding="utf-8")


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
    _run(command, folder_of_examples(folder))
    return read_job(folder / "seen")


def _run(command: list[str], folder: Path) -> None:
    print(f"$ {' '.join(command)}", flush=True)
    ended = subprocess.run(
        command, cwd=folder, env=variables(), capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
    )
    if ended.returncode:
        sys.exit(f"{ended.stdout}{ended.stderr}")


DRAWN: dict[str, Callable[[], str]] = {
    "batch": batch,
    "step": step,
    "processes": processes,
    "killed": killed,
    "scaling": scaling,
}
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
