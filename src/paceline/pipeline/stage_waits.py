"""How long the stages of a pipeline wait for each other (the *bubble*), beside what the plan expects; pure."""

from collections.abc import Iterable

from paceline.comm.step_account import APART, Totals
from paceline.comm.step_clock import Phase
from paceline.plan.simulation import Timeline


def waits_text(totals: Totals, num_stages: int, replicas: int, expected: Timeline | None) -> str:
    """The end of a line about steps; empty: there is one stage, or not all have told.

    Args:
        totals: The time of some steps.
        num_stages: How many there are.
        replicas: Of each stage; they are ranks that follow each other.
        expected: How a step is expected to go; None: nobody has measured the layers.
    """
    if num_stages == 1 or totals.num_ranks != num_stages * replicas or totals.num_steps == 0:
        return ""
    waited = totals.own[:, Phase.OTHERS]
    whole = totals.own.sum(1) - totals.own[:, [*APART]].sum(1)
    told = "; stages wait " + _percents((waited / whole).reshape(num_stages, replicas).mean(1))
    return told if expected is None else f"{told} (expected: {_percents(expected.waits)})"


def _percents(shares: Iterable[float]) -> str:
    return ", ".join(f"{100 * share:.0f} %" for share in shares)
