"""What a divided step does besides computing happens once, on the chief, with the whole batch."""

from pathlib import Path

import numpy as np
import pytest
from effects_jobs import summaries

from parity_runs import RELATIVE_FLOAT64
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("effects_jobs.py")


@pytest.mark.parametrize("case", ["trained", pytest.param("for the chief", marks=pytest.mark.proof)])
def test_a_step_prints_calls_python_and_writes_summaries_once(worlds: Worlds, tmp_path: Path, case: str) -> None:
    one = worlds.plain.run(SCRIPT, "trained", str(tmp_path / "one"))
    several = worlds.of(2).run(SCRIPT, case, str(tmp_path / "several"))
    [alone], [chief, follower] = one.told, several.told
    for rank in (chief, follower):
        np.testing.assert_allclose(rank["numbers"], alone["numbers"], rtol=RELATIVE_FLOAT64, atol=1e-12)
    assert chief["calls"] == alone["calls"]
    assert follower["calls"] == []
    printed = [
        [line[line.index("printed rows:") :] for line in run.output.splitlines() if "printed rows:" in line]
        for run in (one, several)
    ]
    assert printed[0] == printed[1] == ["printed rows: 7", "printed rows: 7", "printed rows: 3"] * 3
    expected, found = summaries(tmp_path / "one"), summaries(tmp_path / "several")
    assert [tag for tag, _ in found] == [tag for tag, _ in expected]
    assert len(found) == 6  # `evaluate` alone has no callback
    np.testing.assert_allclose([value for _, value in found], [value for _, value in expected], rtol=1e-6)


def test_an_exception_in_python_is_raised_on_all_ranks(worlds: Worlds, tmp_path: Path) -> None:
    """The other ranks would wait for what the chief's Python returns."""
    [alone] = worlds.plain.run(SCRIPT, "raised", str(tmp_path / "one")).told
    case = worlds.of(2).run(SCRIPT, "raised", str(tmp_path / "several"))
    for told in (alone, *case.told):
        assert "LookupError: no third call" in told["raised"]
    np.testing.assert_allclose(case.told[0]["numbers"], alone["numbers"], rtol=RELATIVE_FLOAT64, atol=1e-12)
    np.testing.assert_allclose(case.told[1]["numbers"], case.told[0]["numbers"], rtol=0, atol=0)
    [again] = {str(told["calls"]) for told in worlds.of(2).run(SCRIPT, "raised", str(tmp_path)).told[:1]}
    assert again == str(alone["calls"]), "the ranks still meet in their messages"
