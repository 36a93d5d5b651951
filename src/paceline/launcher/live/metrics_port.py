"""``--metrics-port``: what a job does now in Prometheus's text format, over HTTP, by `prometheus_client`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from paceline.launcher.live.job_status import JobStatus

_LOOPBACK = "127.0.0.1"


def place_of(text: str) -> tuple[str, int]:
    """Host and port of the option's value.

    >>> place_of("9100"), place_of("10.0.0.1:9100"), place_of("[::1]:9100")
    (('127.0.0.1', 9100), ('10.0.0.1', 9100), ('::1', 9100))
    """
    host, _, port = text.rpartition(":")
    return host.strip("[]") or _LOOPBACK, int(port)


class MetricsPort:
    """Answers while it lasts; a context manager. What goes wrong costs one line, and not the job.

    Args:
        text: The option's value: a port on loopback, or ``HOST:PORT``.
        status: What the job does; called in a thread.
        tell: Called with a line for the user.
    """

    def __init__(self, text: str, status: Callable[[], JobStatus], tell: Callable[[str], None]) -> None:
        self._text = text
        self._status = status
        self._tell = tell
        self._served: tuple[Any, Any] | None = None

    def __enter__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            self._tell(
                f"--metrics-port {self._text} is not opened, and the job continues: prometheus_client is not "
                "installed. Fix: pip install 'paceline[observe]' [metrics-port]"
            )
            return
        try:
            host, port = place_of(self._text)
            registry = CollectorRegistry()
            registry.register(self)
            self._served = start_http_server(port, host, registry)
        except Exception as fault:  # a port that is taken, a host that is none, a library of another age
            self._tell(
                f"--metrics-port {self._text} cannot be opened, and the job continues: {fault}. Fix: choose a port "
                "that is free, and an address of this host. [metrics-port]"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._served is not None:
            server, thread = self._served
            server.shutdown()
            server.server_close()
            thread.join()

    def describe(self) -> list[Any]:
        """Asked by the library, so that it collects nothing before somebody asks."""
        return []

    def collect(self) -> Iterator[Any]:
        """Asked by the library: the families of metrics, now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
        for one in families_of(self._status()):
            family = kinds[one.kind](f"paceline_{one.name}", one.text, labels=one.labels)
            for labels, value in one.values.items():
                if value is not None:
                    family.add_metric(labels, value)
            yield family


@dataclass(frozen=True, slots=True)
class Family:
    """Values under one name."""

    kind: str
    """``gauge`` or ``counter``."""
    name: str
    text: str
    values: dict[tuple[str, ...], float | None]
    """By their labels; None: not known."""
    labels: tuple[str, ...] = ()
    """The names of these."""


def families_of(status: JobStatus) -> list[Family]:
    """The job as families of metrics. Pure."""
    times, snapshot = status.step_times, status.snapshot
    metrics, shares = status.epoch_ended.logs if status.epoch_ended else {}, times.shares if times else {}
    single: list[tuple[str, str, str, float | None]] = [
        ("gauge", "seconds", "Seconds since the start of the launcher.", status.seconds),
        ("gauge", "ranks", "How many ranks the job has.", status.num_workers),
        ("counter", "restarts", "Restarts of all workers.", status.num_restarts),
        ("gauge", "epoch", "The epoch, from 0.", status.epoch),
        ("gauge", "step", "Optimizer steps of the whole job.", status.step),
        ("gauge", "steps_per_second", "Over the last steps.", status.steps_per_second),
        ("gauge", "step_age_seconds", "Seconds since the last step that was heard of.", status.step_age_seconds),
        ("gauge", "step_seconds", "How long a step took, told by the chief.", times.step_seconds if times else None),
        ("gauge", "waits_for_rank", "The rank that the others wait for.", times.waits_for if times else None),
        ("counter", "snapshots", "Snapshots of this run.", status.num_snapshots),
        ("counter", "failed_snapshots", "Shards that could not be written.", status.num_failed_snapshots),
        ("gauge", "snapshot_step", "The step of the newest snapshot.", snapshot.step if snapshot else None),
        ("gauge", "snapshot_age_seconds", "Seconds since the newest snapshot.", status.snapshot_age_seconds),
    ]
    workers: dict[tuple[str, ...], float | None] = {(one.process, one.host, one.state): 1 for one in status.workers}
    return [
        Family("gauge", "job", "1, with the state of the job.", {(status.job_id, status.state): 1}, ("job", "state")),
        Family("gauge", "worker", "1 for each process of the job.", workers, ("process", "host", "state")),
        Family("gauge", "metric", "Of the last epoch.", {(name,): metrics[name] for name in metrics}, ("name",)),
        Family("gauge", "step_share", "Of a step, 0 to 1.", {(word,): shares[word] for word in shares}, ("phase",)),
        *(Family(kind, name, text, {(): value}) for kind, name, text, value in single),
    ]
