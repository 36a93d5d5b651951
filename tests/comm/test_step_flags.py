from paceline.comm.step_flags import StepFlags


def message(*ranks: StepFlags) -> None:
    """What a collective does: all hear the sum."""
    total = sum(rank.own for rank in ranks)
    for rank in ranks:
        rank.receive(total)


def test_nobody_wants_anything() -> None:
    ranks = [StepFlags() for _ in range(3)]
    message(*ranks)
    assert not any(rank.is_leaving or rank.take_snapshot() for rank in ranks)


def test_one_wants_to_leave_and_all_know_in_the_same_step() -> None:
    ranks = [StepFlags() for _ in range(3)]
    ranks[1].preemption_requested = True
    assert not any(rank.is_leaving for rank in ranks)
    message(*ranks)
    assert all(rank.is_leaving for rank in ranks)
    assert not any(rank.take_snapshot() for rank in ranks)


def test_a_snapshot_is_taken_once() -> None:
    ranks = [StepFlags() for _ in range(2)]
    ranks[0].wants_snapshot = True
    message(*ranks)
    assert [rank.take_snapshot() for rank in ranks] == [True, True]
    message(*ranks)
    assert [rank.take_snapshot() for rank in ranks] == [False, False]


def test_both_wishes_of_thousands_of_ranks_stay_apart() -> None:
    ranks = [StepFlags() for _ in range(5000)]
    for rank in ranks:
        rank.preemption_requested = True
    ranks[0].wants_snapshot = True
    message(*ranks)
    assert ranks[-1].is_leaving
    assert ranks[-1].take_snapshot()
    assert ranks[-1].is_leaving
