"""Flags of other launchers that `paceline run` does not have, and what to write instead."""

INSTEAD = {
    "--tee": ("torchrun", "lines of all workers are on the terminal, and with --log-dir FOLDER in files, too"),
    "--redirects": ("torchrun", "write --log-dir FOLDER"),
    "--monitor-interval": ("torchrun", "a death is noticed at once; leave it out"),
    "--start-method": ("torchrun", "leave it out"),
    "--no-python": ("torchrun", "workers are Python scripts, or modules with -m"),
    "--rdzv-conf": ("torchrun", "write --start-timeout SECONDS for its timeouts"),
    "--local-addr": ("torchrun", "write --network-interface NAME"),
    "--role": ("torchrun", "leave it out"),
    "--local-ranks-filter": ("torchrun", "lines of all workers are on the terminal, each with its rank"),
    "--log-line-prefix-template": ("torchrun", "leave it out; each line begins with its rank"),
    "--event-log-handler": ("torchrun", "write --events FILE"),
    "--multi-gpu": ("accelerate", "write --workers gpu"),
    "--gpu-ids": ("accelerate", "set CUDA_VISIBLE_DEVICES"),
    "--mixed-precision": ("accelerate", "the script says that, keras.config.set_dtype_policy('mixed_bfloat16')"),
    "--config-file": ("accelerate", "write --config FILE, in TOML"),
    "--cpu": ("accelerate", "write --workers cpu, or a number"),
    "--tpu": ("accelerate", "Paceline trains on CPUs and GPUs"),
    "--num-cpu-threads-per-process": (
        "accelerate",
        "the cores are divided among the workers; for another number of threads: --bind none --env OMP_NUM_THREADS=N",
    ),
    "--gradient-accumulation-steps": ("accelerate", "the script's optimizer says that, gradient_accumulation_steps=N"),
    "--dynamo-backend": ("accelerate", "the script says that, model.compile(jit_compile=True) on one worker"),
    "--same-network": ("accelerate", "leave it out"),
    "--debug": ("accelerate", "ranks that do not make the same calls are always told of; leave it out"),
    "--quiet": ("accelerate", "leave it out"),
    "--use-deepspeed": ("accelerate", "models too large for one worker train in a paceline.PipelineStrategy"),
    "--use-fsdp": ("accelerate", "models too large for one worker train in a paceline.PipelineStrategy"),
    "--check-build": ("horovodrun", "type paceline version, or paceline doctor"),
    "-c": ("horovodrun", "type paceline version, or paceline doctor"),
    "--autotune": ("horovodrun", "leave it out; the gradients of a step are one message"),
    "--fusion-threshold-mb": ("horovodrun", "leave it out; the gradients of a step are one message"),
    "--cycle-time-ms": ("horovodrun", "leave it out; the gradients of a step are one message"),
    "--cache-capacity": ("horovodrun", "leave it out"),
    "--no-stall-check": ("horovodrun", "leave out --hang-timeout"),
    "--stall-check-warning-time-seconds": ("horovodrun", "write --hang-timeout SECONDS"),
    "--stall-check-shutdown-time-seconds": ("horovodrun", "write --hang-timeout SECONDS"),
    "--elastic-timeout": ("horovodrun", "write --start-timeout SECONDS"),
    "--reset-limit": ("horovodrun", "write --max-restarts N"),
    "--slots": ("horovodrun", "write --hosts a:2,b:2, with the workers of each host"),
    "--log-level": ("horovodrun", "leave it out; --verbose shows more"),
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
