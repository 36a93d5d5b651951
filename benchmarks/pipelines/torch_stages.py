"""``torch_stages.py CASE:SCHEDULE:MICRO_BATCHES...``: the same models and batches in two stages of PyTorch.

`1f1b`, `gpipe`, `zb_v`: torch.distributed.pipelining over gloo, a process of one thread for each stage. `torchgpipe`:
GPipe in one process whose two stages are threads, as that library has them (it supports no PyTorch of today). `alone`:
one process without stages, the micro-batches one after the other. Writes what `pipeline_steps.py` writes of a step.
"""

import json
import os
import statistics
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleZBVZeroBubble
from torch.nn import functional

STAGES, WARM_UP = 2, 2
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


class Block(torch.nn.Module):
    """As `models._transformer` has them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.into, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        heads = self.into(self.first(x)).view(rows, tokens, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*heads)
        x = x + self.out(y.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Head(torch.nn.Module):
    """The mean over tokens, and ten classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.classes = torch.nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(x.mean(1))


def layers_of(case: str) -> list[torch.nn.Module]:
    torch.manual_seed(0)
    if case == "transformer":
        return [torch.nn.Embedding(1000, 256), *(Block(256) for _ in range(6)), Head(256)]
    width = {"small": 512, "dense": 1024}[case]
    return [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(16)]


def data_of(case: str, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(0)
    if case == "transformer":
        tokens, classes = generator.integers(0, 1000, (rows, 64)), generator.integers(0, 10, rows)
        return torch.from_numpy(tokens), torch.from_numpy(classes)
    x = torch.from_numpy(generator.normal(size=(rows, {"small": 512, "dense": 1024}[case])).astype(np.float32))
    return x, x / 2


def loss_of(case: str) -> torch.nn.Module:
    return torch.nn.CrossEntropyLoss() if case == "transformer" else torch.nn.MSELoss()


def chunks_of(case: str, number: int) -> list[torch.nn.Sequential]:
    """As many layers in each; of the Transformer as many blocks, with what is before and behind them."""
    layers = layers_of(case)
    if case == "transformer":
        layers = [torch.nn.Sequential(*layers[:2]), *layers[2:-2], torch.nn.Sequential(*layers[-2:])]
    cuts = [round(len(layers) * at / number) for at in range(number + 1)]
    return [torch.nn.Sequential(*layers[first:last]) for first, last in pairwise(cuts)]


class Stages:
    """One rank of `torch.distributed.pipelining`."""

    def __init__(self, case: str, schedule: str, micro_batches: int) -> None:
        self.rank = dist.get_rank()
        places = [0, 1, 1, 0] if schedule == "zb_v" else [0, 1]
        chunks = chunks_of(case, len(places))
        own = [at for at, place in enumerate(places) if place == self.rank]
        device = torch.device("cpu")
        stages = [PipelineStage(chunks[at], at, len(places), device) for at in own]
        kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "zb_v": ScheduleZBVZeroBubble}[schedule]
        given = stages if schedule == "zb_v" else stages[0]
        self._schedule = kind(given, micro_batches, loss_fn=loss_of(case))
        self._reads, self._ends = 0 in own, len(places) - 1 in own
        parameters = [one for at in own for one in chunks[at].parameters()]
        self._optimizer = torch.optim.SGD(parameters, 0.001)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        self._schedule.step(*([x] if self._reads else []), **({"target": y, "losses": []} if self._ends else {}))
        self._optimizer.step()


class Threads:
    """Two stages in threads of one process, which hand each other tensors: all forwards, then all backwards."""

    def __init__(self, case: str, micro_batches: int) -> None:
        self._chunks, self._loss, self._number = chunks_of(case, STAGES), loss_of(case), micro_batches
        parameters = [one for chunk in self._chunks for one in chunk.parameters()]
        self._optimizer = torch.optim.SGD(parameters, 0.001)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        forwards: SimpleQueue = SimpleQueue()
        backwards: SimpleQueue = SimpleQueue()
        targets = y.chunk(self._number)

        def first() -> None:
            made = []
            for part in x.chunk(self._number):
                made.append(self._chunks[0](part))
                forwards.put(made[-1].detach().requires_grad_())
            for _ in made:
                at, gradient = backwards.get()
                made[at].backward(gradient)

        def second() -> None:
            losses = []
            for target in targets:
                received = forwards.get()
                losses.append((received, self._loss(self._chunks[1](received), target) / self._number))
            for at, (received, loss) in enumerate(losses):
                loss.backward()
                backwards.put((at, received.grad))

        threads = [threading.Thread(target=run) for run in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._optimizer.step()


class Alone:
    """The whole model in one thread."""

    def __init__(self, case: str, micro_batches: int) -> None:
        self._model, self._loss, self._number = torch.nn.Sequential(*layers_of(case)), loss_of(case), micro_batches
        self._optimizer = torch.optim.SGD(self._model.parameters(), 0.001)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        for part, target in zip(x.chunk(self._number), y.chunk(self._number), strict=True):
            (self._loss(self._model(part), target) / self._number).backward()
        self._optimizer.step()


def measured(pipeline: Stages | Threads | Alone, case: str, micro_batches: int) -> list[float]:
    rows = {"small": 64, "dense": 128, "transformer": 8}[case] * micro_batches
    num_steps = {"small": 12}.get(case, 5)
    x, y = data_of(case, rows * (num_steps + WARM_UP))
    ends = []
    for step in range(num_steps + WARM_UP):
        here = slice(step * rows, (step + 1) * rows)
        pipeline.step(x[here], y[here])
        if dist.is_initialized():
            dist.barrier()
        ends.append(time.perf_counter())
    spent = statistics.median(np.diff(ends)[WARM_UP - 1 :].tolist())
    return [spent, 0.0, 0.0]


def main() -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    variants = sys.argv[1:]
    kinds = {"torchgpipe": Threads, "alone": Alone}
    in_one_process = all(variant.split(":")[1] in kinds for variant in variants)
    if not in_one_process:
        dist.init_process_group("gloo")
    made: dict[str, Stages | Threads | Alone] = {}
    for variant in variants:
        case, schedule, number = variant.split(":")
        kind = kinds.get(schedule)
        made[variant] = kind(case, int(number)) if kind else Stages(case, schedule, int(number))
    found: dict[str, list[list[float]]] = {variant: [] for variant in variants}
    for _ in range(ROUNDS):
        for variant, pipeline in made.items():
            case, _, number = variant.split(":")
            found[variant].append(measured(pipeline, case, int(number)))
    if in_one_process or dist.get_rank() == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps([found]))
    if not in_one_process:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
