"""The order of computations on each stage, as the papers give it, for each schedule.

Every function returns one list per stage of (operation, chunk, micro-batch). In all of them a chunk meets the
micro-batches in ascending order, in F, in B and in W. So gradients are added in one order: the synchronous schedules
give the same bits, and a message needs no number. `tests/plan` compares the times with the theory.

Leaving out a micro-batch leaves an order that is right for the others. `interleaved` and `vee` use this: their patterns
are for certain numbers of micro-batches only, so they are drawn for more, and what is too much is left out.
"""

from collections.abc import Sequence

from paceline.plan.actions import Operation

F, B, W, BW = Operation.FORWARD, Operation.BACKWARD_INPUTS, Operation.BACKWARD_WEIGHTS, Operation.BACKWARD

Order = list[tuple[Operation, int, int]]


def all_forward_then_backward(stages: int, micro_batches: int) -> list[Order]:
    """GPipe (Huang et al. 2019), but backward in ascending order, too: see the module's docstring.

    stage 0: F0 F1 F2       BW0 BW1 BW2        each stage keeps what it stashed for all micro-batches
    """
    every = range(micro_batches)
    return [[(F, stage, n) for n in every] + [(BW, stage, n) for n in every] for stage in range(stages)]


def one_forward_one_backward(stages: int, micro_batches: int) -> list[Order]:
    """1F1B, PipeDream-Flush (Narayanan et al. 2021): stage s of S has at most S - s micro-batches at a time.

    stage 0 of 2: F0 F1     BW0 F2 BW1 F3 BW2     BW3
    stage 1 of 2:    F0 BW0 F1 BW1 F2 BW2  F3 BW3
    """
    return [_alternating(stage, stages - stage, micro_batches) for stage in range(stages)]


def _alternating(chunk: int, ahead: int, micro_batches: int) -> Order:
    """Forwards run `ahead` of backwards."""
    order: Order = [(F, chunk, number) for number in range(min(ahead, micro_batches))]
    for number in range(micro_batches):
        order.append((BW, chunk, number))
        if number + ahead < micro_batches:
            order.append((F, chunk, number + ahead))
    return order


def interleaved(stages: int, micro_batches: int, chunks_per_stage: int) -> list[Order]:
    """Interleaved 1F1B (Narayanan et al., Megatron-LM 2021): chunks go round the stages, so filling takes 1/v as long.

    A stage takes `stages` micro-batches through its first chunk, then the same through its second one, and so on;
    backwards the chunks come in the opposite order. The stash has at most (v + 1) * stages - 1 - 2 * stage entries.
    """
    full = -(-micro_batches // stages) * stages
    orders: list[Order] = []
    for stage in range(stages):
        turns = [
            (turn * stages + stage, first + offset)
            for first in range(0, full, stages)
            for turn in range(chunks_per_stage)
            for offset in range(stages)
        ]
        last = chunks_per_stage * stages - stages + 2 * stage  # mirrors the turns: first to last chunk of the stage
        forwards: Order = [(F, chunk, number) for chunk, number in turns]
        backwards: Order = [(BW, last - chunk, number) for chunk, number in turns]
        ahead = min(len(turns), 2 * (stages - stage - 1) + (chunks_per_stage - 1) * stages)
        order = forwards[:ahead]
        for forward, backward in zip(forwards[ahead:], backwards, strict=False):
            order += [forward, backward]
        orders.append(order + backwards[len(turns) - ahead :])
    return _only(orders, micro_batches)


def zero_bubble_h1(stages: int, micro_batches: int) -> list[Order]:
    """ZB-H1 (Qi et al., ICLR 2024): 1F1B whose W wait; stage s delays them by s, so that no B waits for one.

    Every stage has at most `stages` micro-batches: the later ones fill with W what 1F1B leaves them.
    """
    orders = []
    for stage in range(stages):
        ahead = stages - stage
        order: Order = [(F, stage, number) for number in range(min(ahead, micro_batches))]
        for number in range(micro_batches):
            order.append((B, stage, number))
            if number >= stage:
                order.append((W, stage, number - stage))
            if number + ahead < micro_batches:
                order.append((F, stage, number + ahead))
        order += [(W, stage, number) for number in range(max(0, micro_batches - stage), micro_batches)]
        orders.append(order)
    return orders


def zero_bubble_vee(stages: int, micro_batches: int) -> list[Order]:
    """ZB-V (Qi et al. 2024, "Pipeline parallelism with controllable memory"): a chunk on the way there, one on the way
    back. The first stage has both ends of the model, so a micro-batch's B can begin where its F ended. At most
    2 * `stages` chunks of micro-batches are stashed, each half as large as a stage's.
    """
    full = max(micro_batches, 2 * stages - 1)
    return [_vee_stage(stage, stages, micro_batches, full) for stage in range(stages)]


def _vee_stage(stage: int, stages: int, micro_batches: int, full: int) -> Order:
    """Drawn for `full` micro-batches, of which only `micro_batches` are in the order."""
    there, back = stage, 2 * stages - 1 - stage
    turns = [(operation, chunk) for chunk in (there, back) for operation in (F, B, W)]
    forward, inputs, weights, forward_back, inputs_back, weights_back = range(len(turns))
    done = [0] * len(turns)
    order: Order = []

    def take(*some: int) -> None:
        for turn in some:
            number = done[turn]
            done[turn] = number + 1
            if number < micro_batches:
                order.append((*turns[turn], number))

    for _ in range(2 * (stages - stage) - 1):  # until the first micro-batch is back
        take(forward)
    for _ in range(stage):
        take(forward_back, forward)
    for _ in range(stages - stage):
        take(forward_back, inputs_back, weights_back)
    while done[forward_back] < full:  # the steady state: six operations, no gap
        if done[forward] < full:
            take(forward)
        take(inputs, weights, forward_back, inputs_back, weights_back)
    for _ in range(stage):  # gradients first, for the stages that wait for them; weights fill the rest
        take(inputs, inputs_back)
    for _ in range(stages - stage):
        take(inputs, weights)
    for turn in (weights_back, weights):
        take(*[turn] * (full - done[turn]))
    return order


def _only(orders: Sequence[Order], micro_batches: int) -> list[Order]:
    return [[one for one in order if one[2] < micro_batches] for order in orders]
