"""The same CNN with Adam in PyTorch under DDP, with the checkpoint every 20 steps that its user would write.

torchrun --nproc-per-node 2 --max-restarts 3 torch_worker.py DIR
"""

from marks import mark

mark("script")

import itertools  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

mark("imported")

BATCH, EVERY_STEPS = 64, 20
CHECKPOINT = Path(sys.argv[1], "checkpoint.pt")


def build() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 26 * 26, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )


def save(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    temporary = CHECKPOINT.with_suffix(".tmp")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(CHECKPOINT)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = np.random.default_rng(rank)
    x = torch.from_numpy(generator.random((3200, 1, 28, 28), dtype=np.float32))
    y = torch.from_numpy(generator.integers(0, 10, 3200))
    model = torch.nn.parallel.DistributedDataParallel(build())
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    loss_of = torch.nn.CrossEntropyLoss()
    mark("compiled")
    mark("fit")
    first = 0
    if CHECKPOINT.exists():
        kept = torch.load(CHECKPOINT)
        first = kept["step"]
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    mark("ready")
    for step in itertools.count(first):
        at = step * BATCH % 3200
        optimizer.zero_grad()
        loss_of(model(x[at : at + BATCH]), y[at : at + BATCH]).backward()
        optimizer.step()
        mark("step", step + 1)
        if (step + 1) % EVERY_STEPS == 0 and rank == 0:
            save(step + 1, model, optimizer)


main()
