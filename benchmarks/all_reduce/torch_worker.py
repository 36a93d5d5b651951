"""One rank of torch.distributed's all-reduce with gloo."""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
result: dict[str, float] = {}
for size in json.loads(sys.argv[1]):
    value = torch.zeros(size // 4)
    times = []
    for _ in range(200 if size <= 1 << 20 else 40 if size <= 1 << 24 else 10):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(value)
        times.append(time.perf_counter() - begin)
    result[str(size)] = sorted(times)[len(times) // 2] * 1e3
dist.barrier()
if dist.get_rank() == 0:
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
dist.destroy_process_group()
