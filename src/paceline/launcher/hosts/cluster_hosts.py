"""The agents of workers that were started by hand: they connect to the head at rank 0's address in TF_CONFIG.

The head also looks at the addresses of the others, to find out why they are missing.
"""

import asyncio
import math
import socket
from functools import partial

from paceline.cluster import job_options
from paceline.cluster.job_options import JobOptions
from paceline.cluster.spec import CHIEF, ROLES, Address
from paceline.errors import EXIT_UNAVAILABLE
from paceline.launcher.event_loop import in_background
from paceline.launcher.hosts.arriving_hosts import ArrivingHosts
from paceline.launcher.hosts.gathering import Member, NotGatheredError
from paceline.launcher.hosts.link import Link, close_all
from paceline.launcher.hosts.waiting_lines import WaitingLines, timeout_message, waiting_for_head
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.attached_crew import AttachedCrew
from paceline.rendezvous.agent_messages import Here, HostFacts, Interface, Missing, Refused, Waiting
from paceline.rendezvous.channel import Attach
from paceline.rendezvous.dialing import UnreachableError, dial, dial_seconds
from paceline.wire import versions

_REPORT_SECONDS = 1.0
"""How often the others are told who is missing, and how often a missing rank is looked for."""

_MAX_LOOKS_AT_A_TIME = 16
_MAX_NAMED_RANKS = 16
_OTHER_CLUSTER = "refused: it has another cluster in TF_CONFIG"


class ClusterHosts(ArrivingHosts):
    """The ranks of a cluster, each with an agent of its own.

    Args:
        loop: The running event loop.
        attach: What rank 0's worker has asked for.
        port: The listening socket at its address; owned from now on.
        crew: That worker.
        lines: Say for it who is missing.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        attach: Attach,
        port: socket.socket,
        crew: AttachedCrew,
        lines: WaitingLines,
    ) -> None:
        super().__init__(loop, num_hosts=len(attach.addresses), key=attach.key, port=port, hostname=crew.facts.hostname)
        self._attach = attach
        self._own_crew = crew
        self._lines = lines
        self._deadlines = {0: loop.time() + attach.start_timeout_seconds}
        """Until when each rank that has come waits for the others."""
        self._reasons: dict[int, str] = {}
        """Why a rank is missing, as the last look at its address has found."""
        self._were_here: set[int] = set()
        self._foreign: tuple[int, str] = (0, "")
        self._looks = asyncio.Semaphore(_MAX_LOOKS_AT_A_TIME)
        self._deferred: list[Link] = []
        """To agents that have come while this run ends; they connect again when it has."""
        self.has_begun = False
        """Whether all ranks have come."""
        crew.on_end = self._own_worker_ended

    async def gather(self, generation: int) -> tuple[Member, ...]:
        """See `Gathering.gather`. There is one generation: whoever has started the workers starts them again."""
        del generation
        looks = [self._loop.create_task(self._look_for(rank)) for rank in self._missing]
        try:
            while self._missing:
                self._raise_if_over()
                waiting = self._waiting()
                self._lines.report(waiting)
                for crew in self._crews.values():
                    crew.report_missing(waiting)
                await self._until_changed(min(_REPORT_SECONDS, self._seconds_left()))
            self._raise_if_over()
        finally:
            for look in looks:
                look.cancel()
        self.has_begun = True
        self._lines.stop()
        crews = self._all_crews(self._own_crew)
        return tuple(
            Member(crew, 1, Interface("", address.host))
            for crew, address in zip(crews, self._attach.addresses, strict=True)
        )

    async def close(self, exit_code: int) -> None:
        """See `Gathering.close`. Ranks that were awaiting others are told why they do so no more; if it is because rank
        0 has gone, they wait for it to come back.
        """
        self._lines.stop()
        self._listener.close()
        if self._failure is not None:
            self._own_crew.refuse(self._failure)
        for crew in self._crews.values():
            if self._failure is not None:
                crew.refuse(self._failure)
            elif self.has_begun:
                crew.dismiss(exit_code)
        close_all([*(crew.link for crew in self._crews.values()), *self._deferred])

    def _own_worker_ended(self) -> None:
        self._listener.close()  # a next run on this port must not meet this one
        self._changed.set()

    def _raise_if_over(self) -> None:
        if self._own_crew.has_ended:
            raise NotGatheredError(["paceline: rank 0 ended before the group was complete"])
        if self._failure is None and self._missing and not self._seconds_left():
            text = timeout_message(self._attach, self._waiting(), self._first_to_give_up())
            self._failure = Refused(text, EXIT_UNAVAILABLE)
        if self._failure is not None:
            raise NotGatheredError([self._failure.message], self._failure.exit_code)

    def _waiting(self) -> Waiting:
        missing = self._missing
        named = tuple(
            Missing(f"rank {rank}", str(self._attach.addresses[rank]), self._reason(rank))
            for rank in missing[:_MAX_NAMED_RANKS]
        )
        count, last = self._foreign
        note = f"rank 0 refused {count} connections of another job, the last one from {last}" if count else ""
        return Waiting(named, len(missing), note, self._seconds_left())

    def _first_to_give_up(self) -> int:
        """Of the ranks that are here: one that has gone limits nobody, and may come back with another timeout."""
        here = [rank for rank in self._deadlines if rank == 0 or self._is_present(rank)]
        return min(here, key=self._deadlines.__getitem__)

    def _seconds_left(self) -> float:
        return max(0.0, self._deadlines[self._first_to_give_up()] - self._loop.time())

    def _reason(self, rank: int) -> str:
        reason = self._reasons.get(rank, "no answer yet")
        return f"{reason}; it had joined, and is gone: start it again" if rank in self._were_here else reason

    async def _look_for(self, rank: int) -> None:
        """Finds out again and again why `rank` is missing."""
        patience = dial_seconds(self._attach.start_timeout_seconds)
        while True:
            if not self._is_present(rank):
                async with self._looks:
                    work = partial(_found_at, self._attach.addresses[rank], rank, self._attach.key, patience)
                    reason = await in_background(work)
                if self._reasons.get(rank) != _OTHER_CLUSTER:
                    self._reasons[rank] = reason
            await asyncio.sleep(_REPORT_SECONDS)

    def _meet_foreigner(self, host: str, version: str) -> None:
        reason = versions.other_paceline(version) if version else "its `cluster` in TF_CONFIG or its secret differs"
        self._foreign = (self._foreign[0] + 1, f"{host}: {reason}")

    def _welcome(self, here: Here, link: Link) -> bool:
        """See `ArrivingHosts`."""
        rank = here.facts.node_rank
        if self.has_begun and rank in self._crews and not self._is_present(rank):
            reason = f"still ends the run in which rank {rank} was lost"
            link.send(waiting_for_head(self._attach, reason, here.seconds_left or 0.0))
            self._deferred.append(link)
            return False
        if not super()._welcome(here, link):
            return False
        assert rank is not None
        self._were_here.add(rank)
        self._deadlines[rank] = math.inf if here.seconds_left is None else self._loop.time() + here.seconds_left
        return True

    def _refusal(self, here: Here) -> Refused | None:
        facts, own = here.facts, self._own_crew.facts
        rank = facts.node_rank
        if facts.num_nodes != own.num_nodes or facts.cluster_digest != own.cluster_digest:
            if rank is not None:
                self._reasons[rank] = _OTHER_CLUSTER
            return Refused(
                f"rank {rank} and rank 0 have different clusters in TF_CONFIG: "
                f"world size {facts.num_nodes} and description {facts.cluster_digest} there, "
                f"{own.num_nodes} and {own.cluster_digest} on rank 0. "
                "Expected the same `cluster` on every rank. [tf-config]"
            )
        if rank is None or not 0 <= rank < self._num_hosts:
            return Refused(f"rank {rank} was received, expected 0 to {self._num_hosts - 1}. [tf-config]")
        present = own if rank == 0 else self._facts_of(rank)
        if present is not None:
            return self._second_process(rank, present)
        return self._other_versions(here, rank)

    def _second_process(self, rank: int, present: HostFacts) -> Refused:
        standing = "the group is complete" if self.has_begun else "that process has joined already"
        return Refused(
            f"another process is rank {rank} of this job, on host {present.hostname}: {standing}. Every process "
            "needs its own `task` in TF_CONFIG, and must be started only once. [tf-config]"
        )

    def _other_versions(self, here: Here, rank: int) -> Refused | None:
        """Differing versions end the start for all: waiting cannot heal them."""
        own = self._own_crew.facts.versions
        found = versions.differences(here.facts.versions, f"rank {rank}", own, "rank 0")
        if not found or here.allow_mismatch or self._attach.allow_mismatch:
            return None
        self._failure = Refused(
            f"the versions differ between ranks: {'; '.join(found)}. Install the same versions on "
            f"every host, or set {job_options.ALLOW_MISMATCH}=1 to run with different versions. "
            "[hosts-differ]"
        )
        return self._failure


def job_of(attach: Attach) -> JobDescription:
    """The job that rank 0's worker has asked for."""
    return JobDescription(
        command=("started by hand",),
        num_workers=len(attach.addresses),
        environment={},
        roles=(ROLES[CHIEF],) if attach.has_chief else (),
        options=JobOptions(
            seed=attach.seed,
            hang_timeout_seconds=attach.hang_timeout_seconds,
            start_timeout_seconds=attach.start_timeout_seconds,
        ),
    )


def _found_at(address: Address, rank: int, key: bytes, patience_seconds: float) -> str:
    """Why `rank`, which should be at `address`, has not come."""
    try:
        reached = dial(address, key, patience_seconds)
    except UnreachableError as fault:
        return fault.reason
    reached.connected.close()
    identity = reached.identity
    if identity.rank == rank:
        return "started, but it has not reached rank 0 yet"
    return f"rank {identity.rank} of this job answers there, on host {identity.hostname}"
