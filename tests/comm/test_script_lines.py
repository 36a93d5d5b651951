"""Ranks that meet in different calls are told the line of the script of each."""

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from paceline.observe.frames import script_line
from programs import run_workers

SCRIPT = """
import numpy as np
import paceline
from paceline.comm.world import current_world
from paceline.errors import DesynchronizedError

group = current_world().group

def adds():
    group.all_reduce([np.zeros(3)])

def waits():
    group.barrier()

try:
    if paceline.rank() == 1:
        waits()
    else:
        adds()
except DesynchronizedError as error:
    print(paceline.rank(), "told:", error)
group.barrier()
if paceline.rank() != 0:
    waits()
"""


@pytest.mark.processes
def test_each_ranks_line_is_told(tmp_path: Path) -> None:
    """It said "rank 1 is in barrier, rank 0 is in all_reduce", and not where in a script of 500 lines that was."""
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = run_workers(3, "script.py", folder=tmp_path)
    told = [line for line in ended.output.splitlines() if " told: " in line]
    assert len(told) == 3, ended.output
    for line in told:
        assert "Lines of the script: rank 0, 2: script.py:10 in adds; rank 1: script.py:13 in waits." in line
        assert line.endswith(" [collectives-differ]")
    assert ended.code == 1
    last = ended.output.splitlines()[-1]
    assert "Lines of the script: rank 0: after its end; rank 1, 2: script.py:13 in waits." in last, ended.output


def test_an_installed_module_that_is_run_is_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """`paceline run -m mypackage.train` was told that its ranks were after the end of the script."""
    program = ModuleType("__main__")
    program.__file__ = str(Path(sysconfig.get_path("purelib"), "mypackage", "train.py"))
    program.__dict__["script_line"] = script_line
    monkeypatch.setitem(sys.modules, "__main__", program)
    code = compile("def main():\n    return script_line()\nfound = main()", program.__file__, "exec")
    exec(code, vars(program))
    assert vars(program)["found"] == "train.py:2 in main"
