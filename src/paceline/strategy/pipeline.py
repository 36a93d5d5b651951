"""`PipelineStrategy`: a model's layers are divided into stages, and each worker holds those of its stage only."""

import inspect
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from paceline.cluster.evaluator_task import is_evaluator
from paceline.cluster.row_shares import refuse_shares
from paceline.comm.axes import DATA
from paceline.comm.counted_group import CountedGroup
from paceline.comm.world import World
from paceline.errors import ConfigurationError
from paceline.plan.byte_text import num_bytes
from paceline.plan.refusals import integer, refuse
from paceline.plan.schedules import schedule_named
from paceline.strategy.base import SynchronousStrategy, local_device
from paceline.strategy.first_use import PIPELINES
from paceline.strategy.mirrored import relaunch_over
from paceline.strategy.multi_worker_mirrored import world_of
from paceline.strategy.parameter_server import EvaluatingStrategy

STAGE = "stage"
"""The axis of the stages of one pipeline."""

REPLICA = "replica"
"""The axis of the replicas of one stage. It is not the axis `data`, whose ranks share the rows of what is read: here
every rank reads whole batches, and takes its rows of them when it cuts them into micro-batches."""

AUTO = "auto"


class PipelineStrategy(SynchronousStrategy):
    """Trains one model in stages: each worker holds a part of its layers, and batches pass in micro-batches.

    With more workers than stages, each stage has several replicas, which take equal shares of the rows of a batch.

        strategy = paceline.PipelineStrategy(stages=2, micro_batches=8, balance=[2, 2])
        with strategy.scope():
            model = build_and_compile()  # Sequential or Functional; four layers: two for each stage
        model.fit(dataset, epochs=3)  # paceline run --workers 2 train.py; with 4 workers: 2 replicas

    The results are those of one process: losses, gradients, Dropout and metrics do not depend on the number of
    micro-batches, stages or replicas. Every rank reads the same batches. `fit`, `evaluate`, `predict` and `save` are
    called by all ranks. Processes that were started by hand find each other as for a `MultiWorkerMirroredStrategy`. In
    an evaluator it gives a strategy of this one process, which has the whole model.

    ``"pipedream"`` and ``"pipedream_2bw"`` are the exception: stages do not wait for each other between the batches of
    an execution, ``compile(steps_per_execution=16)``, so gradients are computed with weights that lack some updates.

    Args:
        stages: How many. The number of workers is a multiple of theirs; rank = stage x replicas + replica.
        micro_batches: Of a replica's rows of a batch; if it has fewer rows in the last batch, as many as rows.
        schedule: ``"gpipe"``, ``"1f1b"``, ``"interleaved"``, ``"zb_h1"`` (also ``"zb"``) or ``"zb_v"``; all compute the
            same. ``"auto"``: that of these whose step is expected to be the shortest. ``"pipedream"`` (SOSP 2019):
            stage s of S lacks ceil((S - 1 - s) / micro_batches) updates. ``"pipedream_2bw"`` (2021): each stage lacks
            one; at least as many micro-batches as stages.
        balance: The number of layers of each chunk, e.g. ``[5, 7]``. A stage has one chunk; with ``"interleaved"`` and
            ``"zb_v"`` two. ``"auto"``: the layers are measured, and the slowest chunk gets as fast as can be. None: see
            `split_after`.
        split_after: The last layer of each stage but the last, by name, e.g. ``["block3"]``. None without `balance`:
            as many layers on each stage; with ``schedule="auto"`` or a limit as with ``balance="auto"``.
        memory_limit: What a worker may hold of weights, slots, gradients and activations, e.g. ``"2GB"``, or a number
            of bytes. The layers are measured, and only splits and schedules count that are expected to keep it.
        recompute: Whether a stage keeps only its inputs of a micro-batch and computes the forward again before the
            backward: less memory, and a forward more for each micro-batch. The numbers are the same.
        vertical_sync: With ``"pipedream"``: all stages lack as many updates as the first one, so a batch meets one
            version of the model.

    Raises:
        ConfigurationError: numbers that do not go together, or a job of another number of workers.
        RuntimeError: no launcher has started this process, and it cannot start itself again.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        del args, kwargs
        return EvaluatingStrategy() if is_evaluator(os.environ) else super().__new__(cls)

    def __init__(
        self,
        stages: int,
        micro_batches: int,
        schedule: str = "1f1b",
        balance: Sequence[int] | str | None = None,
        split_after: Sequence[str] | None = None,
        memory_limit: int | str | None = None,
        recompute: bool = False,
        vertical_sync: bool = False,
    ) -> None:
        refuse_shares(type(self).__name__)
        PIPELINES.begin()
        self.stages = integer("stages", stages)
        self.micro_batches = integer("micro_batches", micro_batches)
        self.schedule, self.recompute = schedule, recompute
        self.balance: list[int] | None = None
        if balance is not None and not isinstance(balance, str):
            self.balance = [integer("a number of layers in balance", number) for number in balance]
        self.split_after = None if split_after is None else list(split_after)
        self.memory_limit_bytes = num_bytes(memory_limit) if isinstance(memory_limit, str) else memory_limit
        self.is_measured = AUTO in (schedule, balance) or memory_limit is not None
        """Whether layers are measured before the first step."""
        self.asked = None if schedule == AUTO else schedule_named(schedule, vertical_sync=vertical_sync)
        """The schedule; None: the best synchronous one."""
        if vertical_sync and schedule != "pipedream":
            raise ConfigurationError(
                f"Received vertical_sync=True and schedule={schedule!r}; expected schedule='pipedream'. [pipeline]"
            )
        if isinstance(balance, str) and balance != AUTO:
            raise ConfigurationError(
                f"Received balance={balance!r}; expected 'auto', or the number of layers of each chunk. [pipeline]"
            )
        if balance is not None and split_after is not None:
            raise ConfigurationError("Received balance and split_after; give one of the two. [pipeline]")
        self._ranks_of: dict[tuple[int, ...], CountedGroup | None] = {}
        world = world_of(None, when_alone=lambda: _start_again(self.stages, self.micro_batches), arrange=self._arrange)
        super().__init__(world, local_device(world), broadcast_new_variables=False)

    # `inspect.signature`, and with it help and notebooks, asks `__new__` first.
    __new__.__signature__ = inspect.signature(__init__)  # type: ignore[attr-defined]

    def _arrange(self, world: World) -> None:
        refuse(self.asked, self.stages, self.micro_batches, world_size=world.size)
        self.replicas = world.size // self.stages
        if world.size > 1:
            world.arrange({STAGE: self.stages, REPLICA: self.replicas, DATA: 1})

    @property
    def stage(self) -> int:
        """This rank's."""
        return self.world.rank // self.replicas

    @property
    def replica(self) -> int:
        """Which of its stage's replicas this rank is."""
        return self.world.rank % self.replicas

    @property
    def pipeline(self) -> CountedGroup:
        """The stages: the ranks that hold the parts of one replica of the model, in the order of the stages."""
        return self.world.axis(STAGE) if self.world.size > 1 else self.world.group

    @property
    def stage_group(self) -> CountedGroup:
        """The replicas of this rank's stage."""
        return self.world.axis(REPLICA) if self.world.size > 1 else self.world.group

    @property
    def fit_group(self) -> CountedGroup:
        """All ranks: see the base class."""
        return self.world.group

    def ranks_of(self, stages: tuple[int, ...]) -> CountedGroup | None:
        """The ranks of some stages; None: this one is not among them. Collective over all ranks, when it is new.

        Args:
            stages: Ascending; the same on all ranks.
        """
        if len(stages) == self.stages:
            return self.fit_group
        if len(stages) == 1:
            return self.stage_group if stages == (self.stage,) else None
        if stages not in self._ranks_of:
            self._ranks_of[stages] = self.fit_group.split(0 if self.stage in stages else None)
        return self._ranks_of[stages]

    @property
    def models(self) -> tuple[tuple[int, ...], ...]:
        """One, which all ranks train."""
        return (tuple(range(self.world.size)),)

    def run(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: no function of a user's can run on one stage.

        Raises:
            RuntimeError: always.
        """
        del args, kwargs
        raise RuntimeError(
            "strategy.run calls a function with the whole model, but each worker of a PipelineStrategy has a part of "
            "the model only. Train with model.fit, or use another strategy. [pipeline]"
        )


def _start_again(stages: int, micro_batches: int) -> None:
    """Replaces this process, which nobody has told of others, by a worker for each stage."""
    if stages > 1 and micro_batches >= 1:
        relaunch_over(stages, "PipelineStrategy", "stages")


__all__ = ["REPLICA", "STAGE", "PipelineStrategy"]
