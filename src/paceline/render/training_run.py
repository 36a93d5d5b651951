"""What all targets have in common: the `paceline run` that each host executes, from the flags of that verb."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.cluster import job_options
from paceline.cluster.address_text import MAX_PORT
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import Option, rows
from paceline.cluster.value_checks import Fault, Grammar, Range, is_text, shown

SET_BY_US = frozenset({job_options.NNODES, job_options.NODE_RANK, job_options.RENDEZVOUS, job_options.SECRET_FILE})
"""Variables that a rendered file sets itself."""

TEXT = Grammar(r"[^\x00]*", "text in UTF-8", "'module load cuda'", 1 << 20)

HOST_LABEL = Grammar(
    r"[a-z]([a-z0-9-]*[a-z0-9])?", "a letter, then lower-case letters, digits and '-', at most 63", "train", 63
)
"""RFC 1035: of services and cloud machines, whose names must begin with a letter."""

_VARIABLE = Grammar(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable", "NAME=VALUE")

ABSOLUTE_PATH = Grammar(r"/[^:\x00-\x1f]*", "an absolute path without ':'", "/data", 4096)

PORT = Range(f"a port from 1024 to {MAX_PORT}", "29400", lowest=1024, highest=MAX_PORT)
"""That of a job: one that no privilege guards."""

_ELSEWHERE = {"workers", "nnodes", "module", "env", "config"}
"""Options that stand at a certain place of the command, or not in the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A job that means the same wherever it runs.

    >>> options = JobOptions(workers="2", max_restarts=3)
    >>> TrainingRun(script="train.py", arguments=("--epochs", "3"), options=options, variables={}).command()
    ('paceline', 'run', '--workers', '2', '--max-restarts', '3', 'train.py', '--epochs', '3')

    Args:
        script: The Python script as the hosts see it, or with ``options.module`` the module's name.
        arguments: Its own arguments.
        variables: What the workers' environment has besides, by name; None: named by the user, but not set.
        options: What the user has decided; folders as the hosts see them.
    """

    script: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str | None]
    options: JobOptions = JobOptions()

    @property
    def nnodes(self) -> int:
        """How many hosts."""
        return self.options.nnodes or 1

    def with_start_timeout(self, seconds: float) -> "TrainingRun":
        """This job, with so much time to connect unless the user has said how much."""
        if self.options.start_timeout_seconds is not None:
            return self
        return replace(self, options=replace(self.options, start_timeout_seconds=seconds))

    def command(self, *flags: str) -> tuple[str, ...]:
        """The command of each host; `flags` are further ones of `run`, of the target."""
        return (
            *("paceline", "run", "--workers", self.options.workers or "1"),
            *flags,
            *(
                word
                for one, value in self.options.given_options()
                if one.rendered and one.attribute not in _ELSEWHERE
                for word in one.to_words(value)
            ),
            *(("-m",) if self.options.module else ("--no-module",) if "module" in self.options.given else ()),
            self.script,
            *self.arguments,
        )

    def given_variables(self) -> dict[str, str]:
        """The variables that have a value."""
        return {name: value for name, value in self.variables.items() if value is not None}

    def faults(self) -> Iterator[Fault]:
        """Everything that is wrong besides the options, wherever the job shall run."""
        if not self.script or self.script.startswith("-"):
            yield Fault("SCRIPT", shown(self.script), "a path or a module's name", "put ./ before a name with '-'")
        for flag, number in (("--ps", self.options.ps), ("--data-workers", self.options.data_workers)):
            if number and self.options.require_secret and self.nnodes > 1:
                expected = f"no {flag}: TensorFlow's servers ask for no secret (docs/security.md)"
                yield Fault("--require-secret", f"{flag} {number}", expected, "leave one of them out")
        yield from self._variable_faults()
        folders = (str(self.options.log_dir or ""), self.options.snapshot_dir or "")
        for word in (self.script, *self.arguments, *folders, *self.given_variables().values()):
            if not is_text(word):
                yield Fault("SCRIPT and ARGS", shown(word), "text in UTF-8", "rename it, or read it from a file")

    def _variable_faults(self) -> Iterator[Fault]:
        for name, value in self.variables.items():
            if fault := _VARIABLE.fault("--env", name):
                yield fault
            elif value is None:
                expected = "NAME=VALUE, or the name of a variable that is set here"
                yield Fault("--env", shown(name), expected, f"write {name}=VALUE")
            elif name in SET_BY_US:
                yield Fault("--env", shown(name), "a variable that Paceline does not set here", "leave it out")


def read_variables(texts: Sequence[str], present: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that ``--env`` names: NAME=VALUE, or NAME with the value it has in `present`, if any.

    >>> read_variables(["A=1", "B", "C"], {"B": "2"})
    {'A': '1', 'B': '2', 'C': None}
    """
    variables: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        variables[name] = value if equals else present.get(name)
    return variables


def rendered_options() -> tuple[Option, ...]:
    """The options of `run` that stand in the command of each host."""
    return tuple(option for option in rows(JobOptions) if option.rendered)
