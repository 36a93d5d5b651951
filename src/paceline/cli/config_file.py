"""``--config FILE``: options, script and arguments of a job, as TOML.

script = "train.py"
arguments = ["--epochs", "3"]
workers = 4
max-restarts = 3

[kubernetes]             # options of `paceline render kubernetes`
image = "team/train:1"
"""

from collections.abc import Iterable, Mapping
from typing import Any

from paceline.cluster.job_options import JobOptions
from paceline.cluster.option_sources import File
from paceline.cluster.options import Option, OptionTable, row, rows
from paceline.cluster.value_checks import FaultList, shown
from paceline.errors import ConfigurationError

_CONFIG = row(JobOptions, "config")


def targets() -> dict[str, type[OptionTable]]:
    """By the name of its table in a file, the options of each target of `paceline render`."""
    from paceline.render.gcloud import GcloudTarget  # most files have no such table
    from paceline.render.kubernetes import KubernetesTarget
    from paceline.render.slurm import SlurmTarget

    return {"kubernetes": KubernetesTarget, "slurm": SlurmTarget, "gcloud": GcloudTarget}


class ConfigFile:
    """What a file says; without a file nothing.

    Args:
        path: The file.
        content: What TOML makes of it.

    Raises:
        ConfigurationError: keys are unknown, or values no script, arguments or tables.
    """

    def __init__(self, path: str = "", content: Mapping[str, Any] | None = None) -> None:
        faults = FaultList(path, "[config]")
        values = _with_dashes(content or {})
        script, arguments = values.pop("script", None), values.pop("arguments", [])
        if not isinstance(script, str | None):
            faults.add("script", shown(script), "a path, or with module = true a module", 'write script = "train.py"')
        if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
            faults.add("arguments", shown(arguments), "a list of texts", 'write arguments = ["--epochs", "3"]')
        tables = {name: values.pop(name) for name in [*values] if isinstance(values[name], dict)}
        _refuse_unknown(values, "", faults)
        for name, table in tables.items():
            if name in targets():
                tables[name] = _with_dashes(table)
                _refuse_unknown(tables[name], name, faults)
            else:
                faults.add(
                    f"[{name}]", shown(table), f"one of [{'], ['.join(targets())}]", "rename it, or leave it out"
                )
        if len(faults):
            raise faults.error()
        self.script: str | None = script
        self.arguments = tuple(arguments)
        self.options = File(path, values)
        """Of every job."""
        self._tables = tables

    def of_target(self, name: str) -> File:
        """The options of that target of `paceline render`."""
        return File(f"{self.options.path}: [{name}]", self._tables.get(name, {}))


def config_file(flag: object, variables: Mapping[str, str]) -> ConfigFile:
    """The file that ``--config`` or its variable names, if any.

    Raises:
        ConfigurationError: the file cannot be read, is not TOML, or has unknown keys.
    """
    name = variables.get(_CONFIG.variable, "") if flag is None else str(flag)
    if flag is None and not name:
        return ConfigFile()
    if not name:
        raise ConfigurationError("--config: received an empty name; expected that of a TOML file [config]")
    import tomllib  # slow, and for this alone
    from pathlib import Path

    try:
        return ConfigFile(name, tomllib.loads(Path(name).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigurationError(f"--config: received {name!r}, which cannot be read: {fault} [config]") from fault
    except tomllib.TOMLDecodeError as fault:
        raise ConfigurationError(
            f"--config: received {name!r}, which is not TOML: {fault}. Expected lines such as max-restarts = 3, with "
            'texts in quotes: log-dir = "logs" [config]'
        ) from fault


def _with_dashes(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in content.items()}


def _refuse_unknown(values: Mapping[str, object], table: str, faults: FaultList) -> None:
    """Adds to `faults` the keys of that table that are no options."""
    of_jobs = {one.name: one for one in rows(JobOptions) if one != _CONFIG}
    known = {one.name: one for one in rows(targets()[table])} if table else of_jobs
    for key in values:
        if key in known:
            continue
        if table and key in of_jobs:
            fix = f"write it above [{table}]: it is an option of `paceline run`"
        elif key.removeprefix("no-") in known:
            fix = f"write {key.removeprefix('no-')} = false"
        elif not table and key in targets():
            fix = f"write [{key}], and its options on the lines below it"
        else:
            fix = _nearest(key, known.values()) or (
                f"`paceline {f'render {table}' if table else 'run'} --help` lists the options"
            )
        faults.add(f"[{table}] {key}" if table else key, shown(values[key]), "the name of an option", fix)


def _nearest(key: str, options: Iterable[Option]) -> str:
    from difflib import get_close_matches

    names = {one.name: one.name for one in options}
    names |= {spelling.lstrip("-"): one.name for one in options for spelling in one.spellings}
    return next((f"write {names[name]}" for name in get_close_matches(key, names, 1)), "")
