"""Command lines that are refused before a process starts."""

import sys

from refusal import Refusal

_USAGE, _CONFIGURATION, _FAILED = 2, 78, 1
_OF_TWO = ("--nnodes", "2", "--node-rank", "0")

ROWS = [
    Refusal(
        "chaos",
        ("run", "--chaos", "burn:step=1", "train.py"),
        _USAGE,
        'received "burn"',
        "Fix: e.g. kill:rank=1",
    ),
    Refusal("config", ("run", "--config", "gone.toml"), _USAGE, "'gone.toml', which cannot be read", "--config"),
    Refusal(
        "debug",
        ("run", "--workers", "2", "--debug-rank", "2", "train.py"),
        _USAGE,
        "--debug-rank: received 2",
        "a rank from 0 to 1",
    ),
    Refusal("env-not-set", ("run", "-x", "NOSUCH", "train.py"), _USAGE, "NOSUCH", "or NAME=VALUE"),
    Refusal("hosts", ("run", "--hosts", "a:none", "train.py"), _USAGE, "none", "expected"),
    Refusal(
        "hosts-slots",
        ("run", "--workers", "gpu", "--hosts", "a:4,b:4", "train.py"),
        _USAGE,
        "--workers gpu",
        "--hosts a:4",
    ),
    Refusal(
        "keras-backend",
        ("run", "train.py"),
        _CONFIGURATION,
        "KERAS_BACKEND: received 'jax'",
        "export KERAS_BACKEND=tensorflow",
        {"KERAS_BACKEND": "jax"},
    ),
    Refusal(
        "master-addr",
        ("run", "--master-port", "29501", *_OF_TWO, "train.py"),
        _USAGE,
        "--master-port",
        "--master-addr node0",
    ),
    Refusal(
        "no-gpu",
        ("run", "--workers", "gpu", "train.py"),
        _USAGE,
        "sees no GPU",
        "--workers cpu",
        {"CUDA_VISIBLE_DEVICES": ""},
    ),
    Refusal("no-job", ("status", "gone"), _FAILED, "gone", "paceline run"),
    Refusal("no-script", ("run", "python"), _USAGE, "and no script", "paceline run --workers 2 train.py"),
    Refusal(
        "nodes",
        ("run", "--nnodes", "2", "train.py"),
        _USAGE,
        "--node-rank: received nothing",
        "--rendezvous node0:29400",
    ),
    Refusal(
        "num-processes",
        ("run", "--workers", "2", "--num-processes", "2", "train.py"),
        _USAGE,
        "--workers with --num-processes",
        "expected one of them",
    ),
    Refusal("option", ("run", "--workers", "some", "train.py"), _USAGE, 'received "some"', "Fix: write it like 2"),
    Refusal(
        "other-python",
        ("run", "/opt/other/bin/python", "train.py"),
        _USAGE,
        "received /opt/other/bin/python",
        f"workers run with {sys.executable}",
    ),
    Refusal("python-option", ("run", "python", "-O", "train.py"), _USAGE, "received python -O", "PYTHONOPTIMIZE=1"),
    Refusal(
        "rdzv-backend", ("run", "--rdzv-backend", "etcd", "train.py"), _USAGE, "'etcd'", "Leave --rdzv-backend out"
    ),
    Refusal(
        "rendezvous-twice",
        ("run", "--rendezvous", "a:1", "--master-addr", "b", *_OF_TWO, "train.py"),
        _USAGE,
        "--rendezvous with --master-addr",
        "Leave --master-addr and --master-port out",
    ),
    Refusal(
        "scheduler",
        ("run", "train.py"),
        _USAGE,
        "SLURM_",
        "srun",
        {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"},
    ),
    Refusal(
        "shares",
        ("run", "--workers", "2", "--shares", "1,2,3", "train.py"),
        _USAGE,
        "3 numbers, but the job has 2 workers",
        "--shares 1,1",
    ),
    Refusal("snapshot-damaged", ("snapshot", "verify", "damaged"), _FAILED, "1 of 1 damaged", "step-"),
    Refusal("snapshot-directory", ("snapshot", "verify", "empty"), _FAILED, "no snapshots in empty", "empty"),
    Refusal("standalone", ("run", "--standalone", "--nnodes", "2", "train.py"), _USAGE, "--standalone", "leave out"),
]
