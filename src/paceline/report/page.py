"""``report.html``: one page that loads nothing, with all that is known of a job."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2

from paceline.report import charts
from paceline.report.advice import advice_lines
from paceline.report.kept_job import Event, KeptJob
from paceline.report.summary import HOSTS_FROM, all_waiting, groups_of, heat_maps, means, seconds_by_rank
from paceline.report.trace import end_text, error_text

_TEMPLATE = Path(__file__).with_name("page.html")
_MAX_METRICS = 12
_MAX_HAPPENED = 200
_HEAT_COLUMNS = 240


def page_of(job: KeptJob) -> str:
    """The page, as HTML."""
    by_rank = seconds_by_rank(job)
    groups = groups_of(job, by_rank)
    waiting = all_waiting(job)
    waited, blamed = heat_maps(waiting, groups, _HEAT_COLUMNS) if waiting else (None, None)
    origin = job.about.monotonic_ns
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE.read_text("utf-8"))
    return str(
        template.render(
            about=job.about,
            began=time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(job.about.wall_ns / 1e9)),
            is_running=not any(event["event"] == "JobEnded" for event in job.events),
            missing=job.missing(),
            account=list(account_of(job.events)),
            advice=advice_lines(job.events),
            curves=[charts.curves(name, lines) for name, lines in metrics_of(job.events).items()],
            group="rank" if len(by_rank) < HOSTS_FROM else "host",
            bars=charts.bars(means(by_rank, groups)) if by_rank else "",
            waited=charts.heat(waited, origin) if waited is not None else "",
            blamed=charts.heat(blamed, origin) if blamed is not None else "",
            hosts=list(_hosts(job)),
            happened=list(_happened(job)),
        )
    )


def metrics_of(events: list[Event]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """By metric, its values in training and validation: step and value."""
    metrics: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for event in events:
        if event["event"] == "EpochEnded":
            for name, value in event["logs"].items():
                metric = name.removeprefix("val_")
                label = "validation" if name.startswith("val_") else "training"
                if value is not None and (metric in metrics or len(metrics) < _MAX_METRICS):
                    metrics.setdefault(metric, {}).setdefault(label, []).append((event["step"], value))
    return metrics


def account_of(events: list[Event]) -> Iterator[tuple[str, str]]:
    """What the job has cost, in words."""
    for event in events:
        if event["event"] == "JobEnded":
            yield "took", f"{event['seconds']:.1f} s; exit code {event['exit_code']}"
            rate = "" if event["steps_per_second"] is None else f", {event['steps_per_second']:.3g} a second"
            yield "steps", f"{event['num_steps']}{rate}"
            if event["num_restarts"]:
                again = f"{event['num_repeated_steps']} steps done again, {event['lost_seconds']:.1f} s lost"
                yield "restarts", f"{event['num_restarts']}: {again}"
            yield "goodput", f"{100 * event['goodput']:.1f} %"
    accounts = [event for event in events if event["event"] == "JobAccount"]
    if accounts:
        yield from _named_numbers(accounts[-1])


def _named_numbers(event: Event) -> Iterator[tuple[str, str]]:
    for name, value in event.items():
        if name in ("event", "time") or isinstance(value, bool):
            continue
        if isinstance(value, dict):
            yield from _named_numbers(value)
        elif isinstance(value, float):
            unit = " s" if name.endswith("seconds") else ""
            yield name.removesuffix("_seconds").replace("_", " "), f"{value:.4g}{unit}"
        elif isinstance(value, int | str) and value != "":
            yield name.replace("_", " "), str(value)


def _hosts(job: KeptJob) -> Iterator[tuple[str, str, str]]:
    for host in job.hosts():
        ranks = sorted({file.header.rank for file in job.of("steps") if file.header.host == host})
        yield host, ", ".join(map(str, ranks)), error_text(job.error_of(host))


def _happened(job: KeptJob) -> Iterator[tuple[float, str]]:
    told = [(event["time"] - job.about.monotonic_ns / 1e9, text) for event in job.events if (text := _text_of(event))]
    yield from told[:_MAX_HAPPENED]
    if len(told) > _MAX_HAPPENED:
        yield told[-1][0], f"and {len(told) - _MAX_HAPPENED} more, in the timeline"


def _text_of(event: Event) -> str:
    match event:
        case {"event": "RankEnded", "exit_code": code} if code:
            who = event.get("process") or f"rank {event.get('rank')}"
            said = f": {event['exception']}" if event["exception"] else ""
            return f"{who} {end_text(code)}{said}"
        case {"event": "HostLost", "host": host, "reason": reason}:
            return f"host {host} {reason}"
        case {"event": "GenerationBegan", "generation": number, "num_workers": workers}:
            return f"generation {number} begins with {workers} ranks"
        case {"event": "GenerationEnded", "reason": reason} if reason:
            return f"the generation ends: {reason}"
        case {"event": "Recovered", "step": step, "num_lost_steps": lost, "lost_seconds": seconds}:
            return f"training goes on from step {step}: {lost} steps and {seconds:.1f} s lost"
        case {"event": "StragglerFound", "text": text}:
            return str(text).removesuffix(" [straggler]")
        case {"event": "SnapshotTaken", "step": step, "bytes": size}:
            return f"snapshot of step {step}, {size / 1e6:.3g} MB"
        case {"event": "SnapshotFailed" | "RecordsFailed" | "FaultInjected" | "PreemptionBegan" | "HangFound"}:
            return _plain(event)
    return ""


def _plain(event: Event) -> str:
    words: dict[str, Any] = {name: value for name, value in event.items() if name not in ("event", "time") and value}
    return f"{event['event']} {', '.join(f'{name} {value}' for name, value in words.items())}"
