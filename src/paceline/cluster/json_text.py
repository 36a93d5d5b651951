"""The JSON text of TF_CONFIG as a value, and what to do about a text that is none.

Almost every broken TF_CONFIG was broken on its way here: printed by Python with single quotes, or its double
quotes eaten by a shell. So the fault says which of these it looks like. What the value means is for
``tf_config.py``.
"""

import json
from collections import Counter

from paceline.cluster.value_checks import FaultList, shown

EXAMPLE_VALUE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
"""A whole TF_CONFIG, for messages."""

_EXAMPLE = f"TF_CONFIG='{EXAMPLE_VALUE}'"
_MAX_EXAMPLE_CHARACTERS = 300
_EXCERPT_CHARACTERS = 20


class JsonObject(dict[str, object]):
    """A JSON object that remembers the keys written more than once, of which JSON keeps the last silently."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.repeated_keys = tuple(key for key, count in counts.items() if count > 1)


def load_json(setting: str, text: str) -> object:
    """The value of a JSON `text`; its objects are `JsonObject`.

    Raises:
        ConfigurationError: `text` is not JSON; tells where, and what it looks like. Nothing else is raised.
    """
    faults = FaultList(setting, "[tf-config]")
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        excerpt = error.doc[error.pos : error.pos + _EXCERPT_CHARACTERS]
        faults.add(
            field=f"line {error.lineno}, column {error.colno}",
            received=shown(excerpt) if excerpt else "the end of the text",
            expected=f"valid JSON ({error.msg})",
            fix=_repair(error.doc.strip()),
        )
        raise faults.error() from error
    except RecursionError as error:
        faults.add("the whole text", shown(text), "an object with `cluster` and `task`", "remove the nesting")
        raise faults.error() from error
    except (ValueError, TypeError) as error:  # an integer of thousands of digits; bytes that are no text
        faults.add("the whole text", shown(text), "JSON text", f"write it like {_EXAMPLE}")
        raise faults.error() from error


def _loads(text: str) -> object:
    value: object = json.loads(text, object_pairs_hook=JsonObject)
    return value


def _repair(text: str) -> str:
    """What most likely happened to a `text` that is not JSON, and how to write it."""
    if len(text) > 1 and text[0] == text[-1] == "'" and _is_json(text[1:-1]):
        return "remove the single quotes around the value: they belong to the shell, not to the text"
    if "'" in text:
        repaired = text.replace("'", '"')
        short = len(repaired) <= _MAX_EXAMPLE_CHARACTERS and repaired.isascii() and repaired.isprintable()
        example = f"TF_CONFIG='{repaired}'" if short and _is_json(repaired) else _EXAMPLE
        return f"use double quotes inside, as json.dumps does, and single quotes around, as in {example}"
    if text.startswith("{") and '"' not in text and text != "{":
        return f"put single quotes around it, or the shell takes the double quotes, as in {_EXAMPLE}"
    return f"correct the text there, or let json.dumps write it, as in {_EXAMPLE}"


def _is_json(text: str) -> bool:
    try:
        _loads(text)
    except (ValueError, RecursionError):
        return False
    return True
