"""Asks the hosts, all at the same time: starts `host_side.py` on each over ssh, or beside this process.

A host that cannot be reached, or is lost meanwhile, is named; the others are examined all the same. Nothing of it
outlives this process: whoever is asked ends when nobody can ask any more.
"""

import asyncio
import contextlib
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from paceline.doctor import records
from paceline.doctor.comparisons import findings_between, findings_of_network, judged
from paceline.doctor.findings import Finding, findings_of
from paceline.doctor.pairing import Pair, first_round, second_round, slots
from paceline.doctor.records import AskClock, AskCondition, Clock, Condition, Listen, Listening, Meet, Met
from paceline.launcher.hosts.ssh_line import (
    AgentProcess,
    NotStartedError,
    agent_command,
    end_agent,
    is_this_host,
    ssh_command,
    start_agent,
)
from paceline.launcher.other_hosts import SshOptions
from paceline.launcher.workers.guard_line import GuardLine
from paceline.wire.codec import Decoder, encode
from paceline.wire.versions import VERSION

PROGRAM = "paceline.doctor.host_side"
PATIENCE_SECONDS = 2.0
"""After which a user is told what takes so long."""

_START_SECONDS = 15.0
_ANSWER_SECONDS = 10.0
_MEETING_SECONDS = 30.0
_KEY_BYTES = 32
_NUM_CLOCK_QUESTIONS = 5

_NO_GUARD = GuardLine(-1)
"""Nothing is to be guarded: what is started ends with its connection."""

Say = Callable[[str], None]
Kind = TypeVar("Kind", Clock, Condition, Listening, Met)
Result = TypeVar("Result")


@dataclass(slots=True)
class Examination:
    """What was found."""

    findings: list[Finding] = field(default_factory=list)
    conditions: dict[str, Condition] = field(default_factory=dict)
    """By host, of those that answered."""
    pairs: dict[Pair, Met] = field(default_factory=dict)
    """By the places of two hosts in `conditions`."""


class _LostError(Exception):
    """The host does not answer any more; the message completes the sentence "The host …"."""


class _Host:
    """The other end of a connection to a host."""

    def __init__(self, name: str, agent: AgentProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.name = name
        self.is_lost = False
        self._agent, self._reader, self._writer = agent, reader, writer
        self._decode = Decoder[records.Answer](records.Answer)

    async def ask(self, question: records.Question, kind: type[Kind], seconds: float = _ANSWER_SECONDS) -> Kind:
        """The answer.

        Raises:
            _LostError: there is none within `seconds`.
        """
        if self.is_lost:  # an answer that came late would be taken for the next one
            raise _LostError("was lost while it was examined")
        try:
            self._writer.write(encode(question) + b"\n")
            line = await asyncio.wait_for(self._reader.readline(), seconds)
            answer = self._decode(line)
        except TimeoutError as fault:
            raise _LostError(f"did not answer within {seconds:g} s{self._agent.last_words.after(': ')}") from fault
        except (OSError, ValueError) as fault:  # a GarbledError is a ValueError
            raise _LostError(f"was lost while it was examined{self._agent.last_words.after(': ')}") from fault
        if not isinstance(answer, kind):
            raise _LostError(f"gave another answer than a {kind.__name__}")
        return answer

    def close(self) -> None:
        """Ends the process there, and ssh. Idempotent."""
        self._writer.close()
        end_agent(self._agent, 0.0, _NO_GUARD)


async def examine(hosts: Mapping[str, int], ssh: SshOptions, snapshot_dir: str, say: Say) -> Examination:
    """Examines `hosts`.

    Args:
        hosts: As ssh takes them, with the number of their workers; 0: as many as ``--workers auto`` starts.
        ssh: How they are reached.
        snapshot_dir: Where the job's snapshots will be; empty: nowhere, or not on a disk.
        say: Prints a line for the user, of what takes long.
    """
    found, names = Examination(), list(hosts)
    with contextlib.ExitStack() as at_end:
        with _telling(say, f"waits for {names[0] if len(hosts) == 1 else f'{len(hosts)} hosts'} to answer"):
            started = await asyncio.gather(*(_started(host, ssh, found.findings, at_end) for host in hosts))
        there = [host for host in started if host is not None]
        with _telling(say, "measures the hosts"):
            offsets = await asyncio.gather(*(_attempt(host, _clock_offset(host), found.findings) for host in there))
            conditions = await asyncio.gather(
                *(
                    _attempt(host, host.ask(AskCondition(hosts[host.name], snapshot_dir), Condition), found.findings)
                    for host in there
                )
            )
        answered = [(host, one) for host, one in zip(there, conditions, strict=True) if one is not None]
        found.conditions = {host.name: one for host, one in answered}
        for name, one in found.conditions.items():
            found.findings += (replace(finding, host=name) for finding in findings_of(one))
        known = {host.name: offset for host, offset in zip(there, offsets, strict=True) if offset is not None}
        found.findings += findings_between(found.conditions, known)
        await _measure_network([host for host, _ in answered], found, say)
    found.findings.sort(key=lambda one: names.index(one.host) if one.host else len(hosts))
    return found


async def _measure_network(hosts: Sequence[_Host], found: Examination, say: Say) -> None:
    conditions = list(found.conditions.values())

    async def meet(pair: Pair) -> None:
        key = os.urandom(_KEY_BYTES)
        first, second = (hosts[one] for one in pair)
        listening = await _attempt(second, second.ask(Listen(key), Listening), found.findings)
        if listening is not None:
            question = Meet(conditions[pair[1]].reachable_addresses(), listening.port, key)
            met = await _attempt(first, first.ask(question, Met, _MEETING_SECONDS), found.findings)
            if met is not None:
                found.pairs[pair] = met

    pairs = first_round(len(hosts))
    for number in (1, 2):
        with _telling(say, f"measures the network between the hosts, round {number} of at most 2"):
            for group in slots(pairs):
                await asyncio.gather(*map(meet, group))
        pairs = second_round(len(hosts), judged(found.pairs))
    found.findings += findings_of_network([host.name for host in hosts], found.pairs)


async def _started(host: str, ssh: SshOptions, findings: list[Finding], at_end: contextlib.ExitStack) -> _Host | None:
    """The other end of `host`, until `at_end`; None: it was not reached, which is among `findings` now."""
    is_here = is_this_host(host)
    python = sys.executable if is_here else ssh.python
    command = agent_command(python, PROGRAM) if is_here else ssh_command(host, ssh, PROGRAM)
    try:
        agent = await start_agent(command, python, _START_SECONDS, _NO_GUARD)
    except NotStartedError as fault:
        findings.append(_unreached(host, str(fault)))
        return None
    reached = _Host(host, agent, *await asyncio.open_connection(sock=agent.connected))
    at_end.callback(reached.close)
    if not is_here:
        findings.append(Finding("ok", "ssh", "answers without a password, and has this Paceline", host=host))
    return reached


def _unreached(host: str, reason: str) -> Finding:
    what, _, fix = reason.removesuffix(" [hosts-differ]").partition(". ")
    usual = f"Type `ssh {host} true` here: it must end without a question and without an error."
    if f"No module named '{PROGRAM.rpartition('.')[0]}'" in reason:
        what, fix = "has an older Paceline", f"Install this version there: pip install 'paceline=={VERSION}'"
    return Finding("error", "ssh", f"The host {what.rstrip('.')}.", fix or usual, host)


async def _attempt(host: _Host, work: Awaitable[Result], findings: list[Finding]) -> Result | None:
    """What `work` with `host` returns; None: it was lost, which is among `findings` now."""
    try:
        return await work
    except _LostError as fault:
        if not host.is_lost:
            fix = f"See whether it runs, and how busy it is: ssh {host.name} uptime"
            findings.append(Finding("error", "ssh", f"The host {fault}.", fix, host.name))
        host.is_lost = True
        return None


async def _clock_offset(host: _Host) -> float:
    """How far the clock of `host` is ahead of this one's, in seconds, from the quickest of some answers."""
    quickest, offset = math.inf, 0.0
    for _ in range(_NUM_CLOCK_QUESTIONS):
        began, at = time.monotonic(), time.time()
        there = (await host.ask(AskClock(), Clock)).seconds
        seconds = time.monotonic() - began
        if seconds < quickest:
            quickest, offset = seconds, there - at - seconds / 2
    return offset


@contextlib.contextmanager
def _telling(say: Say, text: str) -> Iterator[None]:
    """Says `text` if what follows takes long."""
    timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, say, text)
    try:
        yield
    finally:
        timer.cancel()
