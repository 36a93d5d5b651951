"""Runs a job of plain Python scripts: ``python plain_job.py '{"num_workers": 2, …}' script.py [args]``.

A program of its own, so that tests can interrupt and kill a launcher.
"""

import json
import os
import signal
import sys
from pathlib import Path

from paceline.cluster.job_options import JobOptions
from paceline.cluster.spec import Policy, Role
from paceline.launcher.generations import generation
from paceline.launcher.job import JobDescription
from paceline.launcher.running import run

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    if options.pop("ignore_hangup", False):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if (grace_seconds := options.pop("grace_seconds", None)) is not None:
        generation.GRACE_SECONDS = generation.LIMIT_SECONDS = grace_seconds
    num_workers = options.pop("num_workers")
    if "log_dir" in options:
        options["log_dir"] = Path(options["log_dir"])
    named = [(name, Policy(policy)) for name, policy in options.pop("roles", ())]
    roles = tuple(Role(name, policy, in_world=name == "chief") for name, policy in named)
    command = (sys.executable, *sys.argv[2:])
    job = JobDescription(
        command=command,
        num_workers=num_workers,
        environment=dict(os.environ),
        roles=roles,
        options=JobOptions(**options),
    )
    sys.exit(run(job))
