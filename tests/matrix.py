"""The core suite on the oldest and the newest supported TensorFlow and Keras, each in an environment of its own.

    make matrix              (the environments lie in .environments/ and are made once)

The versions come from here; everything else is what pip finds for them.
"""

import argparse
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".environments"
PAIRS = {
    "oldest": ("tensorflow-cpu==2.17.*", "keras==3.10.0"),
    "newest": ("tensorflow-cpu", "keras"),
}
CORE = (
    "tests/fit/test_parity.py",
    "tests/fit/test_together.py",
    "tests/resilience/test_resume.py",
    "tests/strategy",
    "tests/comm",
    "tests/data",
    "tests/examples",
)


def python_with(pair: str) -> Path:
    """The interpreter of an environment with this pair and Paceline as it lies here."""
    folder = ENVIRONMENTS / pair
    python = folder / "bin" / "python"
    installed, described = folder / ".installed", ROOT / "pyproject.toml"
    if not installed.exists() or installed.stat().st_mtime < described.stat().st_mtime:
        print(f"{pair}: installing {' and '.join(PAIRS[pair])} ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *PAIRS[pair]], check=True)
        tools = ["hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "hatchling", "editables"]
        subprocess.run([*pip, *tools], check=True)
        subprocess.run([*pip, "--no-build-isolation", "--editable", ROOT, *PAIRS[pair]], check=True)
        installed.touch()
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="*", default=list(PAIRS), help=f"some of {', '.join(PAIRS)}")
    parser.add_argument("--tests", nargs="*", default=list(CORE), help="files or folders instead of the core suite")
    options = parser.parse_args()
    results = {}
    for pair in options.pairs:
        python = python_with(pair)
        show = "import tensorflow, keras; print(f'TensorFlow {tensorflow.__version__}, Keras {keras.__version__}')"
        versions = subprocess.run([python, "-c", show], check=True, capture_output=True, text=True).stdout.strip()
        print(f"== {pair}: {versions}", flush=True)
        tests = [name for name in options.tests if (ROOT / name).exists()]
        shared_out = ["--numprocesses", "3", "--dist", "loadfile", "--no-loadscope-reorder"]  # as `make test`
        pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not proof", *shared_out]
        ended = subprocess.run([*pytest, *tests], cwd=ROOT, check=False)
        results[f"{pair}: {versions}"] = ended.returncode
    for name, code in results.items():
        print(f"{name}: {'passed' if code == 0 else f'failed (exit code {code})'}")
    return max(results.values())


if __name__ == "__main__":
    sys.exit(main())
