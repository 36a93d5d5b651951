"""What to do about the time of steps, in words; pure. docs/observe.md has the same table."""

from collections.abc import Iterator, Mapping, Sequence

from paceline.report.kept_job import Event

ADVICE = {
    "input": "`paceline data profile`, prefetch, a cache, fewer maps on all rows",
    "compute": "more workers, a larger batch",
    "waiting": "the line that names rank N says why; for each other: other load on the machines, rows of different "
    "length",
    "waiting for others": "more micro-batches, another schedule (`paceline plan`); with parameter servers more workers",
    "messages": "a larger batch, a faster network, `--batch-statistics local`",
    "callbacks": "fewer of them in each step",
    "snapshots": "`--snapshot-every`",
    "between steps": "`steps_per_execution`",
}
"""By what a step is spent with."""

_MUCH = 0.1
"""Of a step, but for what a step is there for."""
_EXPECTED = {"compute": 0.95}


def advice_lines(events: Sequence[Event]) -> list[str]:
    """What is much in the steps of this job, and what helps.

    >>> advice_lines([])
    ['Nothing is known of the time of steps: the chief has told of none.']
    """
    timed = [event for event in events if event["event"] == "StepsTimed"]
    if not timed:
        return ["Nothing is known of the time of steps: the chief has told of none."]
    whole = [event for event in timed if event["is_whole_fit"]] or timed
    longest = max(whole, key=lambda event: event["num_steps"] * event["step_seconds"])
    lines = [*_of_shares(longest["shares"], longest["waits_for"]), *_of_stragglers(events)]
    return lines or [f"Nothing stands out in {longest['num_steps']} steps: {longest['text']}."]


def _of_shares(shares: Mapping[str, float], waits_for: int | None) -> Iterator[str]:
    for word, share in sorted(shares.items(), key=lambda item: -item[1]):
        if word in ADVICE and share >= _EXPECTED.get(word, _MUCH):
            whom = "" if word != "waiting" else " for each other" if waits_for is None else f" for rank {waits_for}"
            yield f"{word}{whom}: {100 * share:.0f} % of each step. What helps: {ADVICE[word]}."


def _of_stragglers(events: Sequence[Event]) -> Iterator[str]:
    found = [event for event in events if event["event"] == "StragglerFound"]
    for rank in dict.fromkeys(event["straggler"] for event in found):
        last = [event for event in found if event["straggler"] == rank][-1]
        yield f"{last['text'].removesuffix(' [straggler]')}. What helps: repair that host, or `--shares`."
