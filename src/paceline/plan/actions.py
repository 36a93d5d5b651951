"""The words of a plan: what a stage computes, sends, receives and updates. Which order is right is no matter here.

Legend, as in the papers: F forward, B gradients of the inputs, W gradients of the weights, BW both in one call,
R forward again (recomputation).
"""

import enum
import functools
from dataclasses import dataclass

from paceline.plan.shape import Shape


class Operation(enum.Enum):
    """What is computed for one micro-batch in one chunk."""

    FORWARD = "F"
    RECOMPUTE = "R"
    BACKWARD_INPUTS = "B"
    BACKWARD_WEIGHTS = "W"
    BACKWARD = "BW"

    # Members are singletons. The hash of `Enum` is computed in Python, and plans look millions of operations up.
    __hash__ = object.__hash__

    @property
    def gives_input_gradients(self) -> bool:
        """Whether the chunks before can continue with the result."""
        return self in (Operation.BACKWARD, Operation.BACKWARD_INPUTS)

    @property
    def gives_weight_gradients(self) -> bool:
        """Whether the result is added to the gradients of the batch; nothing of the micro-batch is kept afterwards."""
        return self in (Operation.BACKWARD, Operation.BACKWARD_WEIGHTS)


@dataclass(frozen=True, slots=True)
class Compute:
    """One operation on one micro-batch in one chunk.

    Args:
        operation: What.
        chunk: Where; a chunk of this stage.
        micro_batch: Counted from the beginning of the plan, over all its batches.
        version: Of the weights: 0 at the beginning of the plan, N after its N-th update. F, R, B and W of one
            micro-batch use one version.
    """

    operation: Operation
    chunk: int
    micro_batch: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """What one chunk hands to another one for one micro-batch: all tensors that go from `source` to `target`.

    Args:
        source: The chunk whose forward computed the tensors.
        target: The chunk that reads them.
        micro_batch: Theirs.
        is_gradient: False: the tensors, from `source` to `target`; True: their gradients, from `target` to `source`.
    """

    source: int
    target: int
    micro_batch: int
    is_gradient: bool


@dataclass(frozen=True, slots=True)
class Send:
    """Begins to send; nobody waits for the end. `peer` is a stage; messages of one tag arrive in the order sent."""

    message: Message
    peer: int
    tag: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Waits for a message. An executor may ask for the message earlier, in the order of the plan for each tag."""

    message: Message
    peer: int
    tag: int


@dataclass(frozen=True, slots=True)
class Update:
    """The optimizer's step with the gradients of one batch; makes `version` from the version before."""

    version: int


Action = Compute | Send | Receive | Update


@dataclass(frozen=True)
class Plan:
    """What every stage does, in order.

    Args:
        schedule: Its name.
        shape: Chunks, stages, and which chunk hands something to which.
        micro_batches: Of one batch.
        batches: How many batches the plan has; an update follows each.
        actions: By stage.
    """

    schedule: str
    shape: Shape
    micro_batches: int
    batches: int
    actions: tuple[tuple[Action, ...], ...]

    def computations(self, stage: int) -> list[Compute]:
        """What `stage` computes, in order."""
        return [action for action in self.actions[stage] if isinstance(action, Compute)]

    def place_of(self, action: Action) -> tuple[int, int]:
        """The batch that an action is for, and which of its micro-batches; of an update the first.

        A plan without all actions of the last micro-batches of a batch, or of the last batches, is right for the rest.
        """
        match action:
            case Compute():
                return divmod(action.micro_batch, self.micro_batches)
            case Update(version):
                return version - 1, 0
            case _:
                return divmod(action.message.micro_batch, self.micro_batches)

    def last_uses(self, stage: int) -> dict[int, int]:
        """By version of the weights, where in the list of `stage` something is computed with it for the last time."""
        return {
            action.version: index for index, action in enumerate(self.actions[stage]) if isinstance(action, Compute)
        }

    @functools.cached_property
    def batches_begun(self) -> list[int]:
        """By number of updates made, how many batches the first stage, ahead of all others, begins before the next."""
        begun = [0]
        for action in self.actions[0]:
            if isinstance(action, Update):
                begun.append(begun[-1])
            else:
                begun[-1] = max(begun[-1], self.place_of(action)[0] + 1)
        return begun
