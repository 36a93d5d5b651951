"""Whether a plan is right: a check of any plan, whoever made it, that shares nothing with how plans are made."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from plan_deadlocks import deadlocks

from paceline.plan.actions import Compute, Message, Operation, Plan, Receive, Send, Update
from paceline.plan.shape import Shape

F, R, B, W, BW = (
    Operation.FORWARD,
    Operation.RECOMPUTE,
    Operation.BACKWARD_INPUTS,
    Operation.BACKWARD_WEIGHTS,
    Operation.BACKWARD,
)


Made = tuple[str, int, int]
"""The activation or gradient of a chunk and micro-batch."""


def faults(plan: Plan) -> list[str]:
    """Everything that is wrong with a plan, one sentence each; empty: the plan computes what it should.

    - Each chunk has each micro-batch's F once and either BW once, or B and W once each, on its own stage.
    - What a computation reads is there: made before on this stage, or received. What other stages need is sent.
    - The n-th message received with a tag is the n-th that was sent with it.
    - An update follows the whole backward of its batch, and comes before any backward of the next one.
    - F, R, B and W of a micro-batch use one version of the weights, which has been made.
    - All stages reach the end of their lists if sends do not wait (see `plan_deadlocks.py` for sends that do).
    """
    found = [] if len(plan.actions) == plan.shape.num_stages else [f"{len(plan.actions)} stages have actions"]
    for stage in range(len(plan.actions)):
        for check in (_computations, _dependencies, _updates, _versions):
            found += [f"stage {stage}: {fault}" for fault in check(plan, stage)]
    return found + list(_messages(plan)) + [f"deadlock: {fault}" for fault in deadlocks(plan)]


def _computations(plan: Plan, stage: int) -> Iterator[str]:
    counts = Counter((one.operation, one.chunk, one.micro_batch) for one in plan.computations(stage))
    numbers = range(plan.micro_batches * plan.batches)
    expected = {(chunk, number) for chunk in plan.shape.chunks_of(stage) for number in numbers}
    for operation, chunk, number in counts:
        if (chunk, number) not in expected:
            yield f"{operation.value} of chunk {chunk}, micro-batch {number}, is not its work"
    for chunk, number in sorted(expected):
        times = {operation: counts[operation, chunk, number] for operation in Operation}
        whole, split = (times[BW], times[B], times[W]) == (1, 0, 0), (times[BW], times[B], times[W]) == (0, 1, 1)
        if times[F] != 1 or times[R] > 1 or not (whole or split):
            counted = {operation.value: count for operation, count in times.items() if count}
            yield f"chunk {chunk} has of micro-batch {number} {counted or 'nothing'}"
    for operation in (F, B, W, BW):
        for chunk in plan.shape.chunks_of(stage):
            numbers = [number for one, where, number in counts if (one, where) == (operation, chunk)]
            if numbers != sorted(numbers):
                yield f"{operation.value} of chunk {chunk} does not take the micro-batches in ascending order"


def _dependencies(plan: Plan, stage: int) -> Iterator[str]:
    """Walks the list and remembers what is there: activations and gradients, made or received."""
    there, messages = set[Made](), set[Message]()
    for action in plan.actions[stage]:
        match action:
            case Receive(message):
                messages.add(message)
            case Send(message):
                maker = ("gradient", message.target) if message.is_gradient else ("activation", message.source)
                if (*maker, message.micro_batch) not in there:
                    yield f"{action} sends what has not been computed"
            case Compute(operation, chunk, number):
                needed, remote = _needs(plan.shape, stage, action)
                if missing := [*(needed - there), *(remote - messages)]:
                    yield f"{action} comes before {missing}"
                if operation is R and ("gradient", chunk, number) in there:
                    yield f"{action} comes after the backward"
                there.add(("activation" if operation in (F, R) else "gradient", chunk, number))


def _needs(shape: Shape, stage: int, one: Compute) -> tuple[set[Made], set[Message]]:
    """What a computation needs of this stage, and of others."""
    chunk, number = one.chunk, one.micro_batch
    needed: set[Made] = set() if one.operation is F else {("activation", chunk, number)}
    edges: list[tuple[str, int, Message]] = []
    if one.operation is F:
        edges = [("activation", source, Message(source, chunk, number, False)) for source in shape.sources_of(chunk)]
    elif one.operation.gives_input_gradients:
        edges = [("gradient", target, Message(chunk, target, number, True)) for target in shape.targets_of(chunk)]
    elif one.operation is W:
        needed.add(("gradient", chunk, number))
    needed |= {(kind, other, number) for kind, other, _ in edges if shape.stage_of[other] == stage}
    return needed, {message for _, other, message in edges if shape.stage_of[other] != stage}


def _updates(plan: Plan, stage: int) -> Iterator[str]:
    made = [action.version for action in plan.actions[stage] if isinstance(action, Update)]
    if made != list(range(1, plan.batches + 1)):
        yield f"the updates make the versions {made}, not 1 to {plan.batches}"
        return
    version = 0
    for action in plan.actions[stage]:
        if isinstance(action, Update):
            version = action.version
        elif isinstance(action, Compute) and action.operation.gives_weight_gradients:
            batch = action.micro_batch // plan.micro_batches
            if batch != version:
                yield f"{action} of batch {batch} adds to the gradients of batch {version}"


def _versions(plan: Plan, stage: int) -> Iterator[str]:
    used: dict[tuple[int, int], int] = {}
    newest = 0
    for action in plan.actions[stage]:
        if isinstance(action, Update):
            newest = action.version
        elif isinstance(action, Compute):
            if used.setdefault((action.chunk, action.micro_batch), action.version) != action.version:
                yield f"{action} uses another version of the weights than the forward"
            if not 0 <= action.version <= newest:
                yield f"{action} uses a version of the weights that has not been made"


def _messages(plan: Plan) -> Iterator[str]:
    """What each stage sends to each other one with each tag is what that one receives, in this order."""
    sent: dict[tuple[int, int, int], list[Message]] = {}
    received: dict[tuple[int, int, int], list[Message]] = {}
    for stage, actions in enumerate(plan.actions):
        for action in actions:
            if isinstance(action, Send):
                sent.setdefault((stage, action.peer, action.tag), []).append(action.message)
            elif isinstance(action, Receive):
                received.setdefault((action.peer, stage, action.tag), []).append(action.message)
    for way in sorted(sent.keys() | received.keys()):
        if sent.get(way, []) != received.get(way, []):
            yield "stage {} sends stage {} with tag {} other messages than are received".format(*way)
    once = Counter(message for messages in received.values() for message in messages)
    if twice := [message for message, count in once.items() if count > 1]:
        yield f"{twice} are received twice"
    for messages in sent.values():
        for earlier, later in pairwise(messages):
            if (earlier.source, earlier.target, earlier.is_gradient) != (later.source, later.target, later.is_gradient):
                yield f"{earlier} and {later} have one tag"
                break
