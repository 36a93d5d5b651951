"""``paceline render`` as users type it."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from paceline.cli.render import verbs as render_verbs
from paceline.cli.verbs import app
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import rows

LIMIT_SECONDS = 60
KUBERNETES = ("kubernetes", "--name", "train", "--image", "team/train:1")
GCLOUD = ("gcloud", "--zone", "us-central1-a", "--machine-type", "n2-standard-8")
VERBS = {"kubernetes": KUBERNETES, "slurm": ("slurm",), "gcloud": GCLOUD}

COMMANDS_OF_APP = typer.main.get_command(app).commands  # type: ignore[attr-defined]

ALL_RUN_FLAGS = (
    "--nnodes", "3", "--workers", "2", "--seed", "7", "--bind", "none", "--log-dir", "logs", "--start-timeout", "90",
    "--max-restarts", "2", "--restart-window", "3600", "--snapshot-dir", "snapshots", "--snapshot-every", "30s",
    "--snapshot-keep", "4", "--hang-timeout", "60", "--standby",
    "--env", "A=b", "--network-interface", "eth0", "--require-secret", "--allow-mismatch",
    "--no-drop-in", "--allow-independent", "--verbose", "-m",
)  # fmt: skip
COMMAND = (
    "--seed 7 --bind none --log-dir logs --start-timeout 90 --no-drop-in --allow-independent --verbose "
    "--network-interface eth0 --require-secret --allow-mismatch --max-restarts 2 --restart-window 3600 "
    "--snapshot-dir snapshots --snapshot-every 30s --snapshot-keep 4 --hang-timeout 60 --standby -m train --epochs 3"
)


def render(*words: str, **variables: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["render", *words], env={"COLUMNS": "200", **variables})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_shows_examples_and_every_flag(verb: str) -> None:
    code, text, _ = render(verb, "--help")
    assert code == 0
    assert f"paceline render {verb} --nnodes" in text
    for flag in [word for word in (*ALL_RUN_FLAGS, "--output", "--working-dir") if word.startswith("-")]:
        assert flag in text


def test_help_of_all_verbs() -> None:
    code, text, _ = render("--help")
    assert code == 0
    assert all(verb in text for verb in VERBS)


def test_help_loads_no_yaml() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['paceline', 'render', 'kubernetes', '--help']\n"
        "from paceline.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'yaml', 'asyncio', 'psutil', 'numpy', 'tensorflow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_flags_of_run_reach_the_command(verb: str) -> None:
    code, text, faults = render(*VERBS[verb], *ALL_RUN_FLAGS, "train", "--epochs", "3")
    assert (code, faults) == (0, "")
    if verb == "kubernetes":
        job = next(one for one in yaml.safe_load_all(text) if one["kind"] == "Job")
        text = " ".join(job["spec"]["template"]["spec"]["containers"][0]["command"])
    assert "paceline run" in text
    assert COMMAND in text


def test_all_flags_of_run_that_hold_for_any_host_are_rendered() -> None:
    """A new flag of `run` is one of `render`, or is about this command or these hosts."""
    of_run = {flag for one in COMMANDS_OF_APP["run"].params for flag in one.opts}
    about_this_command = {
        flag for option in rows(JobOptions) if not option.rendered for flag in (option.flag, *option.spellings)
    }
    assert {"--hosts", "--node-rank", "--chaos", "--standalone"} <= about_this_command
    assert not {"--seed", "--nnodes", "--allow-independent", "-m"} & about_this_command
    verbs = typer.main.get_command(render_verbs).commands  # type: ignore[attr-defined]
    for verb in VERBS:
        of_verb = {flag for one in verbs[verb].params for flag in one.opts}
        assert of_run - of_verb == about_this_command


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (("train.py",), "train"),
        (("/app/Train_MNIST.py",), "train-mnist"),
        (("./2026_run-.py",), "run"),
        (("-m", "mypackage.train_net"), "train-net"),
        (("python", "-um", "mypackage.train_net"), "train-net"),
        (("42.py",), "paceline"),
        (("x" * 80 + ".py",), "x" * 50),
    ],
)
def test_a_job_without_a_name_is_named_after_its_script(program: tuple[str, ...], name: str) -> None:
    """The README's command left --name out, and was refused."""
    code, text, faults = render("kubernetes", "--image", "team/train:1", "--nnodes", "1000", *program)
    assert (code, faults) == (0, "")
    assert {one["metadata"]["name"] for one in yaml.safe_load_all(text)} == {name}


def test_what_is_wrong_with_snapshots_is_told() -> None:
    words = ("--snapshot-every", "0", "--snapshot-keep", "0", "--hang-timeout", "-1", "--restart-window", "0")
    code, _, faults = render("slurm", *words, "train.py")
    assert code == 2
    for flag in words[::2]:
        assert f"{flag}: received" in faults
    code, _, faults = render("slurm", "--snapshot-every", "5s", "train.py")
    assert (code, "--snapshot-dir with it" in faults) == (2, True)
    assert render("slurm", "--snapshot-dir", "", "train.py")[0] == 2


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_what_follows_the_script_is_the_scripts(verb: str) -> None:
    words = ["--help", "--output", "x", "--nnodes", "9", "-m", "--", "y z"]
    code, text, _ = render(*VERBS[verb], "train.py", *words)
    assert code == 0
    if verb == "kubernetes":
        job = next(one for one in yaml.safe_load_all(text) if one["kind"] == "Job")
        assert job["spec"]["template"]["spec"]["containers"][0]["command"][-9:] == ["train.py", *words]
    else:
        assert "train.py --help --output x --nnodes 9 -m -- 'y z'" in text


def test_options_may_be_spelt_with_underscores() -> None:
    code, text, _ = render("slurm", "--nproc_per_node", "4", "--cpus_per_task", "8", "train.py")
    assert code == 0
    assert "paceline run --workers 4 train.py" in text


def test_a_variable_without_a_value_has_the_one_it_has_here() -> None:
    _, text, _ = render("slurm", "--env", "PACELINE_TEST_A", "--env", "B=", "train.py", PACELINE_TEST_A="b c")
    assert "export PACELINE_TEST_A='b c'\nexport B=''\n" in text


def test_all_faults_come_before_any_output(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    arguments = ("--name", "A", "--image", " ", "--workers", "0", "--env", "1=", "--output", str(path))
    code, text, faults = render("kubernetes", *arguments, "train.py")
    assert (code, text) == (2, "")
    assert faults.startswith("paceline: the command line has 4 faults:\n")
    assert [line.split(":")[0].strip() for line in faults.splitlines()[1:]] == [
        "--workers", "--env", "--name", "--image"
    ]  # fmt: skip
    assert not path.exists()


def test_a_file_with_a_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("older, and longer than the new one" * 1000)
    path.chmod(0o644)
    code, text, _ = render(*KUBERNETES, "-o", str(path), "train.py")
    assert (code, text) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o600
    kinds = [one["kind"] for one in yaml.safe_load_all(path.read_text())]
    assert kinds == ["Secret", "NetworkPolicy", "Service", "Job"]
    assert list(tmp_path.iterdir()) == [path]


def test_every_manifest_has_another_secret() -> None:
    def secret() -> str:
        found: str = next(yaml.safe_load_all(render(*KUBERNETES, "train.py")[1]))["stringData"]["secret"]
        return found

    one, other = secret(), secret()
    assert one != other
    assert len(bytes.fromhex(one)) == 32


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    code, text, faults = render("slurm", "--output", str(tmp_path / "no" / "job.sh"), "train.py")
    assert (code, text) == (2, "")
    assert "--output:" in faults
    assert "No such file or directory" in faults


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("slurm",), "SCRIPT"),
        (("kubernetes", "train.py"), "--image"),
        (("gcloud", "train.py"), "--zone"),
        (("slurm", "--unknown", "train.py"), "--unknown"),
        (("nomad", "train.py"), "nomad"),
    ],
)
def test_a_command_line_that_is_not_understood(words: tuple[str, ...], expected: str) -> None:
    code, text, faults = render(*words)
    assert code == 2
    assert expected in faults
    assert text == ""
