"""``--dry-run``: what a job would start."""

import shlex
from collections import Counter

from paceline.cluster.control_groups import core_quota
from paceline.launcher.generations.report import counted, start_text
from paceline.launcher.job import JobDescription
from paceline.launcher.preflight import BYTES_OF_WORKER, free_bytes, gigabytes
from paceline.launcher.workers.host_resources import share_cores, usable_cores, visible_gpus

_SHOWN_OTHERWISE = frozenset(["workers", "dry_run", "env"])


def dry_run_text(job: JobDescription) -> str:
    """What a job would start, for ``--dry-run``."""
    types = Counter(task.type for task, _ in job.cast(job.num_workers))
    lines = [("processes", ", ".join(f"{number} {type_}" for type_, number in types.items()))]
    if job.hosts:
        lines += [("host", f"{host.name}, {counted(host.slots, 'slot')}") for host in job.hosts]
        lines.append(("reached by", shlex.join(job.ssh.command if job.ssh else ("ssh",))))
    else:
        cores = share_cores(usable_cores(), job.num_workers, core_quota()) if job.options.bind == "cores" else None
        gpus = visible_gpus(job.environment)
        lines.append(("place", start_text(job.num_workers, cores, len(gpus), "").rpartition(";")[0]))
        needed = gigabytes(types.total() * BYTES_OF_WORKER)
        lines.append(("memory", f"about {needed} before models and data; {gigabytes(free_bytes())} are free"))
    if job.nodes is not None:
        node = f"{job.nodes.node_rank} of {job.nodes.num_nodes}, which meet at {job.nodes.rendezvous}"
        lines.append(("node", f"{node}; each starts its own workers"))
    given = [(one, value) for one, value in job.options.given_options() if one.attribute not in _SHOWN_OTHERWISE]
    told = [f"{one.flag} {one.to_text(value)}" for one, value in given]
    lines += [("options", ", ".join(told))] if told else []
    own = [f"{name}={job.environment[name]}" for name in job.forwarded]
    lines += [("variables", ", ".join(own))] if own else []
    lines.append(("command", shlex.join(job.command)))
    return "\n".join(["paceline: dry run: nothing is started", *(f"  {word:<10} {text}" for word, text in lines)])
