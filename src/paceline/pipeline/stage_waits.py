"""How long the stages of a pipeline wait for each other (the *bubble*), beside what the plan expects; pure."""

from paceline.comm.step_account import APART, Totals
from paceline.comm.step_clock import Phase
from paceline.plan.simulation import Timeline


class StageWaits:
    """Of one model.

    Args:
        num_stages: How many there are.
        replicas: Of each stage; they are ranks that follow each other.
        expected: How a step is expected to go; None: nobody has measured the layers.
    """

    def __init__(self, num_stages: int, replicas: int, expected: Timeline | None) -> None:
        self._num_stages, self._replicas, self._expected = num_stages, replicas, expected

    def told(self, totals: Totals) -> str:
        """The end of a line about steps; empty: these are none of all stages."""
        if self._num_stages == 1 or totals.num_ranks != self._num_stages * self._replicas or totals.num_steps == 0:
            return ""
        waited = totals.own[:, Phase.OTHERS]
        whole = totals.own.sum(1) - totals.own[:, [*APART]].sum(1)
        shares = (waited / whole).reshape(self._num_stages, self._replicas).mean(1)
        told = "; stages wait " + ", ".join(f"{100 * share:.0f} %" for share in shares)
        if self._expected is None:
            return told
        return told + " (expected: " + ", ".join(f"{100 * share:.0f} %" for share in self._expected.waits) + ")"
