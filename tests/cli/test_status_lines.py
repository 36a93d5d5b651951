"""What `paceline status` and `paceline top` print of a job."""

import pytest

from paceline.cli.status_lines import BY_HOST_FROM, job_lines, status_lines, top_line
from paceline.events.worker_events import EpochEnded, SnapshotTaken, StepsTimed, StragglerFound
from paceline.launcher.live.job_status import JobStatus, WorkerStatus

COLUMNS = 80
STEP = "step 43 ms: input 6 %, compute 58 %, update 13 %, waiting for rank 1 15 %, messages 8 %"


def job(*workers: WorkerStatus, full: bool = True) -> JobStatus:
    return JobStatus(
        job_id="0123456789abcdef",
        program="train.py --epochs 3",
        state="training" if full else "connecting",
        seconds=3725.0,
        host="a",
        pid=9,
        generation=2 if full else 1,
        num_workers=sum(one.rank is not None for one in workers),
        workers=workers,
        epoch=2 if full else None,
        step=1234 if full else None,
        steps_per_second=23.14 if full else None,
        step_age_seconds=0.1 if full else None,
        epoch_ended=EpochEnded(0, 1, 1000, 9.0, {"loss": 0.31234, "auc": None}) if full else None,
        num_snapshots=7 if full else 0,
        snapshot=SnapshotTaken(0, 1200, "step-1200", 12_345_678) if full else None,
        snapshot_age_seconds=61.0 if full else None,
        num_failed_snapshots=0,
        num_restarts=1 if full else 0,
        max_restarts=3,
        failure="rank 1 was killed by SIGKILL at step 700" if full else "",
        step_times=StepsTimed(0, 50, 0.043, {"input": 0.06}, 1, False, STEP) if full else None,
        straggler=StragglerFound(0, 1, 1.9, 0.15, "", "rank 1 computes 1.9 times as long [straggler]")
        if full
        else None,
    )


TWO = (
    WorkerStatus("worker 0", 0, "a", 4711, "training", 1234),
    WorkerStatus("worker 1", 1, "b", 4712, "killed (SIGKILL)"),
    WorkerStatus("ps 0", None, "a", 4713),
)
MANY = tuple(
    WorkerStatus(f"worker {rank}", rank, f"host{rank // 8}", 100 + rank, "training" if rank else "waiting", rank)
    for rank in range(BY_HOST_FROM)
)


def test_all_of_a_job() -> None:
    assert status_lines(job(*TWO), COLUMNS) == [
        "job 0123456789abcdef  training, for 1 h 2 min",
        "  program   train.py --epochs 3",
        "  launcher  pid 9 on a",
        "  training  epoch 3, step 1,234, 23.1 steps/s",
        "  metrics   loss 0.3123, auc nan (epoch 2)",
        "  time      step 43 ms: input 6 %, compute 58 %, update 13 %, waiting for rank 1",
        "            15 %, messages 8 %",
        "  straggler rank 1 computes 1.9 times as long [straggler]",
        "  snapshots 7, the last one of step 1,200, 1 min 1 s ago (step-1200, 12.3 MB)",
        "  restarts  1 of 3; the last one: rank 1 was killed by SIGKILL at step 700",
        "  process   rank  host  pid   state             step",
        "  worker 0  0     a     4711  training          1,234",
        "  worker 1  1     b     4712  killed (SIGKILL)  -",
        "  ps 0      -     a     4713  running           -",
    ]


def test_a_job_of_which_little_is_known() -> None:
    assert status_lines(job(full=False), COLUMNS) == [
        "job 0123456789abcdef  connecting, for 1 h 2 min",
        "  program   train.py --epochs 3",
        "  launcher  pid 9 on a",
        "  restarts  0 of 3",
    ]


def test_many_ranks_are_shown_by_host() -> None:
    server = WorkerStatus("ps 0", None, "host0", 99)
    assert status_lines(job(*MANY, server), COLUMNS)[-5:] == [
        "  host   processes  steps    states",
        "  host0  8          0 to 7   7 training, 1 waiting",
        "  host1  8          8 to 15  8 training",
        "  process  rank  host   pid  state    step",
        "  ps 0     -     host0  99   running  -",
    ]
    assert not any(line.startswith("  worker") for line in status_lines(job(*MANY), COLUMNS))
    assert any(line.startswith("  worker") for line in status_lines(job(*MANY[1:]), COLUMNS))


def test_many_workers_beside_parameter_servers_are_shown_by_host_too() -> None:
    serving = [WorkerStatus(f"worker {number}", None, "a", 50 + number) for number in range(BY_HOST_FROM)]
    assert status_lines(job(TWO[0], *serving), COLUMNS)[-4:] == [
        "  process   rank  host  pid   state     step",
        "  worker 0  0     a     4711  training  1,234",
        "  host  processes  steps  states",
        f"  a     {BY_HOST_FROM}         -      {BY_HOST_FROM} running",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("status", [job(*TWO), job(*MANY), job(full=False)])
def test_no_line_is_too_long(status: JobStatus, columns: int) -> None:
    lines = [*status_lines(status, columns), top_line(status, columns), *job_lines([status] * 2, columns)]
    assert max(map(len, lines)) <= columns


def test_a_line_for_a_pipe() -> None:
    assert top_line(job(*TWO), 200) == (
        "1 h 2 min: training, 2 ranks, epoch 3, step 1,234, 23.1 steps/s, loss 0.3123, auc nan, 1 restart, " + STEP
    )
    assert top_line(job(full=False), COLUMNS) == "1 h 2 min: connecting, 0 ranks"


def test_a_list_of_jobs() -> None:
    assert job_lines([job(*TWO), job(full=False)], COLUMNS) == [
        "job               state       for        ranks  step   program",
        "0123456789abcdef  training    1 h 2 min  2      1,234  train.py --epochs 3",
        "0123456789abcdef  connecting  1 h 2 min  0      -      train.py --epochs 3",
    ]
