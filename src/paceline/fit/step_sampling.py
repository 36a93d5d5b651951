"""Some steps of a `fit`, as the step clock has each of them: what `paceline predict` measures.

The script's callbacks are left out, as is its validation: nothing is written, and what is trained is thrown away.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array
from paceline.comm.stand_ins import StandInGroup
from paceline.comm.step_clock import NUM_STEPS, Phase
from paceline.comm.world import World, current_world
from paceline.errors import ConfigurationError
from paceline.fit.engine import engine_of
from paceline.fit.whole_batches import coming_batch
from paceline.plan.step_samples import Parts, StepSamples

_WARM_UP = 10
"""Steps that are not counted: the first ones are traced, make connections, and fill caches."""
_FEWEST_STEPS = 10
_SHORT_EPOCH = 2
"""An epoch of at most so many times the steps that are asked for: what its end takes weighs in the mean of a step."""
_MANY_EPOCHS = 1_000_000_000
_DRY_EPOCHS = 3
"""So many without a step: the data have come to their end. (A step is told of with the next one.)"""

_PHASES = {
    "input": [Phase.INPUT],
    "first_message": [Phase.COUNT],
    "compute": [Phase.COMPUTE, Phase.WHOLE],
    "messages": [Phase.MESSAGES],
    "update": [Phase.UPDATE],
    "between": [Phase.REST, Phase.CALLBACKS, Phase.AGREEMENT, Phase.SNAPSHOT],
}
"""Which phases of the clock belong to each of the `Parts`."""
_APART = [Phase.START, Phase.VALIDATION]


def samples_of_fit(
    fit: Callable[..., Any], model: Any, arguments: tuple[Any, ...], named: dict[str, Any], num_steps: int, batch: int
) -> StepSamples:
    """Trains for some steps, all of which are the same on all ranks, and returns what the clocks of the ranks say.

    Collective.

    Args:
        fit: `keras.Model.fit`, as a function.
        model: The script's.
        arguments: Those of the script for `fit`, by position.
        named: By name.
        num_steps: How many steps to return, behind those that warm up.
        batch: Rows of a global batch, in place of the script's; 0: as the script says.

    Raises:
        ConfigurationError: workers do not share the rows of batches here, the data end too soon, or have batches of
            their own, and others are asked for.
    """
    world = current_world()
    if not engine_of(model).takes_steps_here:
        raise ConfigurationError(
            "paceline predict knows jobs whose workers share the rows of each batch; with parameter servers and in "
            "pipelines, measure a real job with `paceline run`. [predict]"
        )
    given = inspect.signature(fit).bind(model, *arguments, **named).arguments
    if batch:
        if not _takes_batch_size(given.get("x")):
            raise ConfigurationError(
                "--batch: the first fit of the script is given data in batches, whose size only the script can change. "
                "Leave --batch out, or let an argument of the script say the size of its batches. [predict]"
            )
        given["batch_size"] = batch
    recorder = _Recorder(world, num_steps)
    changed = {
        "epochs": _MANY_EPOCHS,
        "initial_epoch": 0,
        "verbose": 0,
        "callbacks": [recorder],
        "validation_data": None,
        "validation_freq": _MANY_EPOCHS + 1,  # of a validation_split, whose rows are not trained on
    }
    fit(**{"self": model, **given, **changed})
    if len(recorder.steps) < min(num_steps, _FEWEST_STEPS):
        raise ConfigurationError(
            f"the first fit of the script made {recorder.num_heard} steps and then had no more data; a prediction "
            f"needs {_WARM_UP + _FEWEST_STEPS} or more. Give that fit more data. [predict]"
        )
    whole = coming_batch()
    return recorder.samples(whole.num_rows or whole.usual_num_rows)


def whole_epochs(per_epoch: int | None, num_steps: int) -> tuple[int, int] | None:
    """How many steps to leave out, besides those that warm up, and how many to count, of short epochs; None: of others.

    Of short epochs whole ones are counted, so that as many ends of epochs are among the steps as in a job. The first
    one is left out, with its end, where functions are traced.

    Args:
        per_epoch: Steps of an epoch; None: not known.
        num_steps: How many are asked for.

    >>> whole_epochs(None, 40), whole_epochs(1000, 40), whole_epochs(64, 40), whole_epochs(4, 40)
    (None, None, (54, 64), (2, 40))
    """
    if not per_epoch or per_epoch > _SHORT_EPOCH * num_steps:
        return None
    return -(-_WARM_UP // per_epoch) * per_epoch - _WARM_UP, -(-num_steps // per_epoch) * per_epoch


def with_even_ends(steps: Sequence[tuple[Parts, ...]]) -> list[tuple[Parts, ...]]:
    """Steps of whole epochs, whose ends are spread over them: a job has so many of them, and not by chance."""
    between = [fmean(parts.between for parts in rank) for rank in zip(*steps, strict=True)]
    return [tuple(parts._replace(between=mean) for parts, mean in zip(step, between, strict=True)) for step in steps]


def _takes_batch_size(x: Any) -> bool:
    """Whether Keras makes the batches of such data."""
    return not (hasattr(x, "element_spec") or isinstance(x, keras.utils.PyDataset | Iterator))


class _Recorder(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Hears what the clocks of all ranks tell, on every rank, and ends `fit` on all of them in the same step.

    The message that tells ends it, not a hook: hooks may run in a thread, and a rank might take a step more.
    """

    same_on_all_ranks = True

    def __init__(self, world: World, num_steps: int) -> None:
        super().__init__()
        self.steps: list[tuple[Parts, ...]] = []
        """Those that count, in seconds."""
        self.num_heard = 0
        self._world = world
        self._num_steps = num_steps
        self._of_epochs: tuple[int, int] | None = None
        """See `whole_epochs`."""
        self._began: npt.NDArray[np.int64] = self._sent()
        self._counted: npt.NDArray[np.int64] = self._began
        self._num_counted = 0
        self._num_dry_epochs = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """From now on the clocks tell this object."""
        del logs
        self._world.clock.hear = self._hear

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """A generator that has ended has epochs without steps."""
        del epoch, logs
        self._num_dry_epochs += 1
        self.model.stop_training = self.model.stop_training or self._num_dry_epochs > _DRY_EPOCHS

    def _hear(self, first: int, num_ranks: int, told: Array) -> None:
        """See `StepClock.hear`. Of many ranks each tells of several steps at once; the first ones are here."""
        if first:
            return
        present = self._world.data.num_present if num_ranks > 1 else 1
        # Integers are summed for the ranks that are missing, too: see `StandInGroup`.
        numbers = told[:present].astype(np.float64) * present / num_ranks
        num_steps = numbers[0, NUM_STEPS]
        self._num_dry_epochs = 0 if num_steps else self._num_dry_epochs
        self.num_heard += bool(num_steps)
        if self.num_heard <= _WARM_UP:
            self._began = self._sent()
        if self.num_heard == 1 and (per_epoch := self.params.get("steps")):  # an execution may be told as one step
            self._of_epochs = whole_epochs(round(per_epoch / float(num_steps)), self._num_steps)
        if self.num_heard <= _WARM_UP or not num_steps or numbers[:, _APART].any():
            return
        self._counted, self._num_counted = self._sent(), self.num_heard - _WARM_UP
        per_step = numbers / num_steps / 1e9
        self.steps.append(
            tuple(Parts(**{name: float(rank[phases].sum()) for name, phases in _PHASES.items()}) for rank in per_step)
        )
        if len(self.steps) >= sum(self._of_epochs or (self._num_steps,)):
            self.model.stop_training = True

    def _sent(self) -> npt.NDArray[np.int64]:
        group = self._world.group.inner if self._world.size > 1 else None
        if not isinstance(group, StandInGroup):
            return np.zeros(3, np.int64)
        return np.array([group.num_messages, group.reduced_bytes, group.gathered_bytes], np.int64)

    def samples(self, num_rows: int | None) -> StepSamples:
        """What was heard.

        Args:
            num_rows: Of a global batch; None: the data do not tell.
        """
        messages, reduced, gathered = ((self._counted - self._began) / max(self._num_counted, 1)).tolist()
        present, steps = len(self.steps[0]), self.steps[: self._num_steps]
        if self._of_epochs is not None and len(self.steps) >= sum(self._of_epochs):  # else the data have ended before
            steps = with_even_ends(self.steps[self._of_epochs[0] :][: self._of_epochs[1]])
        return StepSamples(self._world.size, present, num_rows, tuple(steps), messages, reduced, gathered)
