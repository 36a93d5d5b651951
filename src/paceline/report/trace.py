"""The timeline of all ranks: ``trace.json.gz``, in the format of Chrome's traces, which ui.perfetto.dev shows. Pure.

    a process for each host, with a thread for each rank     its steps, and within them phases
    a process for each rank of ``--timeline``                TensorFlow's operations, by thread
    a process for the job                                    epochs, restarts, the loss of hosts

Times are whole microseconds since the job's beginning, each rounded down by itself: what lies within a step lies within
it still. A viewer drops slices that cross, and fractions would be rounded there once more.
"""

import gzip
import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from paceline.observe.step_files import StepFile
from paceline.report.host_clocks import HostClock
from paceline.report.kept_job import Event, KeptJob
from paceline.report.step_spans import Step, began_of, steps_of, until

_JOB = 1
"""The process of the job. A viewer takes 0 for the idle process of a kernel."""
_MAX_THREADS = 1_000_000
"""Of a process: a viewer wants numbers of threads that no other process has."""
_WORDS = {"count": "first message", "whole": "input and compute", "snapshot": "copy for a snapshot"}
_OF_JOB = {
    "GenerationBegan": "generation {generation} begins",
    "EpochEnded": "epoch {epoch} ended",
    "HostLost": "host {host} is lost",
    "HangFound": "no step for {seconds:.0f} s",
    "StopBegan": "workers are ended",
    "Recovered": "goes on from step {step}",
    "PreemptionBegan": "told to stop",
    "JobEnded": "job ended ({exit_code})",
}
_OF_RANK = {
    "SnapshotTaken": "snapshot of step {step}",
    "SnapshotFailed": "snapshot of step {step} failed",
    "FaultInjected": "fault {fault}",
    "WorkerStarted": "process {pid} starts",
}


def write_trace(job: KeptJob, path: Path) -> None:
    """Writes the timeline. Raises: OSError: it cannot."""
    partial = path.with_name(f".{path.name}")
    try:
        with gzip.open(partial, "wt", compresslevel=3, encoding="utf-8") as file:
            told = {"job": job.about.job_id, "clocks": {host: error_text(job.error_of(host)) for host in job.hosts()}}
            file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(told)},"traceEvents":[\n')
            for number, line in enumerate(trace_lines(job)):
                file.write(f",\n{line}" if number else line)
            file.write("\n]}\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def error_text(error_ns: int | None) -> str:
    """How far times of a host may be wrong beside the launcher's, in words.

    >>> error_text(250_000), error_text(None), error_text(0)
    ('±0.25 ms', 'not measured', "the launcher's")
    """
    if error_ns is None:
        return "not measured"
    return f"±{error_ns / 1e6:.2g} ms" if error_ns else "the launcher's"


def trace_lines(job: KeptJob) -> Iterator[str]:
    """The objects of the timeline, each as JSON."""
    began_at = job.about.monotonic_ns
    processes = {host: number for number, host in enumerate(job.hosts(), _JOB + 1)}
    yield _name("process_name", _JOB, _JOB, f"job {job.about.job_id}")
    for host, process in processes.items():
        yield _name("process_name", process, process, f"host {host} (clock: {error_text(job.error_of(host))})")
    tracks: dict[int, tuple[int, int]] = {}
    for file in job.of("steps"):
        rank = file.header.rank
        where = (processes[file.header.host], rank + 1)
        if tracks.get(rank) != where:
            yield _name("thread_name", *where, f"rank {rank}")
        tracks[rank] = where
        clock = job.clock_of(file)
        for block in until(job.blocks_beside(file), began_of(file)):
            times = _microseconds(clock, began_at, block.began, block.ended)
            yield from _slice(where, f"steps {block.first_step}–{block.last_step}", *times)
        for step in steps_of(file):
            yield from _step_lines(step, where, clock, began_at)
    for process, file in enumerate(job.of("operations"), _JOB + 1 + len(processes)):
        yield from _operation_lines(file, process, job.clock_of(file), began_at)
    for event in job.events:
        if (instant := _instant(event, tracks, began_at)) is not None:
            yield instant


def _step_lines(step: Step, where: tuple[int, int], clock: HostClock, began_at: int) -> Iterator[str]:
    times = _microseconds(clock, began_at, step.began, *(span.ended for span in step.spans))
    if step.is_step:
        name = "step" if step.number is None else f"step {step.number}"
        yield from _slice(where, name, times[0], times[-1])
    since = times[0]
    for span, began, ended in zip(
        step.spans, _microseconds(clock, began_at, *(span.began for span in step.spans)), times[1:], strict=True
    ):
        yield from _slice(where, _WORDS.get(span.phase, span.phase), max(began, since), ended)
        since = ended


def _operation_lines(file: StepFile, process: int, clock: HostClock, began_at: int) -> Iterator[str]:
    """A track for each thread of a rank."""
    names = file.header.names
    yield _name("process_name", process, process, f"rank {file.header.rank}: TensorFlow's operations")
    by_thread: dict[int, list[tuple[int, int, int]]] = {}
    for thread, name, began, ended in file.rows():
        times = _microseconds(clock, began_at, began, ended)
        by_thread.setdefault(thread, []).append((times[0], -times[1], name))
    for number, (thread, operations) in enumerate(by_thread.items()):
        where = (process, _MAX_THREADS * process + number)
        yield _name("thread_name", *where, names[thread])
        open_until: list[int] = []
        for began, negative_end, name in sorted(operations):
            while open_until and open_until[-1] <= began:
                open_until.pop()
            if not open_until or -negative_end <= open_until[-1]:  # else a viewer drops it
                open_until.append(-negative_end)
                yield from _slice(where, names[name], began, -negative_end)


def _microseconds(clock: HostClock, began_at: int, *times: int) -> list[int]:
    return [(clock.here(time) - began_at) // 1000 for time in times]


def _slice(where: tuple[int, int], name: str, began: int, ended: int) -> Iterator[str]:
    if ended > began:  # else too short for a place in the timeline
        process, thread = where
        times = f'"ts":{began},"dur":{ended - began}'
        yield f'{{"ph":"X","pid":{process},"tid":{thread},{times},"name":{json.dumps(name)}}}'


def _name(what: str, process: int, thread: int, name: str) -> str:
    return json.dumps({"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}})


def _instant(event: Event, tracks: Mapping[int, tuple[int, int]], began_at: int) -> str | None:
    kind, rank = event["event"], event.get("rank")
    at_rank = rank
    if kind == "RankEnded" and event["exit_code"]:
        who = "" if rank is not None else f"{event.get('process', 'a process')} "
        text = who + end_text(event["exit_code"])
    elif kind == "StragglerFound":
        text, at_rank = "straggler", event["straggler"]
    elif kind in _OF_RANK:
        text = _OF_RANK[kind].format(**event)
    elif kind in _OF_JOB and rank in (None, 0):
        text, at_rank = _OF_JOB[kind].format(**event), None
    else:
        return None
    process, thread = tracks.get(at_rank, (_JOB, _JOB)) if at_rank is not None else (_JOB, _JOB)
    time = (round(event["time"] * 1e9) - began_at) // 1000
    told = {name: value for name, value in event.items() if name not in ("event", "time")}
    scope = "g" if at_rank is None else "t"
    return json.dumps({"ph": "i", "s": scope, "pid": process, "tid": thread, "ts": time, "name": text, "args": told})


def end_text(exit_code: int) -> str:
    """How a process ended.

    >>> end_text(-9), end_text(1)
    ('killed (SIGKILL)', 'failed (1)')
    """
    if exit_code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"killed ({names.get(-exit_code, f'signal {-exit_code}')})"
    return f"failed ({exit_code})"
