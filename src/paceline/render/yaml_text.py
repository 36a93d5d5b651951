"""YAML that every reader of YAML understands alike.

Versions of YAML disagree on which plain words are numbers and truth values (``1e3``, ``0o17``, ``y``, ``no``), and
Kubernetes reads another one than PyYAML writes. So a string stands plain only if none can take it for anything else.
"""

import re
from collections.abc import Sequence

import yaml

_SURE_TO_BE_A_STRING = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*", re.ASCII)
_WORDS_WITH_A_MEANING = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

_NO_FOLDING = 1 << 30


class _Dumper(yaml.SafeDumper):
    """Strings by our rule, lists indented below their key, and no aliases."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _SURE_TO_BE_A_STRING.fullmatch(text) and text.lower() not in _WORDS_WITH_A_MEANING
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_string)


def documents(objects: Sequence[object]) -> str:
    """`objects`, made of dicts, lists, strings, numbers and truth values, as one YAML stream.

    >>> print(documents([{"kind": "Job", "args": ["1e3", "y"]}]), end="")
    ---
    kind: Job
    args:
      - "1e3"
      - "y"
    """
    return yaml.dump_all(
        objects, Dumper=_Dumper, explicit_start=True, sort_keys=False, allow_unicode=True, width=_NO_FOLDING
    )
