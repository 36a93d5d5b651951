"""One rank of the same CNN in PyTorch: under DDP with gloo, and meeting at a barrier only, block by block in turn."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

BATCH = 64
BLOCKS = 10
WARM_UP_STEPS, STEPS = 30, 40

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
loss_of = torch.nn.CrossEntropyLoss()
generator = np.random.default_rng(rank)
x = torch.from_numpy(generator.random((3200, 1, 28, 28), dtype=np.float32))
y = torch.from_numpy(generator.integers(0, 10, 3200))


def build() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 26 * 26, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )


def step_ms(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, *, meet: bool) -> float:
    times = []
    for step in range(steps):
        at = step * BATCH % 3200
        optimizer.zero_grad()
        loss_of(model(x[at : at + BATCH]), y[at : at + BATCH]).backward()
        optimizer.step()
        if meet:
            dist.barrier()
        times.append(time.perf_counter())
    return float(np.median(np.diff(times)[5:]) * 1e3)


models = {"together_ms": torch.nn.parallel.DistributedDataParallel(build()), "barrier_ms": build()}
optimizers = {name: torch.optim.SGD(model.parameters(), 0.001) for name, model in models.items()}
blocks: dict[str, list[float]] = {name: [] for name in models}
for block in range(BLOCKS + 1):
    for name, model in models.items():
        taken = step_ms(model, optimizers[name], STEPS if block else WARM_UP_STEPS, meet=name == "barrier_ms")
        if block:
            blocks[name].append(taken)
dist.barrier()
if rank == 0:
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(blocks))
dist.destroy_process_group()
