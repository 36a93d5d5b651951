import signal

import pytest

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import Task
from paceline.events.head_events import RanksWaiting
from paceline.launcher.generations.decisions import (
    Cause,
    GroupNotFormed,
    Hung,
    Interrupted,
    Outcome,
    Preemption,
    RoleFailed,
    WorkerEnd,
    WorkerFailed,
    WorkerLeft,
)
from paceline.launcher.generations.event_lines import event_lines
from paceline.launcher.generations.names import Names, names_of, ranks_text
from paceline.launcher.generations.report import (
    Witness,
    report_lines,
    start_text,
    stopping_text,
    why_text,
)
from paceline.launcher.workers.host_resources import CoreShare
from paceline.rendezvous.channel import Failed, KilledFromOutside, MemoryShortage

FAILED = Failed("ValueError: bad", 'Traceback (most recent call last):\n  File "t.py"\nValueError: bad\n', 1)


RANKS = Names()
BESIDE_SERVERS = Names({0: "the chief", 1: "worker 0", 2: "ps 0"})


def witnesses(num_workers: int, *last_words: str) -> dict[int, Witness]:
    return {rank: Witness("node7", 100 + rank, last_words) for rank in range(num_workers)}


def test_the_traceback_comes_last_after_one_line_for_each_consequence():
    outcome = Outcome(
        WorkerFailed(2, 1, FAILED, ()),
        (
            WorkerEnd(0, -signal.SIGTERM, None, False),
            WorkerEnd(1, 1, Failed("OSError: reset\nmore", "Traceback …", 1), False),
            WorkerEnd(2, 1, FAILED, False),
            WorkerEnd(3, 0, None, True),
            WorkerEnd(4, 5, None, False),
            WorkerEnd(5, None, None, False),
        ),
    )
    assert report_lines(outcome, witnesses(6), RANKS) == [
        "paceline: rank 0 was stopped because rank 2 failed",
        "paceline: rank 1 failed later: OSError: reset",
        "paceline: rank 4 exited with code 5 later",
        "paceline: rank 5 (pid 105 on node7) had not ended yet some seconds after it was killed",
        "paceline: rank 2 (node7) failed with exit code 1:",
        "Traceback (most recent call last):",
        '  File "t.py"',
        "ValueError: bad",
        "paceline: rank 2 (node7): ValueError: bad [worker-failed]",
    ]


def test_an_error_that_all_ranks_raise_is_said_once():
    """Ranks that read different data raise one error together, and its ten lines were there once for each rank."""
    failed = Failed("the ranks read different data: … [data-differs]", "", 1)
    ends = tuple(WorkerEnd(rank, 1, failed, False) for rank in range(3))
    assert report_lines(Outcome(WorkerFailed(1, 1, failed, ()), ends), witnesses(3), RANKS) == [
        "paceline: ranks 0 and 2 failed with the same error as rank 1",
        "paceline: rank 1 (node7) failed with exit code 1:",
        "the ranks read different data: … [data-differs]",
    ]


def test_the_last_line_has_all_that_keras_says():
    """Keras raises "Exception encountered when calling Model.call()." with the cause two lines below, in bold."""
    failed = Failed("ValueError: in call().\n\n\x1b[1mbad rows\x1b[0m\n\nArguments: " + "x" * 500, "Traceback …", 1)
    lines = report_lines(Outcome(WorkerFailed(0, 1, failed, ()), (WorkerEnd(0, 1, failed, True),)), witnesses(1), RANKS)
    assert lines[-1].startswith("paceline: rank 0 (node7): ValueError: in call(). bad rows Arguments: xxx")
    assert len(lines[-1]) < 350


def test_an_error_that_explains_itself_has_no_traceback():
    failed = Failed("TF_CONFIG has 1 fault:\n  task.index: … [tf-config]", "", 78)
    lines = report_lines(
        Outcome(WorkerFailed(0, 78, failed, ()), (WorkerEnd(0, 78, failed, True),)), witnesses(1), RANKS
    )
    assert lines[-2:] == ["TF_CONFIG has 1 fault:", "  task.index: … [tf-config]"]


@pytest.mark.parametrize(
    ("memory", "said", "code"),
    [
        ("yes", "The kernel killed this worker because memory ran out.", "out-of-memory"),
        ("perhaps", "probably this worker", "out-of-memory"),
        ("no", "the kernel killed no process for lack of memory", "killed"),
        ("unknown", "or the kernel killed the worker because memory ran out", "killed"),
    ],
)
def test_a_killed_worker_leaves_its_last_words_and_what_is_known_of_the_signal(
    memory: MemoryShortage, said: str, code: str
):
    """Any SIGKILL from outside was called a probable lack of memory."""
    outcome = Outcome(
        WorkerFailed(0, -9, None, ()), (WorkerEnd(0, -9, None, True, killed_from_outside=KilledFromOutside(memory)),)
    )
    lines = report_lines(outcome, witnesses(1, "loading", "MemoryError?"), RANKS)
    assert lines[:-1] == ["The last lines of rank 0's stderr:", "    loading", "    MemoryError?"]
    assert "rank 0 (node7) was killed by signal 9 (SIGKILL)" in lines[-1]
    assert said in lines[-1]
    assert lines[-1].endswith(f"[{code}]")


def test_what_chaos_did_is_called_so():
    fault = "kill:rank=0,step=5,generation=1"
    end = WorkerEnd(0, -9, None, True, killed_from_outside=KilledFromOutside("no"), injected_fault=fault)
    [line] = report_lines(Outcome(WorkerFailed(0, -9, None, ()), (end,)), witnesses(1), RANKS)
    assert line == (
        f"paceline: rank 0 (node7) was killed by signal 9 (SIGKILL). --chaos injected this fault: {fault}. "
        "[worker-failed]"
    )


def test_what_tensorflow_says_at_each_start_is_no_last_word():
    banner = (
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795445565.540622   23437 port.cc:153] oneDNN custom operations are on. You may see slightly ...",
        "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the ...",
    )
    outcome = Outcome(WorkerFailed(0, -9, None, ()), (WorkerEnd(0, -9, None, True),))
    assert len(report_lines(outcome, witnesses(1, *banner), RANKS)) == 1
    assert "    loading" in report_lines(outcome, witnesses(1, *banner, "loading"), RANKS)


def test_a_crash_has_no_hint_about_memory():
    outcome = Outcome(WorkerFailed(0, -11, None, ()), (WorkerEnd(0, -11, None, True),))
    assert report_lines(outcome, witnesses(1), RANKS) == [
        "paceline: rank 0 (node7) was killed by signal 11 (SIGSEGV). [worker-failed]"
    ]


def test_a_rank_that_left_is_named_with_the_usual_cause():
    outcome = Outcome(WorkerLeft(1, (0, 2)), (WorkerEnd(1, 0, None, True),))
    text = report_lines(outcome, witnesses(3), RANKS)[-1]
    assert "rank 1 (node7) ended with code 0 before it joined the group; ranks 0 and 2 would wait" in text
    assert "must run the same script" in text


def test_a_group_that_did_not_form_names_the_flag():
    outcome = Outcome(GroupNotFormed((1,), 60.0), (WorkerEnd(0, -15, None, False),))
    lines = report_lines(outcome, witnesses(2), RANKS)
    assert lines[0] == "paceline: rank 0 was stopped because not all ranks connected in time"
    assert "after 60 s rank 1 had no connection" in lines[-1]
    assert "--start-timeout" in lines[-1]


def test_an_interrupt_needs_no_report():
    outcome = Outcome(Interrupted(signal.SIGINT), (WorkerEnd(0, -15, None, False),))
    assert report_lines(outcome, witnesses(1), RANKS) == []


def test_a_preemption_promises_no_snapshot_that_nobody_has_seen_and_names_what_went_wrong():
    ends = (
        WorkerEnd(0, 75, None, True),
        WorkerEnd(1, -signal.SIGTERM, None, True),
        WorkerEnd(2, -signal.SIGKILL, None, False),
        WorkerEnd(3, -signal.SIGSEGV, None, True),
        WorkerEnd(4, None, None, False, gone=True),
    )
    assert report_lines(Outcome(Preemption(7), ends), witnesses(5), RANKS) == [
        "paceline: rank 3 was killed by signal 11 (SIGSEGV) while all ranks were stopping",
        "paceline: rank 4 was lost with host node7",
        "paceline: the job was told to stop, and stopped after step 7. [stopped]",
    ]


def test_a_chief_beside_servers_is_no_rank():
    ends = (WorkerEnd(0, -9, None, True, killed_from_outside=KilledFromOutside("no")),)
    killed = Outcome(WorkerFailed(0, -9, None, ()), ends)
    lines = report_lines(killed, witnesses(1, "loading"), BESIDE_SERVERS)
    assert lines[0] == "The last lines of the chief's stderr:"
    assert lines[-1].startswith("paceline: the chief (node7) was killed by signal 9 (SIGKILL). ")
    lost = RoleFailed(Task("ps", 0), WorkerEnd(2, -9, None, True), 1)
    lines = report_lines(Outcome(lost, (WorkerEnd(0, -9, None, False),)), witnesses(3), BESIDE_SERVERS)
    assert lines[0] == "paceline: the chief was stopped because ps 0 was killed by signal 9 (SIGKILL)"
    hung = Hung((), 4, 5.0, ((0, "is in no collective, after 0"),))
    lines = report_lines(Outcome(hung, (WorkerEnd(0, -9, None, False),)), witnesses(1), BESIDE_SERVERS)
    assert lines[0] == "paceline: the chief is in no collective, after 0"
    assert lines[1].startswith("paceline: the chief made no step for 5 s after step 4. The stacks above show ")
    assert stopping_text(hung, 1, BESIDE_SERVERS) == "the chief made no step for 5 s; stopping the job"
    assert stopping_text(Interrupted(signal.SIGTERM), 1, BESIDE_SERVERS) == "stopping the job (SIGTERM)"
    identities = [
        WorkerIdentity(Task(*task), number, 1, 0, 1, 1, "j", 3) for number, task in enumerate([("chief", 0), ("ps", 0)])
    ]
    assert names_of(identities) == Names({0: "the chief", 1: "ps 0"})


def test_success_needs_no_report():
    assert report_lines(Outcome(None, (WorkerEnd(0, 0, None, True),)), witnesses(1), RANKS) == []


def test_stopping_says_why():
    told = stopping_text(Interrupted(signal.SIGINT), 4, RANKS)
    assert told == "stopping 4 workers (SIGINT); Ctrl-C again kills at once"
    assert stopping_text(Interrupted(signal.SIGTERM), 1, RANKS) == "stopping 1 worker (SIGTERM)"
    assert "newest snapshot" in stopping_text(Preemption(7), 2, RANKS)
    assert stopping_text(WorkerFailed(2, 1, None, ()), 3, RANKS) == "rank 2 exited with code 1; stopping the job"
    failed = WorkerFailed(2, 1, Failed("ValueError: 3", "", 1), ())
    assert stopping_text(failed, 3, RANKS) == "rank 2 failed; stopping the job"
    # Perhaps all were, from outside: the line blames nobody.
    killed = stopping_text(WorkerFailed(0, -9, None, ()), 2, RANKS)
    assert killed == "rank 0 was killed by signal 9 (SIGKILL); stopping the job"
    assert stopping_text(WorkerFailed(0, 1, None, ()), 1, RANKS) is None


def test_waiting_names_both_sides():
    assert event_lines(RanksWaiting((0, 2, 3), (1,), 20.0)) == [
        "paceline: rank 1 has not created a strategy or called fit yet, 20 s after the start; ranks 0 and 2-3 wait for "
        "rank 1"
    ]
    assert "ranks 1-2 have not created a strategy" in event_lines(RanksWaiting((0,), (1, 2), 10.0))[0]


def test_ranks():
    assert ranks_text((4,)) == "rank 4"
    assert ranks_text((5, 0, 1, 2, 7)) == "ranks 0-2, 5 and 7"


def test_the_opening_line():
    one_each = [CoreShare((0,), 1), CoreShare((1,), 1)]
    assert start_text(2, one_each, 0, "3f2a") == "2 workers on this host, 1 core each; job 3f2a"
    uneven = [CoreShare((0, 1), 2), CoreShare((2,), 1)]
    assert start_text(2, uneven, 0, "3f2a") == "2 workers on this host, 1-2 cores each; job 3f2a"
    shared = [CoreShare((0,), 1), CoreShare((0,), 1)]
    assert start_text(2, shared, 0, "3f2a") == "2 workers on this host, sharing 1 core; job 3f2a"
    assert start_text(1, None, 2, "3f2a") == "1 worker on this host, 1 GPU each, not bound to cores; job 3f2a"


PLACES = {rank: f"rank {rank} (h, h:1)" for rank in range(40)}


def failed_with(exception: str) -> WorkerFailed:
    return WorkerFailed(1, 1, Failed(exception, "", 1), ())


@pytest.mark.parametrize(
    ("cause", "end"),
    [
        (failed_with("KeyError: 3"), "failed: KeyError: 3. AGAIN [rank-lost]"),
        (failed_with("OSError: it is full."), "failed: OSError: it is full. AGAIN [rank-lost]"),
        (failed_with("expected 3 rows. [small-batch]"), "failed: expected 3 rows. AGAIN [small-batch]"),
        (failed_with("ValueError: " + 999 * "x "), "x ... AGAIN [rank-lost]"),
        (failed_with(999 * "x " + "[small-batch]"), "x ... AGAIN [small-batch]"),
        (GroupNotFormed((1,), 5.0), "not all ranks connected in time. AGAIN [start-timeout]"),
        (Preemption(3), "the job was preempted. AGAIN [stopped]"),
    ],
)
def test_the_reason_of_a_stop_by_hand_closes_with_the_code_of_its_cause(cause: Cause, end: str) -> None:
    text = why_text(cause, PLACES, RANKS, takes_snapshots=False)
    assert text.endswith(end.replace("AGAIN", "Start all ranks again with the same commands."))
    assert text.count(" [") == 1


def test_the_reason_of_a_hang_shows_the_blamed_ranks_of_many() -> None:
    states = tuple((rank, "waits in collective 7") for rank in range(40))
    text = why_text(Hung((38,), 5, 60.0, states), PLACES, RANKS, takes_snapshots=False)
    assert text.count("waits in collective 7") == 16
    assert "; rank 38 waits in collective 7; and 24 ranks more." in text
