"""What an input pipeline costs, as `paceline data profile` and `paceline.data.profile` tell it."""

from dataclasses import dataclass

SECONDS = 1.0
"""How long each measurement takes, if nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class ItemCost:
    """What the items of a `PyDataset` or a generator cost, each of which is a batch."""

    seconds: float
    """Of one, made by one thread."""
    rows: int
    size_bytes: int
    share_of_step: float | None
    """Of the time of a step of `fit`, what would pass less if all items lay in memory; None: not measured."""
    num_tried: int
    """Changes."""
    notes: tuple[str, ...]
    """What was not measured, but is worth a word."""

    @property
    def conclusions(self) -> list[str]:
        """Sentences."""
        size = f"{self.rows} rows, {self.size_bytes / 1e6:.1f} MB"
        told = [f"An item ({size}) takes {self.seconds * 1e3:.1f} ms."]
        if self.share_of_step is not None:
            told.append(f"Of a step of `fit` with this model, {self.share_of_step:.0%} is waiting for items.")
        return [*told, *self.notes]


_NO_ADVICE = "No change was found that makes it faster."
_NOTABLE_SHARE = 0.25
MOSTLY = 0.5
"""What waits for so much of its time is helped by more calls at a time."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage of the pipeline costs."""

    name: str
    """The method of `tf.data`, and the function that it calls: ``map decode``."""
    seconds_per_row: float
    """How long threads are in the stage for each row of a batch, all together, without the stages before it."""
    share: float
    """Of the time of all stages."""
    waits: float | None
    """Of that time, what is waiting: for a disk, the network, another process. None: not measured."""
    one_at_a_time: bool
    """Whether it calls its function for one element after the other."""
    on_own_rows: bool
    """Whether each of several workers does this for its own rows only; else each does it for all rows."""
    on_one_rank: bool = False
    """Whether one rank of each host does this for all."""
    in_python: bool = False
    """Whether it calls Python, of which one thread of a process runs at a time."""

    @property
    def cells(self) -> tuple[str, ...]:
        """As in a table under `HEADS`."""
        calls = "one at a time" if self.one_at_a_time else ""
        several = "own rows" if self.on_own_rows else "all rows on each"
        several = "on one rank of a host" if self.on_one_rank else several
        waits = "" if self.waits is None else f"{self.waits:.0%}"
        return self.name, f"{self.seconds_per_row * 1e6:.1f}", f"{self.share:.0%}", waits, calls, several

    @property
    def conclusion(self) -> str:
        """What would help a stage that takes much of the time; empty: nothing that is worth a word."""
        if self.waits is None or self.share < _NOTABLE_SHARE:
            return ""
        if self.waits >= MOSTLY:
            return (
                f"`{self.name}` mostly waits ({self.waits:.0%} of its time: for a disk, the network, another process "
                "or a lock): more calls at a time help, more cores do not."
            )
        if self.in_python:
            return (
                f"`{self.name}` computes in Python, of which one thread of a process runs at a time: more processes "
                "help, more cores or calls at a time do not."
            )
        return f"`{self.name}` computes: more cores help, and more workers that have them."


HEADS = ("stage", "us a row", "share", "waits", "calls", "on several workers")


@dataclass(frozen=True, slots=True)
class Advice:
    """A change, and what it was found to bring."""

    change: str
    """What to write."""
    gain: float
    """Rows per second of the input alone with the change, over those without."""
    gain_in_fit: float | None = None
    """The same in `fit`, with the script's model; None if that was not measured."""

    @property
    def line(self) -> str:
        """What is told of it."""
        if self.gain_in_fit is None:
            return f"{self.change}: {self.gain:.1f} times as fast"
        return f"{self.change}: {self.gain_in_fit:.1f} times as fast (the input alone: {self.gain:.1f})"


@dataclass(frozen=True, slots=True)
class DataProfile:
    """What was measured."""

    rows_per_second: float
    """Of the dataset as it is, in one worker."""
    stages: tuple[StageCost, ...]
    """From the source on."""
    advice: tuple[Advice, ...]
    """The largest gain first."""
    gain_of_two_workers: float | None
    """Rows per second of both together, if each has as many cores as this process, over those of one. None: not
    measured."""
    share_of_starts: float
    """Of the time of whole epochs, what passes before their first batch."""
    stays: str
    """What each worker does for all rows, and how to change that; empty: nothing that is worth a word."""
    items: ItemCost | None = None
    """None: the data are a `tf.data.Dataset`."""

    @property
    def conclusions(self) -> list[str]:
        """Sentences, to be read below the stages."""
        told = [f"{self.rows_per_second:.0f} rows/s in one worker."]
        if self.gain_of_two_workers is not None:
            told.append(f"Two workers, each with as many cores: {self.gain_of_two_workers:.2f} times as many.")
        if self.items is not None:
            told += self.items.conclusions
        told += [said for one in self.stages if (said := one.conclusion)]
        if self.share_of_starts > _NOTABLE_SHARE:
            told.append(
                f"{self.share_of_starts:.0%} of an epoch passes before its first batch, as the pipeline starts and "
                "shuffles fill their buffers. With so few rows, changes of stages show little: profile more."
            )
        if self.stays:
            told.append(f"{self.stays[0].upper()}{self.stays[1:]}.")
        if not self.advice:
            told.append(_NO_ADVICE if self.items is None or self.items.num_tried else "No change was tried.")
        elif any(one.gain_in_fit is None for one in self.advice):
            told.append("Measured changes of the input alone (`fit` gains as much while it waits for input):")
        else:
            told.append("Measured changes, in `fit` with this model on as many cores:")
        return told + [f"  {one.line}" for one in self.advice]

    def __str__(self) -> str:
        lines = [HEADS, *(one.cells for one in self.stages)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([*table, "", *self.conclusions])
