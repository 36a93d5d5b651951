"""Runs the cases of `files/` as a worker, or alone and in plain Keras for comparison.

    paceline run --workers 2 files_jobs.py DIRECTORY        python files_jobs.py DIRECTORY CASE …
    paceline run --workers 2 files_jobs.py DIRECTORY without CASE …

Writes DIRECTORY/<case>.rank<r>.json. `test_files.py` compares.
"""

import json
import os
import sys
from pathlib import Path

from files import of_callbacks, of_models, of_saved_models, of_training_checkpoints  # noqa: F401  # they register their cases
from files.ingredients import CASES, RANK


def main() -> None:
    directory = Path(sys.argv[1])
    named = sys.argv[2:]
    cases = CASES.keys() - {*named[1:]} if named[:1] == ["without"] else named or CASES
    # First what a process beside this one reads, which starts at the same time.
    for name in sorted(cases, key=lambda name: ("reader" not in name, name)):
        own = directory / name
        own.mkdir(exist_ok=True)
        told = CASES[name](own)
        (directory / f"{name}.rank{RANK}.json").write_text(json.dumps(told))
        print(f"{name} done", flush=True)
    private = os.environ.get("PACELINE_JOB_DIRECTORY")
    if private is not None:
        (directory / f"private.rank{RANK}.json").write_text(json.dumps([private, Path(private).is_dir()]))
    assert ("paceline" in sys.modules) == (private is not None)


if __name__ == "__main__":
    main()
