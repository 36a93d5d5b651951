"""The files in ``golden/``: what each target writes for a small and for a full command line.

They show a change of the output to whoever reviews it. After a change that is meant, write them again and read the
difference: ``.venv/bin/python tests/render/golden_files.py``.
"""

from collections.abc import Callable
from pathlib import Path

from paceline.cluster.job_options import JobOptions
from paceline.render.gcloud import GcloudTarget, gcloud_commands
from paceline.render.kubernetes import KubernetesTarget, kubernetes_manifest
from paceline.render.slurm import SlurmTarget, sbatch_script
from paceline.render.training_run import TrainingRun

FOLDER = Path(__file__).parent / "golden"

SECRET = "0123456789abcdef" * 4

SMALL = TrainingRun(
    script="train.py", arguments=("--epochs", "3"), options=JobOptions(workers="2", nnodes=2), variables={}
)

FULL = TrainingRun(
    script="mypackage.train",
    arguments=("--lr", "1e3", "--name", "it's 100 % $(HOME) $PATH `id` \\", "--", "*", ""),
    variables={"TF_CPP_MIN_LOG_LEVEL": "2", "NOTE": 'a "quoted"\nword & $(id)'},
    options=JobOptions(
        module=True,
        workers="auto",
        nnodes=12,
        seed=7,
        bind="none",
        log_dir=Path("logs/of this job"),
        start_timeout_seconds=300.0,
        max_restarts=3,
        restart_window_seconds=3600.0,
        snapshot_dir="/data/snapshots of this job",
        snapshot_every="2.5s",
        snapshot_keep="5",
        hang_timeout_seconds=90.0,
        standby=True,
        require_secret=True,
        allow_mismatch=True,
        network_interface="eth1",
        drop_in=False,
        verbose=True,
    ),
)

CASES: dict[str, Callable[[], str]] = {
    "kubernetes_small.yaml": lambda: kubernetes_manifest(
        SMALL, KubernetesTarget(name="train", image="team/train:1.0"), SECRET
    ),
    "kubernetes_full.yaml": lambda: kubernetes_manifest(
        FULL,
        KubernetesTarget(
            name="train",
            image="registry.example.com:5000/team/train:1.0",
            namespace="team-a",
            gpus=4,
            cpu="32",
            memory="128Gi",
            shm_size="8Gi",
            port=4711,
            secret_name="our-secret",
            volume=("data:/data", "models:/models"),
            node_selector=("cloud.google.com/gke-accelerator=nvidia-l4",),
            working_dir="/data/my code",
            network_policy=False,
        ),
        SECRET,
    ),
    "slurm_small.sh": lambda: sbatch_script(SMALL, SlurmTarget()),
    "slurm_full.sh": lambda: sbatch_script(
        FULL,
        SlurmTarget(
            job_name="train",
            time="1-12:00:00",
            partition="gpu,gpu-long",
            account="project_1",
            gpus_per_node="a100:4",
            cpus_per_task=32,
            mem="200G",
            job_output="logs/%x-%j.out",
            working_dir="/home/me/my-job",
            notice_seconds=120,
            requeue=False,
            setup=("module load cuda", "source .venv/bin/activate"),
        ),
    ),
    "gcloud_small.sh": lambda: gcloud_commands(
        SMALL,
        GcloudTarget(name="train", zone="us-central1-a", machine_type="n2-standard-8", code="gs://my-bucket/my-code"),
    ),
    "gcloud_full.sh": lambda: gcloud_commands(
        FULL,
        GcloudTarget(
            name="train",
            zone="europe-west4-a",
            machine_type="n1-standard-16",
            project="my-project-123",
            image_family="common-gpu-family",
            image_project="deeplearning-platform-release",
            accelerator="type=nvidia-tesla-t4,count=4",
            boot_disk_size="200GB",
            network="my-network",
            port=4711,
            code="https://example.com/me/my-code.git",
            package="paceline[gpu]==0.1.0",
            working_dir="/home/paceline/job/src of mine",
            secret_name="train-secret",
            spot=True,
            setup=("pip install --requirement requirements.txt",),
        ),
    ),
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in CASES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8", newline="")
