"""Which backend Keras will take when workers import it, by the rules of Keras, and without importing it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from paceline.cluster.value_checks import Fault
from paceline.errors import ConfigurationError

TENSORFLOW = "tensorflow"


def check_keras_backend(variables: Mapping[str, str]) -> None:
    """Refuses a backend other than TensorFlow before any worker imports it.

    Variables read: KERAS_BACKEND, else KERAS_HOME or HOME, whose ``keras.json`` names one. A script that sets
    KERAS_BACKEND itself is found out later, when it imports Keras.

    Raises:
        ConfigurationError: Keras would take another backend.
    """
    field, backend = "KERAS_BACKEND", variables.get("KERAS_BACKEND")
    if not backend:
        file = _folder(variables) / "keras.json"
        field, backend = f'"backend" in {file}', _backend_in(file)
    if backend not in (None, TENSORFLOW):
        fault = Fault(
            field,
            repr(backend),
            f"{TENSORFLOW}, for Paceline trains Keras on TensorFlow",
            f"export KERAS_BACKEND={TENSORFLOW}",
        )
        raise ConfigurationError(f"{fault} [keras-backend]")


def _folder(variables: Mapping[str, str]) -> Path:
    if "KERAS_HOME" in variables:
        return Path(variables["KERAS_HOME"]).expanduser()
    home = Path(variables.get("HOME", "~")).expanduser()
    return (home if os.access(home, os.W_OK) else Path("/tmp")) / ".keras"


def _backend_in(file: Path) -> str | None:
    """None: there is no such file, it cannot be read, or it names none; Keras then takes TensorFlow or says so."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    backend = settings.get("backend") if isinstance(settings, dict) else None
    return backend if isinstance(backend, str) else None
