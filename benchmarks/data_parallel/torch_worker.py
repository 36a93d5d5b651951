"""One rank of the same CNN in PyTorch: under DDP with gloo, or two processes that meet at a barrier only."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

BATCH = 64
WARM_UP_STEPS, STEPS = 30, 200
VARIANT = sys.argv[1]

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model: torch.nn.Module = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(32 * 26 * 26, 128),
    torch.nn.ReLU(),
    torch.nn.Linear(128, 10),
)
if VARIANT == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.001)
loss_of = torch.nn.CrossEntropyLoss()
generator = np.random.default_rng(rank)
x = torch.from_numpy(generator.random((3200, 1, 28, 28), dtype=np.float32))
y = torch.from_numpy(generator.integers(0, 10, 3200))
times = []
for step in range(WARM_UP_STEPS + STEPS):
    at = step * BATCH % 3200
    optimizer.zero_grad()
    loss = loss_of(model(x[at : at + BATCH]), y[at : at + BATCH])
    loss.backward()
    optimizer.step()
    if VARIANT == "barrier":
        dist.barrier()
    times.append(time.perf_counter())
dist.barrier()
if rank == 0:
    result = {"step_ms": float(np.median(np.diff(times)[WARM_UP_STEPS + 5 :]) * 1e3)}
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
dist.destroy_process_group()
