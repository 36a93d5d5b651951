"""The files around the code: what they name is there, and what reads them can."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from seconds import budgets

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/**/*.md",
        "benchmarks/*.md",
        "benchmarks/*/*.md",
        ".github/**/*.md",
    )
    for path in REPOSITORY.glob(pattern)
)
URL = re.compile(r"\bhttps://github\.com/paceline/[\w-]+")


def read(path: str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), f"{page.name} links to {target}, which is not there"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name} links to {target}, and {there.name} has no such heading"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_files_that_the_architecture_names_are_there() -> None:
    files = ["/" + one.as_posix() for one in (*REPOSITORY.glob("*.*"), *REPOSITORY.glob("[dst]*/**/*.*"))]
    named = re.findall(r"`([\w./]+\.(?:py|md|toml))`|\b(docs/[\w/]+\.md)", read("docs/architecture.md"))
    missing = {name for pair in named for name in pair if name and not any(one.endswith("/" + name) for one in files)}
    assert not missing


def test_ci_on_github_is_ci() -> None:
    workflow = yaml.safe_load(read(".github/workflows/ci.yml"))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert any(command.split()[-1] == ".ci/run" for command in commands)
    assert workflow["permissions"] == {"contents": "read"}


def test_ci_runs_in_a_folder_with_the_name_that_git_clone_gives(tmp_path: Path) -> None:
    """CI's folder had another name, so tests that failed in every newcomer's checkout passed there."""
    programs = tmp_path / "bin"
    checkout = tmp_path / "checkout"
    for folder in (programs, checkout / ".ci", checkout / ".venv"):
        folder.mkdir(parents=True)
    for name in ("make", "ip", "sshd", "ssh", "slurmctld", "munged"):  # nothing is to be installed
        (programs / name).write_text('#!/bin/sh\necho "$1 in ${PWD##*/}:" *.md .v*\n')
        (programs / name).chmod(0o755)
    (checkout / "README.md").touch()
    (checkout / ".ci" / "run").write_text(read(".ci/run"))
    (checkout / ".ci" / "run").chmod(0o755)
    variables = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": sys.executable}
    variables["TMPDIR"] = str(tmp_path)
    ended = subprocess.run([checkout / ".ci" / "run"], env=variables, capture_output=True, text=True, timeout=60)
    assert ended.stdout.splitlines() == ["install in paceline: README.md .v*", "check in paceline: README.md .v*"]
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "checkout"], "the copy is removed"


def test_the_hooks_before_a_commit_are_the_lint_of_the_makefile() -> None:
    repositories = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert [one["repo"] for one in repositories] == ["local"]
    entries = {hook["entry"] for hook in repositories[0]["hooks"]}
    dry = subprocess.run(
        ["make", "--dry-run", "lint"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert entries <= {line.removesuffix(" .") for line in dry.stdout.splitlines()}
    assert len(entries) == 3


def test_forms_for_issues_can_be_read() -> None:
    forms = sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) >= 3
    for form in forms:
        content = yaml.safe_load(form.read_text())
        if form.name != "config.yml":
            assert {"name", "description", "body"} <= content.keys()
            names = [field["id"] for field in content["body"] if field["type"] != "markdown"]
            assert len(set(names)) == len(names)


def test_the_address_of_the_project_has_one_spelling() -> None:
    urls = tomllib.loads(read("pyproject.toml"))["project"]["urls"]
    assert {"Homepage", "Issues", "Changelog", "Documentation"} <= urls.keys()
    (home,) = {match for url in urls.values() for match in URL.findall(url)}
    for path in (*PAGES, *(REPOSITORY / ".github").rglob("*.yml")):
        assert set(URL.findall(path.read_text(encoding="utf-8"))) <= {home}


def test_each_folder_of_tests_has_a_budget() -> None:
    folders = {
        f"tests/{path.relative_to(REPOSITORY / 'tests').parts[0]}" for path in REPOSITORY.glob("tests/*/**/test_*.py")
    }
    assert budgets(read("tests/budgets.txt")).keys() == folders


@pytest.mark.parametrize(("of_ci", "code"), [({"CI": "true"}, 1), ({}, 0)])
def test_a_folder_above_its_budget_fails_in_ci_only(of_ci: dict[str, str], code: int, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    (tests / "slow").mkdir(parents=True)
    (tests / "seconds.py").write_text(read("tests/seconds.py"))
    (tests / "conftest.py").write_text("from seconds import pytest_sessionfinish, pytest_terminal_summary\n")
    (tests / "budgets.txt").write_text("0.0 s  tests/slow\n")
    for name in ("test_a.py", "test_b.py"):
        (tests / "slow" / name).write_text("def test_nothing() -> None: pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"]
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment | of_ci, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "above its budget of 0 s" in ended.stdout
