"""The `paceline` command as users type it."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_SECONDS = 60


def paceline(*arguments: str, cwd: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return subprocess.run(
        [sys.executable, "-m", "paceline", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        cwd=cwd,
        env={**inherited, **variables},
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text("import os, sys\nprint(os.environ['PACELINE_RANK'], __name__, sys.argv[1:])\n")
    return path


def test_help_is_quick():
    """In time of the processor: other tests may be running beside this one."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert paceline("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(seconds) < 0.4


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("--version",)])
def test_help_and_version_load_nothing_heavy(arguments: tuple[str, ...]):
    code = (
        "import sys\n"
        f"sys.argv = ['paceline', *{arguments!r}]\n"
        "from paceline.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'tensorflow', 'keras', 'mpi4py', 'numpy', 'rich', 'asyncio', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert finished.returncode == 0, finished.stderr


def test_running_loads_neither_tensorflow_nor_mpi():
    heavy = "{'tensorflow', 'keras', 'mpi4py', 'numpy'}"
    code = f"import sys, paceline.launcher.running, paceline.launcher.head; print({heavy} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert finished.stdout == "set()\n"


def test_a_job_waits_for_no_other_verb_and_its_guard_for_no_event_loop():
    loaded = "{'paceline.cli.snapshot', 'paceline.cli.render', 'asyncio', 'paceline.launcher.head'}"
    code = f"import sys, paceline.cli.verbs, paceline.launcher.running; print({loaded} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert finished.stdout == "set()\n"


def test_a_mistyped_verb_is_told_the_one_that_was_meant():
    refused = paceline("rendr")
    assert refused.returncode == 2
    assert "Did you mean 'render'?" in refused.stderr


def test_help_shows_examples_and_every_flag():
    text = paceline("run", "--help", COLUMNS="200").stdout
    for word in (
        "paceline run --workers 2 train.py",
        "--workers",
        "-np",
        "--nproc-per-node",
        "--log-dir",
        "--bind",
        "--start-timeout",
        "--seed",
        "--no-drop-in",
        "--verbose",
        "-m",
    ):
        assert word in text


def test_version():
    assert paceline("--version").stdout == "paceline 0.1.0\n"


def test_no_verb_shows_the_help():
    assert "run" in paceline().stdout + paceline().stderr


@pytest.mark.processes
@pytest.mark.parametrize("flag", ["--workers", "-n", "-np", "--num-proc", "--nproc-per-node", "--nproc_per_node"])
def test_a_script_with_its_own_options(script: Path, flag: str):
    finished = paceline("run", flag, "2", str(script), "--help", "--workers", "9", "-m", "--", "x")
    assert finished.returncode == 0, finished.stderr
    assert sorted(finished.stdout.splitlines()) == [
        f"[{rank}] {rank} __main__ ['--help', '--workers', '9', '-m', '--', 'x']" for rank in (0, 1)
    ]


@pytest.mark.processes
def test_a_module_with_its_own_options(script: Path):
    finished = paceline("run", "-n", "2", "-m", "script", "--epochs", "3", "-h", cwd=script.parent)
    assert finished.returncode == 0, finished.stderr
    assert sorted(finished.stdout.splitlines()) == [
        f"[{rank}] {rank} __main__ ['--epochs', '3', '-h']" for rank in (0, 1)
    ]


@pytest.mark.processes
def test_auto_starts_a_worker_for_each_usable_core_without_gpus(script: Path):
    one_core = str(min(os.sched_getaffinity(0)))
    finished = subprocess.run(
        [
            "taskset",
            "-c",
            one_core,
            sys.executable,
            "-m",
            "paceline",
            "run",
            "--workers",
            "auto",
            str(script),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "[0] 0 __main__ []\n"


@pytest.mark.processes
def test_verbose_tells_the_seed_and_the_cores(script: Path):
    finished = paceline("run", "--verbose", "--seed", "5", "--bind", "none", str(script))
    assert "paceline: seed 5;" in finished.stderr
    assert "paceline: rank 0: cores any, address 127.0.0.1:" in finished.stderr


@pytest.mark.processes
def test_the_scripts_exit_code_and_traceback(tmp_path: Path):
    path = tmp_path / "bad.py"
    path.write_text("import os, time\nif os.environ['PACELINE_RANK'] == '1':\n    1 / 0\ntime.sleep(600)\n")
    finished = paceline("run", "-n", "2", str(path))
    assert finished.returncode == 1
    rows = finished.stderr.splitlines()
    assert rows[-1].endswith(": ZeroDivisionError: division by zero [worker-failed]")
    header = rows.index("Traceback (most recent call last):") - 1
    assert rows[header].startswith("paceline: rank 1 (")
    assert f'File "{path}", line 3' in rows[header + 2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("missing.py",), "SCRIPT: received 'missing.py'; expected a file that exists"),
        (("-n", "0", "{script}"), '--workers: received "0"; expected a number from 1 on'),
        (("-n", "two", "{script}"), '--workers: received "two"; expected a number from 1 on, auto, gpu or cpu'),
        (("--seed", "-1", "{script}"), "--seed: received -1"),
        (("--start-timeout", "0", "{script}"), "--start-timeout: received 0"),
        (("--bind", "sockets", "{script}"), "--bind"),
        (("--unknown", "{script}"), "--unknown"),
        ((), "SCRIPT"),
    ],
)
def test_a_command_line_that_is_not_understood(script: Path, arguments: tuple[str, ...], expected: str):
    finished = paceline("run", *(argument.format(script=script) for argument in arguments))
    assert finished.returncode == 2
    assert expected in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""


def test_a_wrong_tf_config_is_refused_with_78(script: Path):
    finished = paceline("run", "-n", "2", str(script), TF_CONFIG="{'cluster': {}}")
    assert finished.returncode == 78
    assert finished.stderr.startswith("paceline: TF_CONFIG")
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""


def test_a_script_that_python_cannot_compile_is_shown_once_as_python_shows_it(tmp_path: Path):
    """Each worker was started, and the traceback came with three more lines about ranks."""
    script = tmp_path / "train.py"
    script.write_text("import sys\n\nx = = 1\n")
    finished = paceline("run", "-n", "2", str(script))
    alone = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (finished.returncode, finished.stdout) == (alone.returncode, "") == (1, "")
    assert finished.stderr == alone.stderr


def test_what_is_no_file_of_python_is_left_to_the_workers(tmp_path: Path):
    (tmp_path / "__main__.py").write_text("print('a folder')")
    assert paceline("run", "-n", "1", str(tmp_path)).stdout == "[0] a folder\n"
