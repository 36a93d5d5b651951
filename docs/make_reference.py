"""Writes docs/reference.md, and the tables of docs/events.md, from the code.

make docs
"""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import typer.main

import paceline
from paceline.cli.config_file import targets
from paceline.cli.verbs import app
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import Option, rows
from paceline.events import head_events, worker_events
from paceline.render.training_run import rendered_options

PAGE = Path(__file__).with_name("reference.md")
EVENTS_PAGE = Path(__file__).with_name("events.md")
PACKAGE = Path(paceline.__file__).parent

TOLD = "Told to a worker: "
"""How the texts of variables begin that users do not set."""

INTRODUCTION = """\
# Reference

All commands and options, environment variables and exit codes. Generated from the code by `make docs`: do not edit.

Options may be written with `-` or `_`: `--max-restarts` or `--max_restarts`. Arguments after the script belong to
the script. `--no-verbose` turns off `--verbose`, and so for every flag, if a variable or a file has turned it on.
`paceline --install-completion` installs completion of commands and options in your shell.
"""

VARIABLES_OF_OPTIONS = """\
Every option of `paceline run` can be set by a variable, or by a line in a file of `--config`. The command line comes
before the variables, these before the file, and the file before the default. An empty variable counts as absent.
Several values of `--env` are separated by white space, of `--chaos` by `;`. Variables for options of a target of
`paceline render` begin with its name: `PACELINE_SLURM_TIME`, `PACELINE_KUBERNETES_IMAGE`. If a script itself starts
`paceline run`, the second job does not take over the options of the first.

In the file, `script` and `arguments` stand for SCRIPT and ARGS:

```toml
script = "train.py"
arguments = ["--epochs", "3"]
workers = 4
max-restarts = 3
snapshot-dir = "snapshots"

[kubernetes]
image = "team/train:1"
```"""

Row = tuple[str, ...]


def reference() -> str:
    """The page."""
    root = typer.main.get_command(app)
    return "\n".join(
        (
            INTRODUCTION,
            *_commands(root),
            *_variables(),
            *_exit_codes(),
        )
    )


def _commands(root: Any) -> Iterator[str]:
    yield from _verb("paceline", root)
    for name, verb in _children(root):
        if name == "run":
            yield from _run(verb)
        elif name != "render":
            yield from _verb(f"paceline {name}", verb)
            for below, one in _children(verb):
                yield from _verb(f"paceline {name} {below}", one)
    yield from _renders(dict(_children(root))["render"])


def _renders(group: Any) -> Iterator[str]:
    """Its verbs have most options in common; these are listed once."""
    verbs = dict(_children(group))
    common = [option for option in rendered_options() if option.attribute != "config"]
    links = ", ".join(f"`{option.flag}`" for option in common)
    yield from ("## paceline render", "", _first_paragraph(group.help), "")
    yield f"Every target has these options of `paceline run`, which hold for each host: `--config`, {links}. Also:"
    yield from (
        "",
        "| option | default | does |",
        "|---|---|---|",
        "| `--output FILE`, `-o` |  | Write to this file. Default: standard output. |",
        "",
    )
    for name, table in targets().items():
        yield from (f"## paceline render {name}", "", _first_paragraph(verbs[name].help), "")
        yield f"A file of `--config` may have these options in its table `[{name}]`."
        yield from ("", *_of_table(rows(table)))


def _run(verb: Any) -> Iterator[str]:
    yield from ("## paceline run", "", _first_paragraph(verb.help), "")
    yield from _table(
        ("argument", "is"), [(f"`{one.metavar}`", one.help) for one in verb.params if one.param_type_name == "argument"]
    )
    for group, options in itertools.groupby(_by_group(rows(JobOptions)), lambda option: option.group):
        yield from (f"{group}:", "", *_of_table(options))


def _by_group(options: Iterable[Option]) -> list[Option]:
    groups = list(dict.fromkeys(option.group for option in options))
    return sorted(options, key=lambda option: groups.index(option.group))


def _of_table(options: Iterable[Option]) -> Iterator[str]:
    """Each option with its spellings, default, and what it does; its variable follows from its name."""
    yield from _table(
        ("option", "default", "does"),
        [(", ".join(_spellings(option)), _default_of(option), option.help) for option in options],
    )


def _spellings(option: Option) -> list[str]:
    main = f"{option.flag} {option.placeholder}" if option.placeholder else option.flag
    negative = [f"--no-{option.name}"] if option.default is True else []
    further = sorted(option.spellings, key=lambda spelling: not spelling.startswith("--"))
    return [f"`{spelling}`" for spelling in (main, *negative, *further)]


def _default_of(option: Option) -> str:
    if option.is_required:
        return "must be given"
    has_none = option.default is None or option.default is False or option.default == ()
    return "" if has_none else f"`{option.flag if option.default is True else option.to_text(option.default)}`"


def _verb(words: str, verb: Any) -> Iterator[str]:
    yield from (f"## {words}", "", _first_paragraph(verb.help), "")
    arguments = [(f"`{one.metavar}`", one.help or "") for one in verb.params if one.param_type_name == "argument"]
    if arguments:
        yield from _table(("argument", "is"), arguments)
    for panel, options in _options(verb).items():
        yield from (f"{panel}:", "") if panel else ()
        yield from _table(("option", "default", "does"), options)


def _options(verb: Any) -> dict[str, list[Row]]:
    """The rows of the table, by the heading under which `--help` lists them; empty: the usual one."""
    panels: dict[str, list[Row]] = {}
    for one in verb.params:
        if one.param_type_name == "option" and "completion" not in one.name:  # typer's, in its version's words
            longest_first = sorted(one.opts, key=lambda spelling: not spelling.startswith("--"))
            spellings = [f"`{spelling}`" for spelling in (*longest_first, *one.secondary_opts)]
            value = one.metavar or "\\|".join(getattr(one.type, "choices", ()))
            if value and not getattr(one, "is_flag", False):
                spellings[0] = f"`{longest_first[0]} {value}`"
            panels.setdefault(one.rich_help_panel or "", []).append(
                (", ".join(spellings), _default(one), one.help or "")
            )
    return panels


def _default(option: Any) -> str:
    default = getattr(option.default, "value", option.default)
    if default is None or default is False or not option.show_default:
        return ""
    return f"`{option.opts[0] if default is True else default}`"


def _children(group: Any) -> list[tuple[str, Any]]:
    if not hasattr(group, "list_commands"):
        return []
    context = group.make_context("paceline", [], resilient_parsing=True)
    return [(name, group.get_command(context, name)) for name in group.list_commands(context)]


RANK_VARIABLES = (
    "Workers have RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as under torchrun, with `--rank-variables` only. "
    "Without it those of a launcher around the job are taken away, too: data libraries that read them would divide the "
    "data a second time ([why](decisions/0035-no-rank-variables.md)). `paceline.rank()`, `paceline.world_size()` and "
    "`paceline.local_rank()` say the same, also in a script that runs alone."
)


def _variables() -> Iterator[str]:
    texts = documented_names(PACKAGE / "cluster" / "environment.py")
    yours = [(f"`{value}`", text) for _, value, text in texts if not text.startswith(TOLD)]
    told = [(f"`{value}`", _sentence(text.removeprefix(TOLD))) for _, value, text in texts if text.startswith(TOLD)]
    of_options = [
        (f"`{option.variable}`", f"`{option.flag}{'' if option.placeholder else '`, if it is `1'}`", option.use.value)
        for option in rows(JobOptions)
    ]
    yield from ("## Environment variables", "", VARIABLES_OF_OPTIONS, "")
    yield from _table(("variable", "option", "used by"), of_options)
    yield from ("Variables without an option, which you may set:", "")
    yield from _table(("variable", "says"), yours)
    yield from ("Paceline sets these for its workers; a script may read them:", "")
    yield from _table(("variable", "says"), told)
    yield from (RANK_VARIABLES, "")


def _exit_codes() -> Iterator[str]:
    codes = [row for row in documented_names(PACKAGE / "errors.py") if row[0].startswith("EXIT_")]
    rows = [("128 + N" if name == "EXIT_SIGNALLED" else value, text) for name, value, text in codes]
    yield from (
        "## Exit codes",
        "",
        "If the first worker that fails exits with another code (`sys.exit(3)`), the job exits with that code.",
        "",
    )
    yield from _table(("code", "means"), [("0", "All workers succeeded."), *rows])


def events_page() -> str:
    """The page of events, with its tables as the records are now."""
    text = EVENTS_PAGE.read_text(encoding="utf-8")
    for module, union in ((worker_events, "FromWorker"), (head_events, "FromHead")):
        fields, heads = _fields_of_events(module), ("event", "means", "keys")
        table = "\n".join(_table(heads, [fields[one.__name__] for one in get_args(getattr(module, union))]))
        start = f"<!-- {union}: written by `make docs` -->\n"
        before, rest = text.split(start)
        text = f"{before}{start}\n{table}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return text


def _fields_of_events(module: ModuleType) -> dict[str, Row]:
    """By name: the name of each event, what it means, and its own fields with their texts."""
    body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    found = {}
    for one in body:
        if isinstance(one, ast.ClassDef):
            keys = []
            for field, below in itertools.pairwise(one.body):
                match field, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        keys.append(f"`{name}`: {text.rstrip('.')}")
            found[one.name] = (f"`{one.name}`", ast.get_docstring(one) or "", "; ".join(keys))
    return found


def documented_names(path: Path) -> list[Row]:
    """Name, value and text of each constant of the module that has a text below it."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    found = []
    for one, below in itertools.pairwise(body):
        match one, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found.append((name, str(value), " ".join(text.split())))
    return found


def _table(heads: Row, rows: list[Row]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        cells = (re.sub(r"(?<!\\)([|*])", r"\\\1", " ".join(cell.replace("``", "`").split())) for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    EVENTS_PAGE.write_text(events_page(), encoding="utf-8")
