"""``python -P -m paceline.bootstrap.data_profiling RESULT SECONDS SCRIPT [ARGUMENTS]``: `paceline data profile` inside.

Runs the script up to its first `fit`, which measures the data that it is given in place of training: alone, and with
the model. RESULT is a file for the profile as JSON, SECONDS how long each measurement takes. What is wrong is said
here, on stderr; the exit code says that it was.
"""

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.bootstrap.progress_line import ProgressLine
from paceline.errors import EXIT_CONFIGURATION, EXIT_FAILED, ConfigurationError
from paceline.importing import after_import
from paceline.wire.codec import encode


def main(result: Path, seconds: float, script: Path, arguments: list[str]) -> None:
    """Runs `script`; ends the process."""
    os.dup2(2, 1)  # what the script prints is no part of the profile
    os.environ.pop("PACELINE_SNAPSHOT_DIR", None)  # what is trained here is thrown away

    def measure(fit: Callable[..., Any], model: Any, x: Any) -> None:
        from paceline.data.timing.profiling import profile_for
        from paceline.fit.training_speed import speed_in_fit

        print("paceline: measuring the data of the first fit ...", file=sys.stderr, flush=True)
        try:
            with ProgressLine(sys.stderr) as line:
                found = profile_for(x, speed_in_fit(model, fit, seconds), seconds, line.tell)
            result.write_bytes(encode(found))
        except ConfigurationError as refusal:
            print(f"paceline: {refusal}", file=sys.stderr)
            raise SystemExit(EXIT_CONFIGURATION) from None
        raise SystemExit(0)

    def install(keras: Any) -> None:
        from paceline.seams.install import install_with_keras

        install_with_keras()
        fit = keras.Model.fit

        def measured(model: Any, x: Any = None, *_: Any, **__: Any) -> None:
            measure(fit, model, x)

        keras.Model.fit = measured

    after_import("keras", install)
    sys.path.insert(0, str(script.resolve().parent))
    sys.argv[:] = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
    print(f"paceline: {script} has ended without a call of fit: nothing to profile. [data-profile]", file=sys.stderr)
    raise SystemExit(EXIT_FAILED)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
