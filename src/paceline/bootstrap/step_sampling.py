"""The program of each worker of a short job of `paceline predict`: the script up to its first `fit`, and some steps.

    paceline run --workers 2 -m paceline.bootstrap.step_sampling RESULT SIZE STEPS BATCH SCRIPT [ARGUMENTS]

RESULT is a file for the `StepSamples` as JSON, SIZE how many ranks the job has for whom these workers stand in, STEPS
how many are measured, BATCH the rows of a global batch or 0.
"""

import os
import sys
from pathlib import Path
from typing import Any

from paceline.bootstrap.worker import run_script
from paceline.cluster import environment
from paceline.comm.world import current_world
from paceline.errors import ConfigurationError
from paceline.importing import after_import
from paceline.wire.codec import encode


def main(result: Path, size: int, num_steps: int, batch: int, program: list[str]) -> None:
    """Runs the script up to its first `fit`; raises `SystemExit` there.

    Raises:
        ConfigurationError: the script has no `fit`, or one that cannot be predicted.
    """
    world = current_world()
    if size > 1:
        world.stand_in(size)
        if world.place is not None:  # the script may read how many workers there are, and multiply its batch by that
            cluster, task = world.place
            os.environ[environment.TF_CONFIG] = cluster.to_tf_config(task)
        os.environ[environment.WORLD_SIZE] = str(size)

    def install(keras: Any) -> None:
        fit = keras.Model.fit

        def sampled(model: Any, *arguments: Any, **named: Any) -> None:
            from paceline.fit.step_sampling import samples_of_fit

            samples = samples_of_fit(fit, model, arguments, named, num_steps, batch)
            if world.is_chief:
                result.write_bytes(encode(samples))
            raise SystemExit(0)

        keras.Model.fit = sampled

    after_import("keras", install)
    sys.path.pop(0)  # the folder that -m has put there: the script would not see it
    run_script(program)
    raise ConfigurationError(f"{program[0]} has ended without a call of fit: nothing to predict. [predict]")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
