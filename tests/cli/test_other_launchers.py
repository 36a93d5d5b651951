"""What users of torchrun, horovodrun, mpirun and accelerate type by habit does what it did there, or is refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SLURM_STEP, CommandLine
from typer.testing import CliRunner

from paceline.cli import job_settings as cli_job
from paceline.cli.verbs import app
from paceline.launcher.job import JobDescription


def program(job: JobDescription) -> tuple[str, tuple[str, ...], bool]:
    assert job.program is not None
    return job.program.target, job.program.arguments, job.program.is_module


@pytest.mark.parametrize("python", ["python", "python3", "python3.11", sys.executable])
def test_the_interpreter_that_mpirun_and_horovodrun_want_may_stand_before_the_script(run: CommandLine, python: str):
    """`horovodrun -np 2 python train.py` by habit: 'python' was taken for the script."""
    for words, expected in (
        (("train.py", "--lr", "1", "-u"), ("train.py", ("--lr", "1", "-u"), False)),
        (("-u", "train.py"), ("train.py", (), False)),
        (("-m", "package.train", "-m", "x"), ("package.train", ("-m", "x"), True)),
        (("-u", "-mpackage.train"), ("package.train", (), True)),
        (("-um", "package.train"), ("package.train", (), True)),
    ):
        assert program(run.job("-np", "2", python, *words)) == expected
    assert program(run.job("-np", "2", "--", python, "train.py", "x")) == ("train.py", ("x",), False)


def test_what_such_an_interpreter_cannot_be_told_is_refused(run: CommandLine):
    for words in (("-c", "print(1)"), ("-", "x"), ("-um",), ()):
        code, message = run.refused("python", *words)
        assert code == 2
        assert message.endswith(("[python-option]\n", "[no-script]\n"))
    _, message = run.refused("python", "gone.py")
    assert "SCRIPT: received 'gone.py'" in message


def test_a_script_may_still_be_called_python(run: CommandLine):
    Path("python.py").touch()
    assert program(run.job("python.py", "x")) == ("python.py", ("x",), False)
    assert program(run.job("-m", "python", "x")) == ("python", ("x",), True)


def test_torchruns_ways_to_say_that_this_host_is_alone(run: CommandLine, monkeypatch: pytest.MonkeyPatch):
    for words in (
        ("--standalone", "--nproc_per_node=2"),
        ("--standalone", "--nnodes=1", "--nproc-per-node=2"),
        ("--nnodes=1", "--node_rank=0", "--master_addr=localhost", "--master_port=29501", "--nproc_per_node=2"),
        ("--master-port", "29501", "--nproc-per-node", "2"),
        ("--nnodes=1", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--rdzv_id=7", "--nproc_per_node=2"),
        ("--standalone", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--max_restarts=3", "--np", "2"),
    ):
        job = run.job(*words, "train.py")
        assert (job.num_workers, job.nodes, job.hosts) == (2, None, ())
    for name, value in SLURM_STEP.items():
        monkeypatch.setenv(name, value)
    assert run.job("train.py").nodes is not None
    assert run.job("--standalone", "train.py").nodes is None
    of_one = ("--nnodes", "1", "--master-addr", "localhost")  # the scheduler's number of hosts was taken in its place
    assert run.job(*of_one, "train.py").nodes is None


@pytest.mark.parametrize(
    "where",
    [
        ("--rdzv_id=job1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "n0:29500"),
        ("--rdzv-backend=static", "--master-addr", "n0", "--master-port", "29500"),
        ("--master_addr", "n0"),
        ("--main_process_ip", "n0", "--main_process_port", "29500"),
    ],
)
def test_torchruns_and_accelerates_ways_to_name_the_meeting_point(run: CommandLine, where: tuple[str, ...]):
    nodes = run.job("--nnodes", "2", "--node_rank", "1", *where, "train.py").nodes
    assert nodes is not None
    assert (nodes.num_nodes, nodes.node_rank, str(nodes.rendezvous)) == (2, 1, "n0:29500")


def test_accelerate_counts_the_processes_of_all_machines(run: CommandLine):
    """`--num_processes 4 --num_machines 2` started four workers on each, eight in all."""
    of_two = ("--num_machines", "2", "--machine_rank", "0", "--main_process_ip", "n0")
    assert run.job("--num_processes", "4", *of_two, "train.py").num_workers == 2
    assert run.job("--num_processes", "4", "train.py").num_workers == 4
    assert run.job("--num_processes", "3", "--hosts", "a:2,b:2", "train.py").num_workers == 3
    run.jobs.clear()
    code, message = run.refused("--num_processes", "3", *of_two, "train.py")
    assert (code, "3" in message) == (2, True)
    assert message.endswith("[num-processes]\n")


def test_workers_of_all_gpus_or_of_all_cores(run: CommandLine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cli_job, "visible_gpus", lambda variables: ("0", "1", "2"))
    monkeypatch.setattr(cli_job, "usable_cores", lambda: tuple(range(5)))
    monkeypatch.setattr(cli_job, "core_quota", lambda: None)
    assert run.job("-n", "gpu", "train.py").num_workers == 3
    assert run.job("-n", "cpu", "train.py").num_workers == 5
    assert run.job("-n", "auto", "train.py").num_workers == 3
    monkeypatch.setattr(cli_job, "visible_gpus", lambda variables: ())
    assert run.job("-n", "auto", "train.py").num_workers == 5


def test_a_forwarded_variable_that_is_not_set_is_refused_on_one_host_too(run: CommandLine):
    """`-x NOSUCH` was refused with --hosts, and on one host nobody said that it does nothing."""
    for hosts in ((), ("--hosts", "a:2,b:2")):
        code, message = run.refused(*hosts, "-x", "NOSUCH", "-x", "HOME", "-x", "=1", "train.py")
        assert code == 2
        assert "NOSUCH" in message
        assert "'=1'" in message
        assert message.endswith("[env-not-set]\n")
    job = run.job("-x", "HOME", "-x", "DAY=mon", "train.py")
    assert job.environment["DAY"] == "mon"


KERAS_ON_OTHERS: list[tuple[str, Callable[[pytest.MonkeyPatch, Path], None], str]] = [
    ("variable", lambda patch, home: patch.setenv("KERAS_BACKEND", "jax"), "KERAS_BACKEND: received 'jax'"),
    ("file", lambda patch, home: keras_file(home / ".keras"), "keras.json"),
    ("folder", lambda patch, home: (keras_file(home / "k"), patch.setenv("KERAS_HOME", str(home / "k")))[1], "keras"),
]


def keras_file(folder: Path) -> None:
    folder.mkdir()
    (folder / "keras.json").write_text('{"backend": "torch", "floatx": "float32"}')


@pytest.mark.parametrize(("how", "arrange", "named"), KERAS_ON_OTHERS)
def test_keras_on_another_backend_is_refused_before_anything_starts(
    run: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    arrange: Callable[[pytest.MonkeyPatch, Path], None],
    named: str,
):
    """Each worker imported Keras and JAX, and failed with a traceback."""
    arrange(monkeypatch, tmp_path)
    code, message = run.refused("train.py")
    assert code == 78
    assert named in message
    assert "KERAS_BACKEND=tensorflow" in message
    assert message.endswith("[keras-backend]\n")
    assert run.job("--env", "KERAS_BACKEND=tensorflow", "train.py")


@pytest.mark.processes
def test_a_backend_that_the_script_sets_is_refused_when_it_imports_keras(tmp_path: Path):
    """Scripts of keras.io set it in their first lines: the job ended with a traceback from within Keras."""
    script = tmp_path / "train.py"
    script.write_text("import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras\n")
    words = ("run", "-n", "2", "--max-restarts", "2", str(script))
    finished = subprocess.run(
        [sys.executable, "-m", "paceline", *words], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert finished.returncode == 78
    assert "KERAS_BACKEND: received 'jax'" in finished.stderr
    assert "[keras-backend]" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_keras_files_without_a_backend_are_no_hindrance(run: CommandLine, tmp_path: Path):
    (tmp_path / ".keras").mkdir()
    for text in ('{"floatx": "float64"}', "{", "[]", '{"backend": "tensorflow"}'):
        (tmp_path / ".keras" / "keras.json").write_text(text)
        assert run.job("train.py")


def test_the_help_says_what_the_options_of_others_do(run: CommandLine):
    text = run("--help").stdout
    heading = "For users of torchrun, horovodrun, mpirun, accelerate:"
    assert text.count(heading) == 1
    for_others = text.partition(heading)[2]
    for option in ("--standalone", "--master-addr", "--master-port", "--rdzv-id", "--rdzv-backend", "--num-processes"):
        assert option in for_others
        assert option not in text.partition(heading)[0]
    assert "--workers" in text.partition(heading)[0]


def test_the_version_by_both_spellings():
    short = CliRunner().invoke(app, ["--version"]).stdout
    long = CliRunner().invoke(app, ["version"]).stdout.splitlines()
    assert long[0] + "\n" == short
    told = dict(line.split(" ", 1) for line in long)
    assert told["Python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert {"TensorFlow", "Keras", "MPICH", "Linux"} <= told.keys()


def test_the_shell_completes_verbs_and_options():
    def completions(*words: str) -> list[str]:
        variables = {"_PACELINE_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words)}
        finished = subprocess.run(
            [sys.executable, "-c", "import sys; sys.argv[0] = 'paceline'; from paceline.cli.app import main; main()"],
            env={**os.environ, **variables, "COMP_CWORD": str(len(words) - 1)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return finished.stdout.split()

    assert completions("paceline", "sn") == ["snapshot"]
    assert completions("paceline", "run", "--snapshot-k") == ["--snapshot-keep"]
    assert "--show-completion" in CliRunner().invoke(app, ["--help"]).stdout


UNLIKE_LINUX = """
import asyncio, subprocess, sys, typer.testing  # they look at the system, and would miss what Windows alone has
sys.platform = {platform!r}
for name in {missing!r}:
    sys.modules[name] = None
before = set(sys.modules)
import paceline
assert "tensorflow" not in sys.modules
assert dir(paceline)
from paceline.cli.app import main
sys.argv = ["paceline", *{words!r}]
main()
"""


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_on_other_systems_one_sentence_says_where_paceline_runs(tmp_path: Path, platform: str):
    """What Windows lacks is taken away; `render` writes files for Linux, and works everywhere."""
    (tmp_path / "train.py").touch()
    missing = {"darwin": (), "win32": ("fcntl", "resource", "pwd", "grp", "termios", "pty")}[platform]
    refused = (("run", "-n", "2", "train.py"), ("snapshot", "list", "."))
    ended = {
        words: subprocess.run(
            [sys.executable, "-c", UNLIKE_LINUX.format(platform=platform, missing=missing, words=words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        for words in (*refused, ("run", "--help"), ("render", "slurm", "train.py"))
    }
    for words, finished in ended.items():
        if words not in refused:
            assert finished.returncode == 0, finished.stderr
        else:
            assert finished.returncode == 69
            assert finished.stderr.startswith("paceline: Paceline runs on Linux")
            assert finished.stderr.endswith("[not-linux]\n")
            assert finished.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("--tee", "3"), "torchrun, and none of paceline run: lines of all workers are on the terminal"),
        (("--mixed_precision", "bf16"), "keras.config.set_dtype_policy"),
        (("--timeline-filename=x",), "--observe FOLDER"),
        (("--check-build",), "paceline doctor"),
        (("--role", "trainer"), "torchrun, and none of paceline run: leave it out"),
        (("--gradient_accumulation_steps", "2"), "the script's optimizer"),
        (("--cpu",), "--workers cpu"),
        (("--reset-limit=3",), "--max-restarts N"),
        (("-V",), "paceline --version"),
        (("--nnodes", "1:2"), "stays the same while the job runs"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else None,
)
def test_a_flag_that_paceline_has_not_is_refused_with_what_to_write(
    run: CommandLine, words: tuple[str, ...], instead: str
):
    code, message = run.refused(*words, "train.py")
    assert code == 2
    assert words[0].partition("=")[0].replace("_", "-") in message
    assert instead in message
    assert message.endswith("[option]\n")


def test_a_flag_that_nobody_has_stays_unknown(run: CommandLine):
    code, message = run.refused("--no-such-thing", "train.py")
    assert code == 2
    assert "No such option: --no-such-thing" in message
