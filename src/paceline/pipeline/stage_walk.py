"""Walks the plan of one stage: computes, sends, receives, and updates.

    plan.actions[stage]:  Receive ─► Compute ─► Send ─► Receive ─► Compute ─► …
                            │                              │
                          asked for one computation ahead ─┘

What is handed from one chunk to another one of this stage needs no message. A plan is for full batches. If a batch has
fewer rows than micro-batches, or the data end early, actions are left out, and what is left is in order.

    first stage:   read 0 1 │ F0 F1 BW0 U0 │ read 2 │ F2 BW1 U1 │ …
    second stage:  read 0 1 │ F0    BW0 U0 │ read 2 │ F1 BW1 U1 │ …

All stages read a batch behind the same update, as early as the first stage needs it. Reading is where functions for new
shapes are made, which all ranks do together: no stage then waits for what another one would send only later. A batch
that cannot be read ends the data: what is under way comes to its end, no message is left behind, and then the walk
raises.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

from paceline.comm.step_clock import StepClock
from paceline.pipeline.chunk_functions import ChunkFunctions, Pass
from paceline.pipeline.chunk_trace import is_floating
from paceline.pipeline.chunks import Chunks
from paceline.pipeline.gradient_sums import GradientSums
from paceline.pipeline.stage_messages import Arrival, StageMessages
from paceline.pipeline.walked_batches import Batch, WalkedBatch
from paceline.pipeline.weight_versions import WeightVersions
from paceline.plan.actions import Action, Compute, Message, Operation, Plan, Receive, Send, Update


class BatchEnds(Protocol):
    """Who is told what has become of a batch on this stage. All replicas of the stage are told in one order."""

    def end_forward(self, batch: WalkedBatch) -> None:
        """All micro-batches have had their F; the next batch begins with the states that this leaves."""

    def end_backward(self, batch: WalkedBatch) -> None:
        """The gradients are complete: the place of the update."""


class StageWalk:
    """The batches of a plan on one stage; of an asynchronous one, several are under way at a time.

    Args:
        plan: For batches of as many micro-batches as a full one has.
        stage: This rank's.
        chunks: Of the model.
        batches: Read when the first stage comes to them; maybe fewer than the plan has.
        messages: Of this rank.
        gradient_sums: Of this stage.
        trained: Keras variables of this stage.
        ends: Is told.
        clock: Is told, too: when this stage waits for data, and when for other stages.
    """

    def __init__(
        self,
        plan: Plan,
        stage: int,
        chunks: Chunks,
        batches: Iterator[Batch],
        messages: StageMessages,
        gradient_sums: GradientSums,
        trained: Sequence[Any],
        ends: BatchEnds,
        clock: StepClock,
    ) -> None:
        self._clock = clock
        self._plan, self._stage, self._chunks, self._batches = plan, stage, chunks, batches
        self._messages, self._gradient_sums, self._ends = messages, gradient_sums, ends
        self._has_begun_sums = False
        self._read: dict[int, Batch] = {}
        self._num_read, self._has_ended = 0, False
        self._failure: Exception | None = None
        self._walked: dict[int, WalkedBatch] = {}
        self._passes: dict[tuple[int, int], Pass] = {}
        self._recomputed: set[tuple[int, int]] = set()
        self._arrivals: dict[Message, Arrival] = {}
        self._handed: dict[Message, list[Any]] = {}
        self.versions = WeightVersions(trained, plan.last_uses(stage))

    def run(self, actions: Sequence[Action]) -> None:
        """Does what `actions`, all or some of the plan's, say.

        Raises:
            Exception: what reading a batch has raised, once all batches before it are done.
        """
        self._read_batches(self._plan.batches_begun[0])
        self._recomputed = {
            (action.chunk, action.micro_batch)
            for action in actions
            if isinstance(action, Compute) and action.operation is Operation.RECOMPUTE
        }
        ahead = 0
        last_forwards = {
            self._plan.place_of(action)[0]: at
            for at, action in enumerate(actions)
            if isinstance(action, Compute) and action.operation is Operation.FORWARD
        }
        forward_ends = {at: batch for batch, at in last_forwards.items()}
        ended: int | None = None  # told when what was computed has been sent
        for at, action in enumerate(actions):
            if ended is not None and not isinstance(action, Send):
                self._end_forward(ended)
                ended = None
            if not self._is_left_out(action):
                match action:
                    case Receive(message):
                        ahead = max(ahead, at)
                        self._ask(action)
                        self._begin_sums()  # the stage would be idle
                        self._handed[message] = self._wait(message)
                    case Compute():
                        ahead = self._ask_ahead(actions, max(ahead, at + 1))
                        self._compute(action)
                    case Send():
                        self._send(action)
                    case Update():
                        self._update(action, at, is_last=at == len(actions) - 1)
            ended = forward_ends.get(at, ended)
        if ended is not None:
            self._end_forward(ended)
        self._flush()
        if self._failure is not None:
            raise self._failure

    def _read_batches(self, number: int) -> None:
        """Reads on until there are so many since the beginning of the plan, or the data end."""
        while self._num_read < number and not self._has_ended:
            batch = None
            self._clock.input_begins()
            try:
                batch = next(self._batches, None)
            except Exception as error:
                self._failure = error
            self._clock.input_ended()
            if batch is None:
                self._has_ended = True
            else:
                self._read[self._num_read] = batch
                self._num_read += 1

    def _is_left_out(self, action: Action) -> bool:
        """Whether there is no such batch, or micro-batch of it."""
        batch, index = self._batch_of(action)
        return batch is None or index >= len(batch.bounds)

    def _batch_of(self, action: Action) -> tuple[Batch | None, int]:
        """The batch of an action, None behind the end of the data; the micro-batch's number in it."""
        number, index = self._plan.place_of(action)
        return self._read.get(number), index

    def _end_forward(self, number: int) -> None:
        if number in self._walked:
            self._ends.end_forward(self._walked[number])

    def _update(self, update: Update, at: int, *, is_last: bool) -> None:
        if is_last:
            self._flush()  # nobody need wait for this stage's update
        self.versions.make_next(at)
        walked = self._walked.pop(update.version - 1)
        if not walked.batch.has_rows:
            self._zero_sums()  # a mean over no rows, as BatchNormalization takes it, makes NaN of losses of zero
        self._ends.end_backward(walked)
        del self._read[update.version - 1]
        self._has_begun_sums = False
        self._read_batches(self._plan.batches_begun[update.version])

    def _flush(self) -> None:
        self._clock.others_begin()
        self._messages.flush()
        self._clock.others_ended()

    def _begin_sums(self) -> None:
        if not self._has_begun_sums:
            self._zero_sums()
            self._has_begun_sums = True

    def _zero_sums(self) -> None:
        """Those of the batch whose update is next."""
        functions = next(iter(self._read.values())).functions
        self._gradient_sums.begin([weight for one in functions.values() for weight in one.trace.summed])

    def _send(self, action: Send) -> None:
        message, peer, tag = action.message, action.peer, action.tag
        tensors = self._handed.pop(message)
        if message.is_gradient:
            self._messages.send(tensors, peer, tag)
            return
        signature = self._signature(action)
        self._messages.send(tensors, peer, tag, signature)
        shapes = [tuple(tensor.shape) for tensor in tensors if is_floating(tensor)]
        gradients = self._plan.shape.tag(message.source, message.target, True)
        self._messages.know(shapes, peer, gradients, _of_gradients(signature))

    def _ask_ahead(self, actions: Sequence[Action], at: int) -> int:
        """Asks for what the next computation reads; it arrives while this one computes."""
        for index in range(at, len(actions)):
            action = actions[index]
            if self._plan.place_of(action)[0] >= self._num_read and not self._has_ended:
                return index  # it may be left out
            if isinstance(action, (Receive, Compute)) and not self._is_left_out(action):
                if isinstance(action, Compute):
                    return index
                self._ask(action)
        return len(actions)

    def _ask(self, action: Receive) -> None:
        message = action.message
        if message in self._arrivals:
            return
        tensors = self._chunks.edges[message.source, message.target]
        signature = self._signature(action)
        if message.is_gradient:
            tensors, signature = tuple(filter(is_floating, tensors)), _of_gradients(signature)
        arrival = self._messages.receive(tensors, action.peer, action.tag, signature)
        arrival.ask_if_known()
        self._arrivals[message] = arrival

    def _wait(self, message: Message) -> list[Any]:
        self._clock.others_begin()
        arrived = self._arrivals.pop(message).wait()
        self._clock.others_ended()
        return arrived

    def _signature(self, action: Send | Receive) -> Hashable:
        batch, index = self._batch_of(action)
        assert batch is not None
        return batch.signature(index)

    def _compute(self, one: Compute) -> None:
        match one.operation:
            case Operation.FORWARD:
                self._forward(one)
            case Operation.RECOMPUTE:
                _, functions, _ = self._functions_of(one)
                functions.recompute(self._passes[one.chunk, one.micro_batch])
            case _:
                self._backward(one)

    def _functions_of(self, one: Compute) -> tuple[WalkedBatch, ChunkFunctions, int]:
        """Its batch, the functions of its chunk for this batch, and the micro-batch's number in it."""
        number, index = self._plan.place_of(one)
        if number not in self._walked:
            self._walked[number] = WalkedBatch(self._read[number], self._gradient_sums)
        return self._walked[number], self._read[number].functions[one.chunk], index

    def _forward(self, one: Compute) -> None:
        chunk, number = one.chunk, one.micro_batch
        walked, functions, index = self._functions_of(one)
        trace = functions.trace
        passing = self._passes[chunk, number] = walked.begun(chunk, index)
        passing.feed(trace.received, self._collected(chunk, number))
        if trace.versioned:
            passing.feed(trace.weights, self.versions.values(one.version, trace.versioned))
        is_recomputed = (chunk, number) in self._recomputed
        handed_on, predictions, states, loss = functions.forward(passing, is_recomputed=is_recomputed)
        if not functions.is_training:
            del self._passes[chunk, number]
        walked.add_forward(chunk, predictions, states, loss)
        made = dict(zip(map(id, self._chunks.chunks[chunk].handed_on), handed_on, strict=True))
        for (source, target), tensors in self._chunks.edges.items():
            if source == chunk:
                self._handed[Message(chunk, target, number, False)] = [made[id(tensor)] for tensor in tensors]

    def _backward(self, one: Compute) -> None:
        chunk, number, operation = one.chunk, one.micro_batch, one.operation
        walked, functions, _ = self._functions_of(one)
        passing = self._passes[chunk, number]
        received: list[Any] = []
        if operation.gives_input_gradients:
            passing.feed(functions.trace.given, self._given(chunk, number))
        if operation.gives_weight_gradients:
            self._begin_sums()
            passing.feed(functions.trace.sums, walked.sums[chunk].sums)
        match operation:
            case Operation.BACKWARD:
                received, slices = functions.backward(passing)
            case Operation.BACKWARD_INPUTS:
                received, slices = functions.backward_inputs(passing), []
            case _:
                slices = functions.backward_weights(passing)
        walked.add_slices(chunk, slices)
        if operation.gives_weight_gradients:
            del self._passes[chunk, number]
        if operation.gives_input_gradients:
            self._hand_back(chunk, number, received)

    def _collected(self, chunk: int, number: int) -> list[Any]:
        """What the chunk receives, from messages and from chunks of this stage, in its order."""
        found: dict[int, Any] = {}
        for (source, target), tensors in self._chunks.edges.items():
            if target == chunk:
                values = self._handed.pop(Message(source, chunk, number, False))
                found.update(zip(map(id, tensors), values, strict=True))
        return [found[id(tensor)] for tensor in self._chunks.chunks[chunk].received]

    def _given(self, chunk: int, number: int) -> list[Any]:
        """The gradients of what the chunk has handed on: of one that several chunks have read, the sum."""
        found: dict[int, Any] = {}
        for (source, target), tensors in self._chunks.edges.items():
            if source == chunk:
                values = self._handed.pop(Message(chunk, target, number, True))
                for tensor, value in zip(filter(is_floating, tensors), values, strict=True):
                    found[id(tensor)] = found[id(tensor)] + value if id(tensor) in found else value
        return [found[id(tensor)] for tensor in self._chunks.chunks[chunk].handed_on if is_floating(tensor)]

    def _hand_back(self, chunk: int, number: int, gradients: list[Any]) -> None:
        floating = filter(is_floating, self._chunks.chunks[chunk].received)
        found = {id(tensor): gradient for tensor, gradient in zip(floating, gradients, strict=True)}
        for (source, target), tensors in self._chunks.edges.items():
            if target == chunk:
                own = [found[id(tensor)] for tensor in tensors if is_floating(tensor)]
                self._handed[Message(source, chunk, number, True)] = own


def _of_gradients(signature: Hashable) -> Hashable:
    return "gradients", signature
