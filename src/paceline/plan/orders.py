"""The order of computations on each stage, as the papers give it, for each schedule.

Every function returns one order per stage, as runs of turns: long plans of many stages have millions of turns, most of
which are the same few again and again. In all of them a chunk meets the micro-batches in ascending order, in F, in B
and in W, so the n-th turn of a kind is for micro-batch n. Gradients are added in one order: the synchronous schedules
give the same bits, and a message needs no number. `tests/plan` compares the times with the theory.

Leaving out a micro-batch leaves an order that is right for the others. Patterns that are for certain numbers of
micro-batches only are drawn for more, and what is too much is left out.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat

from paceline.plan.actions import Operation

F, B, W, BW = Operation.FORWARD, Operation.BACKWARD_INPUTS, Operation.BACKWARD_WEIGHTS, Operation.BACKWARD

Turn = tuple[Operation, int]
"""What is computed, and in which chunk."""

Run = tuple[int, tuple[Turn, ...]]
"""How many times, and what, in order."""

Order = list[Run]


def turns_of(order: Iterable[Run]) -> Iterator[Turn]:
    """All turns, one by one."""
    return chain.from_iterable(chain.from_iterable(repeat(turns, number)) for number, turns in order)


def all_forward_then_backward(stages: int, micro_batches: int) -> list[Order]:
    """GPipe (Huang et al. 2019), but backward in ascending order, too: see the module's docstring.

    stage 0: F0 F1 F2       BW0 BW1 BW2        each stage keeps what it stashed for all micro-batches
    """
    return [[(micro_batches, ((F, stage),)), (micro_batches, ((BW, stage),))] for stage in range(stages)]


def one_forward_one_backward(stages: int, micro_batches: int) -> list[Order]:
    """1F1B, PipeDream-Flush (Narayanan et al. 2021): stage s of S has at most S - s micro-batches at a time.

    stage 0 of 2: F0 F1     BW0 F2 BW1 F3 BW2     BW3
    stage 1 of 2:    F0 BW0 F1 BW1 F2 BW2  F3 BW3
    """

    def order(stage: int) -> Order:
        forward, backward = (F, stage), (BW, stage)
        ahead = min(stages - stage, micro_batches)
        return [(ahead, (forward,)), (micro_batches - ahead, (backward, forward)), (ahead, (backward,))]

    return [order(stage) for stage in range(stages)]


def interleaved(stages: int, micro_batches: int, chunks_per_stage: int) -> list[Order]:
    """Interleaved 1F1B (Narayanan et al., Megatron-LM 2021): chunks go round the stages, so filling takes 1/v as long.

    A stage takes `stages` micro-batches through its first chunk, then the same through its second one, and so on;
    backwards the chunks come in the opposite order. The stash has at most (v + 1) * stages - 1 - 2 * stage entries.
    """
    rounds = -(-micro_batches // stages)
    turns = rounds * stages * chunks_per_stage

    def order(stage: int) -> Order:
        chunks = range(stage, stages * chunks_per_stage, stages)
        forwards = turns_of([(rounds, tuple((F, chunk) for chunk in chunks for _ in range(stages)))])
        backwards = turns_of([(rounds, tuple((BW, chunk) for chunk in reversed(chunks) for _ in range(stages)))])
        ahead = min(turns, 2 * (stages - stage - 1) + (chunks_per_stage - 1) * stages)
        first = tuple(islice(forwards, ahead))
        # The first iterator that `zip` asks ends first: it takes none of the backwards that are left.
        pairs = tuple(chain.from_iterable(zip(forwards, backwards, strict=False)))
        return _limited(micro_batches, rounds * stages, (1, first), (1, pairs), (1, tuple(backwards)))

    return [order(stage) for stage in range(stages)]


def zero_bubble_h1(stages: int, micro_batches: int) -> list[Order]:
    """ZB-H1 (Qi et al., ICLR 2024): 1F1B whose W wait; stage s delays them by s, so that no B waits for one.

    Every stage has at most `stages` micro-batches: the later ones fill with W what 1F1B leaves them.
    """

    def order(stage: int) -> Order:
        forward, inputs, weights = (F, stage), (B, stage), (W, stage)
        ahead = stages - stage
        return _limited(
            micro_batches,
            max(micro_batches, stages),
            (ahead, (forward,)),
            (stage, (inputs, forward)),
            (micro_batches - stages, (inputs, weights, forward)),
            (ahead, (inputs, weights)),
            (stage, (weights,)),
        )

    return [order(stage) for stage in range(stages)]


def zero_bubble_vee(stages: int, micro_batches: int) -> list[Order]:
    """ZB-V (Qi et al. 2024, "Pipeline parallelism with controllable memory"): a chunk on the way there, one on the way
    back. The first stage has both ends of the model, so a micro-batch's B can begin where its F ended. At most
    2 * `stages` chunks of micro-batches are stashed, each half as large as a stage's.
    """
    full = max(micro_batches, 2 * stages - 1)

    def order(stage: int) -> Order:
        forward, inputs, weights = ((operation, stage) for operation in (F, B, W))
        forward_back, inputs_back, weights_back = ((operation, 2 * stages - 1 - stage) for operation in (F, B, W))
        behind = stages - stage
        back = forward_back, inputs_back, weights_back
        return _limited(
            micro_batches,
            full,
            (2 * behind - 1, (forward,)),  # until the first micro-batch is back
            (stage, (forward_back, forward)),
            (behind, back),
            (full - stages - behind + 1, (forward, inputs, weights, *back)),  # the steady state: no gap
            (behind - 1, (inputs, weights, *back)),
            (stage, (inputs, inputs_back)),  # gradients first, for the stages that wait for them
            (behind, (inputs, weights)),  # weights fill the rest
            (stage, (weights_back,)),
            (stage, (weights,)),
        )

    return [order(stage) for stage in range(stages)]


def _limited(micro_batches: int, drawn: int, *runs: Run) -> Order:
    """Runs that are drawn for so many micro-batches, without what is for more than there are."""
    return [*runs] if drawn == micro_batches else [(1, tuple(_first(micro_batches, turns_of(runs))))]


def _first(micro_batches: int, turns: Iterator[Turn]) -> Iterator[Turn]:
    done: dict[Turn, int] = {}
    for turn in turns:
        number = done[turn] = done.get(turn, 0) + 1
        if number <= micro_batches:
            yield turn
