"""How long a step of a job of many workers takes, from the steps of few of them and the network; pure.

    last message of a step ─► update, Keras's loop, input ─► message 1 ─► compute ─► other messages
                              each worker waits for the slowest              …and again

    step = slowest(update + loop + input) + message 1 + slowest(compute) + other messages

A measured step of the workers of one host is a drawing of what such a host does. Hosts are independent, so the slowest
of n hosts is the largest of n drawings: its expected value follows from the sorted steps, without drawing. What
is uncertain is how well the measured steps stand for all others: the interval comes from drawing the steps themselves
anew, in blocks, as a slow moment of a machine lasts longer than a step.

Messages within a host take what they take here. Between hosts they take the bytes that any all-reduce must send
through a host's network, and some crossings of it.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.plan.step_samples import Parts, StepSamples

INPUT, COMPUTE, UPDATE, MESSAGES, SLOWEST, BETWEEN = (
    *("input", "compute", "update", "messages"),
    *("waiting for the slowest", "between steps"),
)

_NUM_DRAWINGS = 400
_BLOCK = 5
"""Neighbouring steps that are drawn together."""
_DRAWN_SHARE = 0.99
"""Of the drawings, which differ less than other steps would: so many reach around the truth in nine of ten."""
_LEAST = 1e-12
"""Seconds, to divide by."""
_MODEL_SPREAD = 0.05
"""Of the time of messages between hosts, which is computed: a standard deviation, so ± 10 % in 19 of 20 cases."""
_MESSAGE_SECONDS = 40e-6
"""What MPI and the kernels take for a message between hosts besides the network (`benchmarks/hosts_all_reduce`)."""


@dataclass(frozen=True, slots=True)
class Network:
    """Between any two hosts, in both directions at once."""

    round_trip_seconds: float
    """Of a small message, there and back."""
    bytes_per_second: float
    """Of what programs send, without the headers of packets."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, and between which two the true one is in about nine of ten jobs like the measured ones."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of a job."""

    workers: int
    hosts: int
    present: int
    """Workers whose steps were measured at once; fewer than those of a host, if this one has fewer cores."""
    num_rows: int | None
    """Of a global batch; None: not known."""
    seconds: Estimate
    """Of a step."""
    base_workers: int
    """Of the smallest job of the same script."""
    speedup: Estimate
    """How many times as many rows a second as that job."""
    efficiency: Estimate
    """`speedup` over how many times as many workers; 1 is ideal."""
    shares: Mapping[str, float]
    """What a step is spent with, from 0 to 1 each."""

    @property
    def limit(self) -> str:
        """What takes most of a step, besides computing, if that is worth a word; else `COMPUTE`."""
        others = {name: share for name, share in self.shares.items() if name != COMPUTE}
        most = max(others, key=lambda name: others[name])
        return most if others[most] >= min(self.shares[COMPUTE], _NOTABLE) else COMPUTE


_NOTABLE = 0.2
"""A share of a step that is worth a word."""


def hosts_of(workers: int, hosts: int) -> tuple[int, int]:
    """How many of the hosts a job uses, and how many workers the fullest of them has.

    >>> hosts_of(1, 2), hosts_of(8, 2), hosts_of(3, 2)
    ((1, 1), (2, 4), (2, 2))
    """
    used = min(workers, hosts)
    return used, -(-workers // used)


def predictions(
    measured: Sequence[StepSamples], hosts: int, network: Network | None, seed: int = 0
) -> tuple[Prediction, ...]:
    """One of each measured job, in the same order.

    Args:
        measured: Of different numbers of workers, with the same script.
        hosts: On how many hosts the jobs are to run.
        network: Between these; None: there is one host.
        seed: Of the drawings.
    """
    drawn = [_drawn(one, hosts, network, random.Random(f"{seed} {number}")) for number, one in enumerate(measured)]
    base = min(range(len(measured)), key=lambda place: measured[place].workers)
    return tuple(
        _prediction(one, of_one, measured[base], drawn[base], hosts)
        for one, of_one in zip(measured, drawn, strict=True)
    )


def expected_largest(values: Sequence[float], number: int) -> float:
    """The expected value of the largest of some drawings out of equally likely values.

    >>> expected_largest([1.0, 2.0], 1), expected_largest([1.0, 2.0], 2)
    (1.5, 1.75)
    """
    count, below = len(values), 0.0
    total = 0.0
    for place, value in enumerate(sorted(values), 1):
        up_to = (place / count) ** number
        total += value * (up_to - below)
        below = up_to
    return total


def network_seconds(one: StepSamples, hosts: int, network: Network) -> float:
    """How long the messages of a step are between hosts.

    An all-reduce goes the shorter of two ways: few crossings with all bytes, or twice as many with the fewest bytes.

    Args:
        one: Has the messages.
        hosts: How many.
        network: Between them.
    """
    if hosts < 2 or not one.num_messages:
        return 0.0
    crossings = math.ceil(math.log2(hosts))
    once = one.num_messages * (network.round_trip_seconds / 2 + _MESSAGE_SECONDS)
    whole = one.reduced_bytes / network.bytes_per_second
    reducing = min(crossings * (once + whole), 2 * crossings * once + 2 * (hosts - 1) / hosts * whole)
    others = one.gathered_bytes * one.workers * (hosts - 1) / hosts / network.bytes_per_second
    return reducing + others


@dataclass(frozen=True, slots=True)
class _HostStep:
    """A step of the workers of a host, in seconds."""

    before_messages: float
    """Of the slowest."""
    compute: float
    """Of the slowest."""
    messages: float
    """Ranks leave a message together: the one that came last stays the shortest, and that is the message itself."""
    means: tuple[float, float, float, float]
    """Over the workers: input, compute, update, between steps."""


def _host_step(ranks: Sequence[Parts]) -> _HostStep:
    return _HostStep(
        max(rank.before_messages for rank in ranks),
        max(rank.compute for rank in ranks),
        min(rank.first_message for rank in ranks) + min(rank.messages for rank in ranks),
        (
            fmean(rank.input for rank in ranks),
            fmean(rank.compute for rank in ranks),
            fmean(rank.update for rank in ranks),
            fmean(rank.between for rank in ranks),
        ),
    )


def _drawn(one: StepSamples, hosts: int, network: Network | None, chance: random.Random) -> list[dict[str, float]]:
    """Seconds of each part of a step: first as measured, then of each drawing."""
    used, on_host = hosts_of(one.workers, hosts)
    crossing = 0.0 if network is None else network_seconds(one, used, network)
    more = _more_at_once(on_host, one.present)
    num_hosts = -(-one.workers // one.present)
    steps = [_host_step(step) for step in one.steps]
    found = [_parts(steps, num_hosts, more, crossing)]
    for _ in range(_NUM_DRAWINGS):
        again: list[_HostStep] = []
        while len(again) < len(steps):
            begin = chance.randrange(len(steps))
            again += [steps[(begin + further) % len(steps)] for further in range(_BLOCK)]
        found.append(_parts(again[: len(steps)], num_hosts, more, crossing * math.exp(chance.gauss(0, _MODEL_SPREAD))))
    return found


def _parts(steps: Sequence[_HostStep], num_hosts: int, more: float, crossing: float) -> dict[str, float]:
    before = expected_largest([step.before_messages for step in steps], num_hosts)
    compute = expected_largest([step.compute for step in steps], num_hosts)
    names = INPUT, COMPUTE, UPDATE, BETWEEN
    means = {name: fmean(step.means[place] for step in steps) for place, name in enumerate(names)}
    slowest = max(0.0, before + compute - sum(means.values()))
    means[INPUT] = max(0.0, means[INPUT] - crossing)  # the next batch is made while messages are under way
    return {**means, MESSAGES: fmean(step.messages for step in steps) * more + crossing, SLOWEST: slowest}


def _more_at_once(on_host: int, present: int) -> float:
    """How many times as much each worker of a host moves in an all-reduce among `on_host` as among `present`."""
    if present < 2:
        return 1.0
    return (1 - 1 / on_host) / (1 - 1 / present)


def _prediction(
    one: StepSamples,
    drawn: Sequence[dict[str, float]],
    base: StepSamples,
    drawn_of_base: Sequence[dict[str, float]],
    hosts: int,
) -> Prediction:
    rows = one.num_rows / base.num_rows if one.num_rows and base.num_rows else 1.0
    times, base_times = ([sum(parts.values()) for parts in each] for each in (drawn, drawn_of_base))
    speedups = [rows * before / max(now, _LEAST) for before, now in zip(base_times, times, strict=True)]
    return Prediction(
        one.workers,
        hosts_of(one.workers, hosts)[0],
        one.present,
        one.num_rows,
        _estimate(times),
        base.workers,
        _estimate(speedups),
        _estimate([speedup * base.workers / one.workers for speedup in speedups]),
        {name: seconds / max(times[0], _LEAST) for name, seconds in drawn[0].items()},
    )


def _estimate(values: Sequence[float]) -> Estimate:
    """Of what was measured, first, and the drawings."""
    first, others = values[0], sorted(values[1:])
    outside = round((1 - _DRAWN_SHARE) / 2 * len(others))
    low, high = others[outside], others[-1 - outside]
    # Drawings miss the slow steps that nobody has measured: as far as they lie below, the truth may lie above.
    return Estimate(first, min(first, low, first**2 / max(high, _LEAST)), max(first, high, first**2 / max(low, _LEAST)))


def advice(series: Sequence[Sequence[Prediction]]) -> list[str]:
    """What to do, in sentences.

    Args:
        series: Each of different numbers of workers, with the same size of batch if several were asked for.
    """
    best = max((one for each in series for one in each), key=_rate)
    same = next(each for each in series if best in each)
    on_hosts = f" on {best.hosts} hosts" if best.hosts > 1 else ""
    batch = f" with a global batch of {best.num_rows} rows" if len(series) > 1 else ""
    told = f"Fastest: {_workers(best.workers)}{on_hosts}{batch}"
    if best.workers != best.base_workers:
        told += f", {best.speedup.value:.1f} times as fast as {_workers(best.base_workers)}"
        told += f" (efficiency {best.efficiency.value:.0%})"
    more = min((one for one in same if one.workers > best.workers), key=lambda one: one.workers, default=best)
    at = "" if more is best else f"at {_workers(more.workers)} "
    reason = f"{at}{_HELP[more.limit]}"
    sentences = [f"{told}. {reason[0].upper()}{reason[1:]}."]
    good = max((one.workers for one in same if one.efficiency.value >= _GOOD), default=best.workers)
    if best.base_workers < good < best.workers:
        sentences.append(f"Up to {_workers(good)}, efficiency is {_GOOD:.0%} or more.")
    if short := next((one for each in series for one in each if one.present * one.hosts < one.workers), None):
        sentences.append(
            f"This host runs {_workers(short.present)} at once: what more of them on one host take from each other "
            "(memory, caches) is not in these numbers."
        )
    return sentences


def _rate(one: Prediction) -> float:
    return (one.num_rows or 1) / one.seconds.value


_GOOD = 0.8

_HELP = {
    COMPUTE: "computing takes most of a step, which more workers share",
    MESSAGES: "messages limit it: a larger global batch or a faster network helps, more workers do not",
    UPDATE: "the update limits it, which each worker makes as a whole: a larger global batch helps",
    INPUT: "input limits it: see `paceline data profile`",
    SLOWEST: "waiting for the slowest worker limits it: a larger global batch, or quieter hosts, help",
    BETWEEN: "Keras's loop between steps limits it: a larger global batch or `steps_per_execution` helps",
}


def _workers(number: int) -> str:
    return f"{number} worker{'' if number == 1 else 's'}"
