"""Every option from the command line, a variable or a file: the same value, the same checks, and which of them wins."""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import CommandLine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline.cli.config_file import config_file
from paceline.cli.parameters import GroupedCommand, takes_options
from paceline.cluster.job_options import JobOptions
from paceline.cluster.option_sources import CommandLine as Flags
from paceline.cluster.option_sources import File, Variables, gathered, settled
from paceline.cluster.options import Option, OptionTable, option, read_variables, row, rows
from paceline.cluster.value_checks import Fault
from paceline.errors import ConfigurationError
from paceline.render.gcloud import GcloudTarget
from paceline.render.kubernetes import KubernetesTarget
from paceline.render.slurm import SlurmTarget

TABLES: tuple[type[OptionTable], ...] = (JobOptions, KubernetesTarget, SlurmTarget, GcloudTarget)
ROWS = [one for table in TABLES for one in rows(table)]

WORDS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters=";"), min_size=1).filter(
    lambda text: text == text.strip()
)


def values_of(one: Option) -> st.SearchStrategy[Any]:
    """Values that the row accepts, as far as they can be drawn; else its default."""
    if one.choices:
        return st.sampled_from(one.choices)
    drawn: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(-10, 70_000),
        float: st.integers(1, 10**6).map(lambda number: number / 8),
        tuple: st.lists(WORDS, min_size=1, max_size=3).map(tuple),
        str: st.one_of(WORDS, st.sampled_from(["2", "auto", "30s", "a", "eth0", "train:1", "/data", "us-central1-a"])),
        Path: WORDS.filter(lambda text: not text.startswith("~")).map(Path),
    }
    return drawn[one.kind]


def as_toml(one: Option, value: Any) -> str:
    if one.kind in (bool, int, float):
        return str(value).lower()
    return json.dumps(list(value) if one.kind is tuple else str(value)).replace("\x7f", "\\u007f")


def parsed(table: type[OptionTable], words: list[str]) -> dict[str, object]:
    """What typer hands over for the words."""
    seen: list[dict[str, object]] = []

    def verb(**given: object) -> None:
        seen.append(given)

    app = typer.Typer(rich_markup_mode=None)
    app.command()(takes_options(verb, *rows(table)))
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return seen[0]


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_a_value_is_the_same_from_the_command_line_a_variable_and_a_file(data: st.DataObject) -> None:
    """Values and refusals: for each row the three ways have the same outcome."""
    for table in TABLES:
        values = {one: data.draw(values_of(one), label=one.name) for one in rows(table)}
        given = parsed(table, [word for one, value in values.items() for word in one.to_words(value)])
        for one, value in values.items():
            ways = (
                Flags(given),
                Variables({one.variable: one.to_text(value)}),
                File("job.toml", tomllib.loads(f"{one.name} = {as_toml(one, value)}")),
            )
            outcomes = [way.value(one) for way in ways]
            if any(isinstance(outcome, Fault) for outcome in outcomes):
                refusals = {(one.received, one.expected, one.fix) for one in outcomes if isinstance(one, Fault)}
                assert len(refusals) == 1, (one.name, outcomes)
                assert all(isinstance(outcome, Fault) for outcome in outcomes), (one.name, outcomes)
            else:
                assert outcomes == [value] * 3, one.name


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_for_each_row_the_first_source_that_has_it_wins_also_with_the_value_of_the_default(data: st.DataObject) -> None:
    """The command line before variables, these before the file, and the file before the default."""
    for table in TABLES:
        for one in rows(table):
            sound = values_of(one).filter(lambda value, one=one: not one.faults("", value))  # type: ignore[misc]
            if one.check is not None or one.is_required:
                sound = st.just(one.from_text("", str(getattr(one.check, "example", "a")).strip("'").split()[0]))
            if one.default not in (None, ()):
                sound = st.one_of(sound, st.just(one.default))
            flag, variable, key = (data.draw(st.none() | sound, label=one.name) for _ in range(3))
            ways = [
                Flags({one.attribute: flag if flag is None or one.kind is bool else _handed_over(one, flag)}),
                Variables({} if variable is None else {one.variable: one.to_text(variable)}),
                File("f", {} if key is None else tomllib.loads(f"{one.name} = {as_toml(one, key)}")),
            ]
            values, faults = gathered([replace(one, needs="", is_required=False)], ways)
            assert not faults
            first = next((value for value in (flag, variable, key) if value is not None), None)
            assert values.get(one.attribute) == first, one.name


def _handed_over(one: Option, value: Any) -> object:
    return list(value) if one.kind is tuple else one.to_text(value)


@given(st.data())
def test_what_hosts_and_workers_are_told_is_what_the_head_has_settled(data: st.DataObject) -> None:
    chosen = {one.attribute: data.draw(values_of(one)) for one in rows(JobOptions) if data.draw(st.booleans())}
    sound = {name: value for name, value in chosen.items() if not row(JobOptions, name).faults("", value)}
    options = JobOptions(**sound, given=frozenset(sound))
    there = read_variables(JobOptions, options.to_variables())
    assert (there, there.given) == (options, options.given)
    assert options.given == sound.keys()


def test_the_command_line_comes_before_variables_and_these_before_the_file(run: CommandLine) -> None:
    Path("job.toml").write_text(
        'script = "train.py"\narguments = ["--lr", "1"]\nseed = 3\nlog_dir = "of file"\nworkers = 2\n'
    )
    variables = {"PACELINE_CONFIG": "job.toml", "PACELINE_SEED": "2", "PACELINE_LOG_DIR": "of variable"}
    job = run.job("--seed", "1", **variables)
    assert (job.options.seed, job.options.log_dir, job.num_workers) == (1, Path("of variable"), 2)
    assert job.program is not None
    assert (job.program.target, job.program.arguments) == ("train.py", ("--lr", "1"))
    Path("other.py").touch()
    job = run.job("--config", "job.toml", "other.py", "x")
    assert job.program is not None
    assert (job.program.target, job.program.arguments, job.options.seed) == ("other.py", ("x",), 3)


def test_what_says_the_same_in_another_way_is_not_taken_from_a_source_that_comes_later(run: CommandLine) -> None:
    """PACELINE_NNODES in a shell of a cluster must not forbid --hosts, nor a variable for snapshots a job without."""
    elsewhere = {"PACELINE_NNODES": "2", "PACELINE_NODE_RANK": "0", "PACELINE_RENDEZVOUS": "127.0.0.1:1"}
    assert run.job("train.py", **elsewhere).nodes is not None
    assert run.job("--hosts", "a:2", "train.py", **elsewhere).nodes is None
    assert run.job("--standalone", "train.py", **elsewhere).nodes is None
    nodes = run.job("--node-rank", "1", "train.py", **elsewhere).nodes
    assert nodes is not None
    assert (nodes.num_nodes, nodes.node_rank) == (2, 1)
    assert run.job("train.py", PACELINE_STANDALONE="0", **elsewhere).nodes is not None
    assert run.job("--num-processes", "3", "train.py", PACELINE_WORKERS="2").num_workers == 3
    assert run.job("train.py", PACELINE_SNAPSHOT_EVERY="40").options.snapshot_every is None
    assert "[option]" in run.refused("--hosts", "a:2", "--nnodes", "2", "train.py")[1]


def test_paths_in_a_file_are_what_they_are_in_a_shell(run: CommandLine) -> None:
    Path("job.toml").write_text('log-dir = "~/logs"\n')
    assert run.job("--config", "job.toml", "train.py").options.log_dir == Path.home() / "logs"
    Path("job.toml").write_text("log-dir = 5\n")
    assert run.job("--config", "job.toml", "train.py").options.log_dir == Path("5")


def test_all_that_is_wrong_is_told_at_once_with_its_source(run: CommandLine) -> None:
    Path("job.toml").write_text('max-restarts = "many"\nstandby = 1\n')
    words = ("--config", "job.toml", "--seed", "-1", "--hosts", "a", "--ssh-port", "-5", "train.py")
    code, message = run.refused(*words, PACELINE_HANG_TIMEOUT="soon", PACELINE_VERBOSE="perhaps")
    assert code == 2
    assert "--seed: received -1" in message
    assert "--ssh-port: received -5; expected a port from 1 to 65535" in message
    assert 'PACELINE_HANG_TIMEOUT: received "soon"; expected seconds above 0' in message
    assert 'PACELINE_VERBOSE: received "perhaps"; expected 1 (yes) or 0 (no)' in message
    assert 'job.toml: max-restarts: received "many"; expected a number from 0 on. Fix: write it like 3.' in message
    assert "job.toml: standby: received 1; expected true or false. Fix: write it like true." in message
    assert message.endswith("[option]\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"max-restart = 3", "max-restart: received 3; expected the name of an option. Fix: write max-restarts."),
        (b"nproc_per_nod = 3", "Fix: write workers."),
        (b"config = 'x'", "expected the name of an option"),
        (b"script = 3", "script: received 3; expected a path"),
        (b"arguments = 'a b'", "expected a list of texts"),
        (b"slurm = 'a b'", "slurm: received"),
        (b"[slurm]\ntim = '9'", "[slurm] tim: received"),
        (b"[slurm]\nqqq = '9'", "Fix: `paceline render slurm --help` lists the options."),
        (b"[slurm]\nmax_restarts = 3", "Fix: write it above [slurm]: it is an option of `paceline run`."),
        (b"[cluster]\nsize = 3", "expected one of [kubernetes], [slurm], [gcloud]"),
        (b"no-verbose = true", "Fix: write verbose = false."),
        (b"= 3", "which is not TOML"),
        (b"\xff", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_use_is_refused_with_the_key_and_the_nearest_option(
    run: CommandLine, content: bytes | None, expected: str
) -> None:
    if content is not None:
        Path("job.toml").write_bytes(content)
    code, message = run.refused("--config", "job.toml", "train.py")
    assert code == 2
    assert "job.toml" in message
    assert expected in message
    assert message.endswith("[config]\n")


def test_one_file_is_for_run_and_for_every_target_of_render(run: CommandLine) -> None:
    Path("job.toml").write_text(
        'script = "train.py"\nmax-restarts = 3\nhosts = "a,b"\n[slurm]\ntime = "90"\n[gcloud]\nspot = true\n'
    )
    assert run.job("--config", "job.toml").options.max_restarts == 3
    from paceline.cli.verbs import app

    result = CliRunner().invoke(app, ["render", "slurm", "--config", "job.toml"], env={"PACELINE_SLURM_MEM": "8G"})
    assert result.exit_code == 0, result.output
    assert "#SBATCH --time=90\n#SBATCH --mem=8G\n" in result.stdout
    assert "paceline run --workers 1 --max-restarts 3 train.py" in result.stdout
    assert result.stderr == "paceline: job.toml: `paceline render` has no hosts; what it writes is without them\n"


def test_what_a_file_turns_on_the_command_line_turns_off(run: CommandLine) -> None:
    Path("job.toml").write_text("verbose = true\nstandby = true\ndrop-in = false\n")
    options = run.job("--config", "job.toml", "--no-verbose", "--drop-in", "train.py", PACELINE_STANDBY="0").options
    assert (options.verbose, options.standby, options.drop_in) == (False, False, True)


def test_a_rendered_command_has_what_was_given_also_if_it_is_the_default() -> None:
    """A variable of the rendered job's environment won over a value that its user had given."""
    from paceline.cli.verbs import app

    given = ["--max-restarts", "0", "--bind", "cores", "--no-verbose", "--start-timeout", "60", "train.py"]
    result = CliRunner().invoke(app, ["render", "slurm", "--nnodes", "2", *given])
    assert result.exit_code == 0, result.output
    written = "paceline run --workers 1 --bind cores --start-timeout 60 --no-verbose --max-restarts 0 train.py"
    assert written in result.stdout


def test_secret_communication_and_strictness_are_options_like_others(run: CommandLine, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    place = ["--nnodes", "2", "--node-rank", "1", "--rendezvous", "127.0.0.1:1"]
    Path("job.toml").write_text(f'secret-file = "{secret}"\ncommunication = "Ring"\nstrict = true\n')
    by_flag = run.job(*place, "--secret-file", str(secret), "--communication", "ring", "--strict", "train.py")
    variables = {"SECRET_FILE": str(secret), "COMMUNICATION": "RING", "STRICT": "1"}
    by_variable = run.job(*place, "train.py", **{f"PACELINE_{name}": value for name, value in variables.items()})
    by_file = run.job(*place, "--config", "job.toml", "train.py")
    without = run.job(*place, "train.py")
    for job in (by_flag, by_variable, by_file):
        assert (job.options.communication, job.options.strict) == ("ring", True)
        assert job.nodes is not None
        assert without.nodes is not None
        assert job.nodes.key != without.nodes.key
    assert len({job.nodes.key for job in (by_flag, by_variable, by_file) if job.nodes}) == 1


def test_a_new_option_is_one_row(run: CommandLine) -> None:
    """Help, command line, variable and file have it, and hosts are told."""
    rewinds: Any = option(0, "How many times the tape is rewound.", metavar="N", spellings=("-r",), group="Tapes")
    table = make_dataclass("Table", [("num_rewinds", int, rewinds)], bases=(JobOptions,), frozen=True, kw_only=True)
    seen: list[object] = []

    def verb(**given: object) -> None:
        """A verb."""
        seen.append(settled(table, [Flags(given), Variables(os.environ), File("f", {"num-rewinds": 7})]))

    app = typer.Typer(rich_markup_mode=None)
    app.command(cls=GroupedCommand)(takes_options(verb, *rows(table)))
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    assert "Tapes:\n  -r, --num-rewinds N  How many times the tape is rewound. Default: 0." in told
    for words, variables in ((["-r", "5"], {}), ([], {"PACELINE_NUM_REWINDS": "6"}), ([], {})):
        result = CliRunner().invoke(app, words, env=variables)
        assert result.exception is None, result.exception
    assert [getattr(one, "num_rewinds", None) for one in seen] == [5, 6, 7]
    assert isinstance(seen[0], JobOptions)
    assert seen[0].to_variables()["PACELINE_NUM_REWINDS"] == "5"
    assert row(table, "num_rewinds").to_words(5) == ["--num-rewinds", "5"]


def test_no_option_is_declared_outside_of_a_table() -> None:
    source = Path(sys.modules["paceline"].__file__ or "").parent
    declared = {
        flag
        for path in (source / "cli").rglob("*.py")
        for call in re.findall(r"typer\.Option\((.*?)\)", path.read_text(), re.DOTALL)
        for flag in re.findall(r'"(--?[a-z][\w-]*)"', call)
    }
    assert {"--output", "--version"} <= declared
    declared -= {"--dry-run"}  # `paceline snapshot prune` has one, too, and no job
    assert not declared & {flag for one in rows(JobOptions) for flag in (one.flag, *one.spellings)}


def test_tables_have_no_name_twice() -> None:
    for table in (KubernetesTarget, SlurmTarget, GcloudTarget):
        of_verb = [*rows(table), *(one for one in rows(JobOptions) if one.rendered)]
        flags = [flag for one in of_verb for flag in (one.flag, *one.spellings)]
        assert len(flags) == len(set(flags))
    variables = [one.variable for one in ROWS]
    assert len(variables) == len(set(variables))
    assert all(other in JobOptions.__dataclass_fields__ for one in rows(JobOptions) for other in one.excludes)


def test_what_must_be_given_is_asked_for() -> None:
    _, faults = gathered(rows(GcloudTarget), [])
    assert [fault.field for fault in faults] == ["--zone", "--machine-type"]


def test_without_a_file_there_is_nothing() -> None:
    assert config_file(None, {}).options.values == {}
    with pytest.raises(ConfigurationError, match="an empty name"):
        config_file("", {})


JOB_IN_A_JOB = """
import os, subprocess, sys
words = [sys.executable, "-m", "paceline", "run", "-n", "2", "inner.py"]
variables = {**os.environ, **dict(word.split("=") for word in sys.argv[1:])}
print(subprocess.run(words, capture_output=True, text=True, env=variables).stdout)
"""
INNER = """
import os
names = ("SNAPSHOT_DIR", "SNAPSHOT_EVERY", "SEED", "MAX_RESTARTS", "STRICT")
print(*(os.environ.get("PACELINE_" + name, "-") for name in names))
"""


@pytest.mark.processes
def test_a_job_that_a_script_starts_has_options_of_its_own(tmp_path: Path) -> None:
    """It took over the first one's folder for snapshots; what the script itself sets counts."""
    (tmp_path / "outer.py").write_text(JOB_IN_A_JOB)
    (tmp_path / "inner.py").write_text(INNER)
    words = ["--seed", "7", "--snapshot-dir", "of_outer", "outer.py", "PACELINE_SNAPSHOT_EVERY=5s"]
    variables = {"PACELINE_MAX_RESTARTS": "1", "PACELINE_STRICT": "1", "PACELINE_WORKERS": "1"}

    def lines(*more: str) -> list[str]:
        finished = subprocess.run(
            [sys.executable, "-m", "paceline", "run", *words, *more],
            cwd=tmp_path, capture_output=True, text=True, timeout=90, env={**os.environ, **variables},
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        return [line.partition("] [")[2].partition("] ")[2] for line in finished.stdout.splitlines() if "] [" in line]

    inherited = lines()
    assert len(inherited) == 2
    for line in inherited:
        directory, every, seed, restarts, strict = line.split()
        assert (directory, every, restarts, strict) == ("-", "-", "-", "-")
        assert seed != "7"
    assert {line.split()[0] for line in lines("PACELINE_SNAPSHOT_DIR=of_inner")} == {str(tmp_path / "of_inner")}
