"""What a process that was started by hand says while others of its job are missing, and when the time is over. Pure."""

from paceline.rendezvous.agent_messages import Waiting

FIRST_LINE_SECONDS = 2.0
LINE_INTERVAL_SECONDS = 10.0
"""When it first says so, and how often."""


def waiting_line(who: str, num_expected: int, waiting: Waiting) -> str:
    """The line that says whom `who` waits for, out of `num_expected` processes.

    >>> from paceline.rendezvous.agent_messages import Missing
    >>> missing = (Missing("rank 1", "a:2223", "name not found"),)
    >>> waiting_line("rank 0", 2, Waiting(missing, 1, "", 290.4))
    'paceline: rank 0 waits for 1 of 2: rank 1 at a:2223 (name not found) - 290 s left'
    """
    named = ", ".join(f"{one.name} at {one.address} ({one.reason})" for one in waiting.missing)
    note = f" ({waiting.note})" if waiting.note else ""
    return one_line(
        f"paceline: {who} waits for {waiting.num_missing} of {num_expected}: {named}{_more(waiting)}"
        f" - {waiting.seconds_left:.0f} s left{note}"
    )


def late_message(kind: str, num_expected: int, waiting: Waiting, limit: str) -> str:
    """Why a process gives up, with each missing one, its address and the reason.

    Args:
        kind: What is missing: ``rank`` or ``server``.
        num_expected: How many of them there should be.
        waiting: Who is missing.
        limit: Whose time is over, in words.
    """
    from paceline.cluster.job_options import START_TIMEOUT  # the start of an agent does without the table of options

    named = "".join(f"\n  {one_line(f'{one.name} at {one.address}: {one.reason}')}" for one in waiting.missing)
    note = f"\n({one_line(waiting.note)}.)" if waiting.note else ""
    return (
        f"{waiting.num_missing} of {num_expected} {kind}s did not come in time ({limit}):"
        f"{named}{_more(waiting)}{note}\n"
        f"Start every {kind} with the same `cluster` in TF_CONFIG and its own `task`; "
        f"{START_TIMEOUT} sets how many seconds to wait."
    )


def _more(waiting: Waiting) -> str:
    unnamed = waiting.num_missing - len(waiting.missing)
    return f" and {unnamed} more" if unnamed > 0 else ""


def one_line(text: str) -> str:
    """`text` on one line, and without what moves a terminal's cursor: some of it came over the network."""
    return "".join(character if character.isprintable() else " " for character in text)
