"""Flags of other launchers that `paceline run` does not have, and what to write instead."""

INSTEAD = {
    "--tee": ("torchrun", "lines of all workers are on the terminal, and with --log-dir FOLDER in files, too"),
    "--redirects": ("torchrun", "write --log-dir FOLDER"),
    "--monitor-interval": ("torchrun", "a death is noticed at once; leave it out"),
    "--start-method": ("torchrun", "leave it out"),
    "--no-python": ("torchrun", "workers are Python scripts, or modules with -m"),
    "--rdzv-conf": ("torchrun", "write --start-timeout SECONDS for its timeouts"),
    "--local-addr": ("torchrun", "write --network-interface NAME"),
    "--multi-gpu": ("accelerate", "write --workers gpu"),
    "--gpu-ids": ("accelerate", "set CUDA_VISIBLE_DEVICES"),
    "--mixed-precision": ("accelerate", "the script says that, keras.config.set_dtype_policy('mixed_bfloat16')"),
    "--config-file": ("accelerate", "write --config FILE, in TOML"),
    "--use-deepspeed": ("accelerate", "models too large for one worker train in a paceline.PipelineStrategy"),
    "--use-fsdp": ("accelerate", "models too large for one worker train in a paceline.PipelineStrategy"),
    "--check-build": ("horovodrun", "type paceline version, or paceline doctor"),
    "--timeline-filename": ("horovodrun", "write --observe FOLDER, whose trace.json.gz is the timeline"),
    "--output-filename": ("horovodrun", "write --log-dir FOLDER"),
    "--min-np": (
        "horovodrun",
        "the number of workers stays the same while a job runs; a new start may have another one",
    ),
    "--max-np": (
        "horovodrun",
        "the number of workers stays the same while a job runs; a new start may have another one",
    ),
    "--host-discovery-script": ("horovodrun", "name the hosts, with spare ones at the end of --hosts"),
    "--gloo": ("horovodrun", "leave it out"),
    "--mpi": ("horovodrun", "leave it out"),
    "--mpi-args": ("horovodrun", "leave it out; UCX_* and MPIR_CVAR_* variables reach MPI"),
    "--version": ("horovodrun", "write paceline --version"),
    "-V": ("horovodrun", "write paceline --version"),
}
"""By flag: whose it is, and what to do instead."""


def instead_of(flag: str) -> str | None:
    """What to write instead of a flag; None: no launcher that is known has it.

    >>> instead_of("--output_filename")
    '--output-filename is an option of horovodrun, and none of paceline run: write --log-dir FOLDER [option]'
    """
    name = flag.replace("_", "-")
    if name not in INSTEAD:
        return None
    launcher, instead = INSTEAD[name]
    return f"{name} is an option of {launcher}, and none of paceline run: {instead} [option]"
