"""The one table of the options of a job. Pure.

A row is all that an option of ``paceline run`` needs, but for the code that uses its value (``options.max_restarts``):
flag, variable, key of a file, help, reference page, `paceline render`, and what hosts and workers are told follow.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from paceline.cluster.options import OptionTable, Use, option, row
from paceline.cluster.value_checks import RETENTION, Grammar, Range

_HOSTS = "Several hosts"
_of_hosts = partial(option, group=_HOSTS)
_of_failures = partial(option, group="Failures and snapshots")
_of_others = partial(option, group="For users of torchrun, horovodrun, mpirun, accelerate", rendered=False)

MAX_SEED = 2**32 - 1
"""The largest that NumPy's generators take."""

_FROM_1 = Range("a number from 1 on", "2", lowest=1)
_PORT = Range("a port from 1 to 65535", "2222", lowest=1, highest=65535)
_PORTS = "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SECONDS = Range("seconds above 0", "600", above=0)
_number = partial(option, None, metavar="N", check=_FROM_1)
_OTHER_PLACES = ("nnodes", "node_rank", "rendezvous", "master_addr", "master_port", "standalone")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions(OptionTable):
    """What the user decides about a job.

    >>> JobOptions(max_restarts=3).to_variables()
    {'PACELINE_MAX_RESTARTS': '3'}
    """

    workers: str | None = option(
        None,
        "How many workers. gpu: one for each GPU or MIG instance; cpu: one for each usable core; auto: as gpu, or as "
        "cpu where there is no GPU. Default: 1, or with --hosts all slots.",
        metavar="N|auto|gpu|cpu",
        spellings=("-n", "-np", "--np", "--num-proc", "--nproc-per-node"),
        check=Grammar("0*[1-9][0-9]*|auto|gpu|cpu", "a number from 1 on, auto, gpu or cpu", "2"),
        excludes=("num_processes",),
    )
    ps: int | None = _number(
        "How many parameter servers, on all hosts together, for a script with a ParameterServerStrategy. Starts a "
        "chief, which runs the script, workers, which compute its steps, and these servers. Default: none.",
        use=Use.HOSTS,
    )
    data_workers: int | None = _number(
        "How many processes make the batches of paceline.data.service(dataset). 1: as without it. Default: none.",
        use=Use.WORKERS,
    )
    module: bool = option(False, "Take SCRIPT as the name of a module, as python -m does.", spellings=("-m",))
    config: Path | None = option(
        None,
        "A TOML file with options, such as max-restarts = 3, and optionally the script and its arguments. The command "
        "line and variables override the file; --no-verbose turns off a flag that the file sets.",
        metavar="FILE",
    )
    dry_run: bool = option(
        False,
        "Check the job, print what would be started (processes, cores, memory, options, command), and start nothing.",
        rendered=False,
    )
    env: tuple[str, ...] = option(
        (),
        "An environment variable for the workers on all hosts; repeat for more. PACELINE_*, TF_*, KERAS_*, UCX_*, "
        "MPIR_CVAR_* and FI_* are passed on without this option.",
        metavar="NAME[=VALUE]",
        spellings=("-x",),
    )
    seed: int | None = option(
        None,
        "Seed of Python, NumPy and TensorFlow on all workers. Default: random.",
        metavar="INT",
        check=Range(f"an integer from 0 to {MAX_SEED}", "7", lowest=0, highest=MAX_SEED),
    )
    bind: Literal["cores", "none"] = option(
        "cores", "cores: each worker gets its own cores and thread counts; none: the system decides.", use=Use.HOSTS
    )
    log_dir: Path | None = option(
        None,
        "Also write the output of each worker to files in this folder, with a subfolder for each job and restart: "
        "latest/job_0.log, latest/job_1.log, ... Default: no files.",
        metavar="FOLDER",
    )
    events: Path | None = option(
        None,
        "Append what happens in the job to this file, one JSON object on each line: hosts, restarts, steps, epochs "
        "with their metrics, snapshots, and more (docs/events.md). Default: no file.",
        metavar="FILE",
    )
    metrics_port: str | None = option(
        None,
        "Show what the job does to Prometheus, over HTTP at this port of the launcher's host: on loopback, or at the "
        "address that stands before it. Needs pip install 'paceline[observe]'. Default: no port.",
        metavar="[HOST:]PORT",
        check=Grammar(
            rf"((\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):)?({_PORTS})",
            "a port from 1 to 65535, or an address and a port, as in 10.0.0.1:9100",
            "9100",
        ),
    )
    observe: Path | None = option(
        None,
        "Keep where the time of each worker's steps goes in this folder, in files that stay small. At the end of the "
        "job it has a timeline of all workers (trace.json.gz, for ui.perfetto.dev) and their curves for TensorBoard; "
        "paceline report FOLDER makes one page of it. What an earlier job has left there is replaced. Needs pip "
        "install 'paceline[observe]'. Default: no folder.",
        metavar="FOLDER",
        use=Use.RANKS,
    )
    timeline: str | None = option(
        None,
        "With --observe: also put TensorFlow's operations in these optimizer steps into the timeline, of every rank. "
        "Steps count from 1, over the whole job. Default: no operations.",
        metavar="STEP[:LAST]",
        check=Grammar(
            "0*[1-9][0-9]{0,11}(:0*[1-9][0-9]{0,11})?", "a step from 1 on, or the first and the last", "100:110"
        ),
        use=Use.RANKS,
    )
    start_timeout_seconds: float | None = option(
        None,
        "How long the workers may take to connect to each other, counted from when all have started to connect. "
        "Default: 60; in a file of `paceline render` for Kubernetes 900, for Google Cloud 1800; for workers started by "
        "hand 300.",
        metavar="SECONDS",
        check=_SECONDS,
        use=Use.RANKS,
    )
    drop_in: bool = option(
        True,
        "Replace the strategies of tf.distribute, and give one to a script that names none. With --no-drop-in the "
        "script creates Paceline's strategies itself.",
        use=Use.WORKERS,
    )
    communication: Literal["mpi", "ring", "nccl"] | None = option(
        None,
        "The library for collectives. Default: nccl where each worker has a GPU of its own, else mpi.",
        use=Use.WORKERS,
    )
    strict: bool = option(
        False,
        "If callbacks decide differently on different ranks, stop the job and name the callback. Otherwise the "
        "decision of one rank takes effect on all.",
        use=Use.WORKERS,
    )
    allow_independent: bool = option(
        False, "Allow each worker to train a separate model, without a warning.", use=Use.WORKERS
    )
    shares: str | None = option(
        None,
        "How the rows of each batch are shared out, one number for each worker in the order of ranks. 3,1: worker 0 "
        "computes three quarters of them, worker 1 a quarter. auto: workers that compute longer get fewer rows; who "
        "computes which rows depends on the clock. For workers that are not equally fast; the numbers stay those of "
        "one worker. Default: all workers have as many rows.",
        metavar="auto|N,N,...",
        check=Grammar(
            "auto|(?=.*[1-9])[0-9]{1,6}(,[0-9]{1,6})*",
            "auto, or whole numbers with commas between them, not all of them 0",
            "3,1",
        ),
        use=Use.WORKERS,
    )
    verify: Literal["auto", "strict", "off"] = option(
        "auto",
        "Each step of fit, evaluate and predict is traced as one worker runs it, and its graph is divided over the "
        "workers. If that is not possible, or gives other numbers on rows of the first batch: auto: every worker "
        "computes the whole batch, with a line that says why; strict: the job ends. off: numbers are not compared.",
        use=Use.WORKERS,
    )
    batch_statistics: Literal["exact", "local"] = option(
        "exact",
        "By what BatchNormalization normalizes in training, where a step is divided over the workers. exact: the whole "
        "batch, as on one worker, with messages in the middle of the step. local: each worker's own rows, as with "
        "Horovod and tf.distribute, without such messages; layers with synchronized=True stay exact. In pipelines, "
        "with parameter servers and in loops with strategy.run it changes nothing: they normalize by own rows.",
        use=Use.WORKERS,
    )
    rank_variables: bool = option(
        False,
        "Tell each worker its place in RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, too, for scripts that read "
        "them. Data libraries that read them divide the rows, which `fit` then divides again.",
        use=Use.WORKERS,
    )
    debug_rank: int | None = option(
        None,
        "Give the keyboard to the worker of this rank: input(), breakpoint() and pdb work there, and pass the other "
        "workers by, which wait. Jobs on this host only; --hang-timeout is off.",
        metavar="RANK",
        check=Range("a rank from 0 on", "0", lowest=0),
        use=Use.RANKS,
        rendered=False,
        excludes=("standby",),
    )
    debug_port: int | None = option(
        None,
        "The worker of --debug-rank, or the chief, waits for a debugger at this port of 127.0.0.1 before the script "
        "begins. Needs pip install 'paceline[debug]'.",
        metavar="PORT",
        check=_PORT,
        use=Use.RANKS,
        rendered=False,
        excludes=("standby",),
    )
    verbose: bool = option(False, "Print the seed, and the cores, GPUs and addresses of the workers.")

    hosts: str | None = _of_hosts(
        None,
        "Hosts, each with its number of workers, started over ssh. With --workers N (the total), hosts that are not "
        "needed are spares.",
        metavar="A:2,B:2",
        spellings=("-H",),
        rendered=False,
        excludes=("hostfile", *_OTHER_PLACES),
    )
    hostfile: Path | None = option(
        None,
        "Read the hosts from a file with one host on each line: 'host slots=2' or 'host:2'.",
        group=_HOSTS,
        metavar="FILE",
        rendered=False,
        excludes=_OTHER_PLACES,
    )
    ssh_port: int | None = _of_hosts(
        None, "The port of the hosts' ssh servers.", metavar="PORT", check=_PORT, spellings=("-p",), rendered=False
    )
    ssh_identity_file: str | None = _of_hosts(
        None, "Private key for ssh.", metavar="FILE", spellings=("-i",), rendered=False
    )
    ssh_command: str = _of_hosts(
        "ssh", "The ssh client with options, e.g. 'ssh -F my_config'.", metavar="COMMAND", rendered=False
    )
    remote_python: str | None = _of_hosts(
        None,
        "The Python interpreter on the other hosts. Default: the same path as on this host.",
        metavar="PATH",
        rendered=False,
    )
    nnodes: int | None = _of_hosts(
        None,
        "How many hosts run this same command; --workers is then the number of workers on each host. Not needed in a "
        "Slurm step and in a Kubernetes Indexed Job.",
        metavar="N",
        spellings=("--num-machines",),
        check=Range("a number from 1 on, which stays the same while the job runs", "2", lowest=1),
    )
    node_rank: int | None = _of_hosts(
        None, "The number of this host, from 0.", metavar="K", spellings=("--machine-rank",), rendered=False
    )
    rendezvous: str | None = _of_hosts(
        None,
        "The address at which node 0 listens for the other hosts.",
        metavar="HOST:PORT",
        spellings=("--rdzv-endpoint",),
        rendered=False,
        excludes=("master_addr", "master_port"),
    )
    network_interface: str | None = _of_hosts(
        None,
        "The network interface for the data between hosts. Several names: each host uses the first one that it has. "
        "Default: Paceline tests which interfaces connect.",
        metavar="NAME[,NAME]",
        spellings=("--network-interfaces",),
        check=Grammar(r"[^\s/,]{1,15}(,[^\s/,]{1,15})*", "the name of a network interface", "eth0"),
        use=Use.HOSTS,
    )
    secret_file: Path | None = option(
        None,
        "A file with the secret of the job, the same on every host, that only you can read. Without it, a job on "
        "several hosts uses a key made from their addresses.",
        group=_HOSTS,
        metavar="FILE",
        rendered=False,
    )
    require_secret: bool = _of_hosts(False, "Refuse to run on several hosts without --secret-file.")
    allow_mismatch: bool = _of_hosts(False, "Run although the hosts have different versions or scripts.")

    max_restarts: int = _of_failures(
        0,
        "How many times the job may restart all workers after a failure. Beside parameter servers, also how many times "
        "a worker may be started again alone.",
        metavar="N",
        check=Range("a number from 0 on", "3", lowest=0),
    )
    restart_window_seconds: float | None = _of_failures(
        None,
        "Count only the restarts of the last SECONDS against --max-restarts. Default: count all.",
        metavar="SECONDS",
        check=_SECONDS,
    )
    snapshot_dir: str | None = _of_failures(
        None,
        "Take snapshots during `fit` into this folder, on a disk that all hosts share, and continue from the newest.",
        metavar="FOLDER",
        check=Grammar("(?s).+", "a folder, or an object store's URL", "snapshots", 4096),
        use=Use.RANKS,
    )
    snapshot_every: str | None = _of_failures(
        None,
        "How often a snapshot is taken: 100 (steps) or 30s (seconds). Default: 60s.",
        metavar="STEPS|SECONDSs",
        check=Grammar(r"[1-9][0-9]*|(?=.*[1-9])[0-9]*[.]?[0-9]+s", "steps, or seconds with an s", "100 or 30s", 32),
        use=Use.RANKS,
        needs="snapshot_dir",
    )
    snapshot_keep: str | None = _of_failures(
        None,
        "Which snapshots are kept: 3 (the newest 3), every:1000 (one for every 1000 steps), best:3:val_loss (the best "
        "3 by a metric), or several, as in 2,best:3:val_loss. Default: 3.",
        metavar="N|POLICIES",
        check=RETENTION,
        use=Use.RANKS,
        needs="snapshot_dir",
    )
    evaluator: bool = _of_failures(
        False, "In one more process, evaluate validation_data with each new snapshot.", needs="snapshot_dir"
    )
    hang_timeout_seconds: float | None = _of_failures(
        None,
        "Stop the job when a worker that has been training makes no step for SECONDS. A step that TensorFlow must "
        "trace first may take longer. Beside parameter servers end that worker alone. Default: never.",
        metavar="SECONDS",
        check=_SECONDS,
        use=Use.RANKS,
    )
    standby: bool = _of_failures(
        False,
        "Keep spare processes with TensorFlow already imported, so that a restart is seconds faster. They need "
        "additional memory.",
        use=Use.HOSTS,
    )
    chaos: tuple[str, ...] = _of_failures(
        (),
        "Inject faults, to test recovery: 'kill:rank=1,step=50'; also stop, term, exception, disk-full, "
        "corrupt-snapshot, slow:factor=2, and phase=start|validation|snapshot|restart|end instead of step=; with "
        "--ps also kill:worker=1 and kill:ps=0. Separate several faults by ';': one is injected in each generation. "
        "Or 'random:seed=7,every=40'.",
        metavar="FAULTS",
        use=Use.RANKS,
        rendered=False,
        separator=";",
    )

    standalone: bool = _of_others(
        False,
        "torchrun: run on this host only. Slurm's, Kubernetes's and PACELINE_NNODES's settings for other hosts are "
        "ignored.",
        excludes=("nnodes", "node_rank", "rendezvous", "master_addr", "master_port"),
    )
    master_addr: str | None = _of_others(
        None,
        "torchrun, accelerate: the host of --rendezvous. Not used on one host.",
        metavar="HOST",
        spellings=("--main-process-ip",),
    )
    master_port: int | None = _of_others(
        None,
        "torchrun, accelerate: the port of --rendezvous, by default 29500. Not used on one host.",
        metavar="PORT",
        check=_PORT,
        spellings=("--main-process-port",),
    )
    num_processes: int | None = _of_others(
        None, "accelerate: how many workers in total, on all of --nnodes together.", metavar="N", check=_FROM_1
    )
    rdzv_id: str | None = _of_others(
        None, "torchrun: not used. The secret (--secret-file) keeps jobs apart.", metavar="ID"
    )
    rdzv_backend: str | None = _of_others(
        None,
        "torchrun: not used. Node 0 itself listens at --rendezvous; each host needs its --node-rank.",
        metavar="c10d|static",
    )


# Variables of options, by the names that messages need.
ALLOW_MISMATCH = row(JobOptions, "allow_mismatch").variable
COMMUNICATION = row(JobOptions, "communication").variable
NNODES = row(JobOptions, "nnodes").variable
NODE_RANK = row(JobOptions, "node_rank").variable
RENDEZVOUS = row(JobOptions, "rendezvous").variable
REQUIRE_SECRET = row(JobOptions, "require_secret").variable
SECRET_FILE = row(JobOptions, "secret_file").variable
START_TIMEOUT = row(JobOptions, "start_timeout_seconds").variable
STRICT = row(JobOptions, "strict").variable
