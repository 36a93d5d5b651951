"""Every command that README, docs and help show works as it stands there.

What can run here runs: jobs of this host (with a stand-in for the user's script), `paceline render` and `paceline
snapshot`. A job of several hosts is described and checked up to the point where its first process would start. Of
other programs (kubectl, sbatch, gcloud) there is none here: what is given to them must have been written before.
"""

import functools
import itertools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import typer.main
from command_line import SLURM_STEP, CommandLine
from documents import PAGES, REPOSITORY, Command, commands_of_help, commands_of_page, options_in_sentences, verbs
from typer.testing import CliRunner

from paceline.cli.verbs import app
from paceline.cluster.tf_config import read_tf_config
from paceline.store.manifest import SnapshotMeta
from paceline.store.shards import Shard
from paceline.store.snapshots import SnapshotStore, Writer

LIMIT_SECONDS = 60

SCRIPT = "import os\nprint('rank', os.environ.get('PACELINE_RANK'), 'of', os.environ.get('PACELINE_WORLD_SIZE'))\n"
"""In the place of the user's."""

HELP = "the help of all verbs"


class Desk:
    """A user's folder, in which a page's commands are typed one after the other."""

    def __init__(self, run: CommandLine) -> None:
        self.jobs = run.jobs
        self.exported: dict[str, str] = {}
        Path("mypackage").mkdir()
        Path("mypackage/train.py").write_text(SCRIPT)
        Path("hosts").write_text("a slots=2\nb:2\n")

    def type(self, command: Command) -> None:
        """Raises: AssertionError: the command does not work."""
        for word in command.words:
            if word.endswith(".py") and "/" not in word:
                Path(word).write_text(SCRIPT)
        assert command.program in PROGRAMS, f"{command}: say how {command.program!r} is checked, in PROGRAMS"
        PROGRAMS[command.program](self, command)
        for name in command.written:
            if command.program != "paceline":
                Path(name).expanduser().touch()

    def paceline(self, command: Command) -> None:
        words = list(command.words[1:])
        if command.is_abbreviated():
            assert_options_are_known(words)
            return
        # They measure for seconds, or ask a job that runs: test_plan_verb.py, test_status_verb.py and their like do.
        if words[0] in ("plan", "predict", "data", "doctor", "status", "top", "report"):
            own = words[: words.index("--")] if "--" in words else words  # behind it come the script's
            assert_options_are_known([word for word in own if ":" not in word])
            return
        if "--debug-port" in words:  # it waits for a debugger: test_debug_rank.py has one
            assert_options_are_known(words)
            return
        if words[0] == "snapshot":
            words[2] = str(snapshots(Path.cwd() / words[2].lstrip("/")))
        before = len(self.jobs)
        result = CliRunner().invoke(app, words, env={"COLUMNS": "200", **self.exported, **command.variables})
        assert result.exit_code == 0, f"{command}\n{result.output}"
        for name in command.written:
            assert result.stdout
            Path(name).write_text(result.stdout)
        for job in self.jobs[before:]:
            if not job.hosts and job.nodes is None:
                lines = output_of_job(tuple(words))
                # Workers and servers beside a chief serve, and run no script.
                ranks = ["chief"] if job.options.ps else [str(rank) for rank in range(job.num_workers)]
                told = [re.sub(r"^\[ +", "[", line) for line in lines]
                if job.options.evaluator:  # which ends with the job, perhaps before it has begun to print
                    number = job.num_workers + (1 + job.options.ps if job.options.ps else 0)
                    told = [line for line in told if line != f"[evaluator 0] rank {number} of {len(ranks)}"]
                expected = [f"[{label}] rank {number} of {len(ranks)}" for number, label in enumerate(ranks)]
                assert sorted(told) == sorted(expected)

    def srun(self, command: Command) -> None:
        words = [word for word in command.words[1:] if not word.startswith("-")]
        rest = command.words[command.words.index(words[0]) :]
        if Path(words[0]).name == "paceline":
            self.paceline(Command(command.where, rest, SLURM_STEP, is_whole=command.is_whole))
            if not command.is_abbreviated():
                assert (nodes := self.jobs[-1].nodes) is not None
                assert (nodes.num_nodes, nodes.node_rank) == (2, 1)
        else:
            self.python(Command(command.where, rest))

    def python(self, command: Command) -> None:
        words = command.words[1:]
        if words[:2] == ("-m", "paceline"):
            self.paceline(Command(command.where, words[1:], command.variables, is_whole=command.is_whole))
            return
        script = next(word for word in words if not word.startswith("-"))
        there = Path(script) if Path(script).exists() else REPOSITORY / script
        compile(there.read_text(encoding="utf-8"), script, "exec")
        variables = {**self.exported, **command.variables}
        if "TF_CONFIG" in variables:
            assert read_tf_config(variables), f"{command}: TF_CONFIG names nobody"

    def make(self, command: Command) -> None:
        finished = subprocess.run(
            ["make", "--dry-run", *command.words[1:]], cwd=REPOSITORY, capture_output=True, timeout=LIMIT_SECONDS
        )
        assert finished.returncode == 0, f"{command}\n{finished.stderr.decode()}"

    def pytest(self, command: Command) -> None:
        for before, word in itertools.pairwise(command.words):
            if before not in ("-m", "-k") and not word.startswith("-"):
                assert (REPOSITORY / word).exists(), command

    def pip(self, command: Command) -> None:
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        for extras in re.findall(r"paceline\[([\w,]+)\]|\.\[([\w,]+)\]", " ".join(command.words)):
            assert set("".join(extras).split(",")) <= set(project["optional-dependencies"]), command

    def export(self, command: Command) -> None:
        self.exported.update(word.partition("=")[::2] for word in command.words[1:])

    def anothers(self, command: Command) -> None:
        """A program of others: the files that it is given are there."""
        for word in command.words[1:]:
            if re.fullmatch(r"[\w-]+\.(ya?ml|sh)", word):
                assert Path(word).exists(), f"{command}: no command before has written {word}"


PROGRAMS: dict[str, Callable[[Desk, Command], None]] = {
    **dict.fromkeys(("paceline",), Desk.paceline),
    **dict.fromkeys(("python", "python3"), Desk.python),
    **dict.fromkeys(("pip",), Desk.pip),
    **dict.fromkeys(("srun",), Desk.srun),
    **dict.fromkeys(("make",), Desk.make),
    **dict.fromkeys(("pytest",), Desk.pytest),
    **dict.fromkeys(("export",), Desk.export),
    **dict.fromkeys(("kubectl", "sbatch", "gcloud", "bash", "docker", "tensorboard"), Desk.anothers),
    **dict.fromkeys(("jq", "tee", "grep", "umask", "head", "base64", "diff", "cd", "git"), Desk.anothers),
}
"""How a command of each program is checked."""


@functools.cache
def output_of_job(words: tuple[str, ...]) -> tuple[str, ...]:
    """The lines of standard output; the same command on two pages runs once."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "TF_CONFIG"))}
    finished = subprocess.run(
        [sys.executable, "-m", "paceline", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=inherited,
    )
    assert finished.returncode == 0, f"paceline {words}\n{finished.stderr}"
    return tuple(finished.stdout.splitlines())


def snapshots(folder: Path) -> Path:
    """A directory with three snapshots of one worker."""
    folder.mkdir(parents=True, exist_ok=True)
    store = SnapshotStore(folder, keep=None, writer=Writer("job"))
    for step in (1100, 1200, 1300):
        if not any(entry.step == step for entry in store.entries()):
            record = store.write_shard(step, 0, Shard({"w": numpy.zeros(2)}, {}))
            store.commit(step, SnapshotMeta(0, 0, 1, {}), [record])
    return folder


def assert_options_are_known(words: list[str]) -> None:
    """For a part of a sentence, such as `paceline run --hosts`."""
    known = dict(verbs(typer.main.get_command(app)))
    path = ("paceline",)
    while words and (*path, words[0]) in known:
        path = (*path, words.pop(0))
    assert words == [] or path != ("paceline",) or words[0].startswith("-"), f"there is no verb {words[0]!r}"
    options = {option for parameter in known[path].params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = {word for word in words if word.startswith("-")} - options - {"--help"}
    assert not unknown, f"{' '.join(path)} does not know {unknown}"


@pytest.fixture
def desk(run: CommandLine) -> Desk:
    return Desk(run)


@pytest.mark.processes
@pytest.mark.parametrize("page", [HELP, *PAGES])
def test_every_command_works(page: str, desk: Desk) -> None:
    commands = commands_of_help(typer.main.get_command(app)) if page == HELP else commands_of_page(page)
    for command in commands:
        desk.type(command)


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("benchmarks/")])
def test_options_that_a_sentence_names_exist(page: str) -> None:
    """Those of benchmarks/ are of the programs there."""
    known = {
        option
        for _, verb in verbs(typer.main.get_command(app))
        for parameter in verb.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    named = {option.replace("_", "-") for option in options_in_sentences(page)}
    assert named - known - {"--help"} == set()


def test_commands_are_found() -> None:
    """What finds the commands finds them in a block, in a drawing, in a sentence, and in the help of a verb."""
    of_page = {page: commands_of_page(page) for page in PAGES}
    assert sum(map(len, of_page.values())) > 40
    assert any(command.variables for command in of_page["docs/scripts.md"])
    assert any(not command.is_whole for command in of_page["docs/mechanisms.md"])
    for command in commands_of_help(typer.main.get_command(app)):
        assert command.where
    shown = {command.where for command in commands_of_help(typer.main.get_command(app))}
    silent = {" ".join(path) + " --help" for path, _ in verbs(typer.main.get_command(app))} - shown
    assert silent == set(), "these verbs have no example in their help"
