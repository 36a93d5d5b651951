"""The states of seed generators: the chief hands each step the states that it would have in one process.

The chief moves a generator on by as many draws as a step makes. So each step draws other numbers, and which numbers
does not depend on the worker that takes the step, nor on the workers' speed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_FACTOR, _MODULUS = 5387, 933199
"""Of Keras's own generator for layers and calls without a seed (`SeedGenerator.next(ordered=False)`)."""


def moved_on(state: Any, draws: Sequence[bool]) -> Any:
    """The state after `draws`, each ordered or not, as `keras.random.SeedGenerator.next` leaves it; pure.

    Args:
        state: Two integers.
        draws: Whether each is an ordered one.
    """
    for ordered in draws:
        state = state + np.array([0, 1], state.dtype) if ordered else (state + 1) * _FACTOR % _MODULUS
    return state


class GeneratorStates:
    """Of the generators that a step draws from.

    Args:
        generators: Keras's, whose states lie on the chief.
    """

    def __init__(self, generators: Sequence[Any]) -> None:
        self._generators = generators

    def dispatched(self, num_steps: int, draws: Mapping[int, Sequence[bool]]) -> Any:
        """The states for the next execution; moves the generators on behind its steps.

        Args:
            num_steps: Of the execution.
            draws: Of one step, by the identity of the generator.

        Returns:
            int64 array of shape (generators, 2).
        """
        states = np.zeros((len(self._generators), 2), np.int64)
        for index, generator in enumerate(self._generators):
            if not (of_step := draws.get(id(generator), ())):
                continue  # no step reads its state
            state = states[index] = generator.state.numpy().astype(np.int64)
            for _ in range(num_steps):
                state = moved_on(state, of_step)
            generator.state.assign(state.astype(generator.state._value.dtype.as_numpy_dtype))
        return states
