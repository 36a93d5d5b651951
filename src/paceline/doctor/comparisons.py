"""What the doctor says of several hosts beside each other: differences, clocks, and the network. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from paceline.doctor.findings import Finding, Severity, requirement
from paceline.doctor.pairing import Pair, blamed
from paceline.doctor.records import Condition, Met
from paceline.wire.versions import NOT_INSTALLED, differences

MAX_CLOCK_SECONDS = 1.0
MAX_KERNEL_RATIO = 1.5
"""How many times as long as the fastest host another one may take for the same work."""

LEAST_BYTES_PER_SECOND = 12.5e6
"""100 Mbit/s."""

MAX_BANDWIDTH_RATIO = 4.0
"""How many times slower than the best pair another one may be."""

MAX_ROUND_TRIP_SECONDS = 0.01


def findings_between(conditions: Mapping[str, Condition], offsets: Mapping[str, float]) -> Iterator[Finding]:
    """What differs between hosts.

    Args:
        conditions: By host.
        offsets: By host, how far its clock is ahead of this one's, in seconds.
    """
    if len(conditions) < 2:
        return
    first, *others = conditions
    different = [one for host in others for one in _versions(conditions, first, host)]
    yield from different or [Finding("ok", "versions", f"the same on all {len(conditions)} hosts")]
    yield from _clocks({host: offsets[host] - offsets[first] for host in others if {host, first} <= offsets.keys()})
    fastest = min(conditions, key=lambda host: conditions[host].kernel_seconds)
    for host, has in conditions.items():
        ratio = has.kernel_seconds / max(conditions[fastest].kernel_seconds, 1e-9)
        if ratio > MAX_KERNEL_RATIO:
            text = f"A core takes {ratio:.1f} times as long as on {fastest} for the same work: the others wait for it."
            fix = f"Put a host in its place that is as fast as {fastest}, or leave it out of --hosts."
            yield Finding("warning", "speed", text, fix, host)


def _versions(conditions: Mapping[str, Condition], first: str, host: str) -> Iterator[Finding]:
    theirs, ours = conditions[host].versions, conditions[first].versions
    for name in dict.fromkeys((*ours, *theirs)):
        wanted = ours.get(name, NOT_INSTALLED)
        for text in differences(_one(theirs, name), host, _one(ours, name), first):
            fix = f"On {host} type: pip install {requirement(name, f'=={wanted}')}"
            if wanted == NOT_INSTALLED:
                fix = f"On {first} type: pip install {requirement(name, f'=={theirs[name]}')}"
            elif name == "Python":
                fix = f"Install Python {wanted} on {host}, or name another one with --remote-python."
            severity: Severity = "warning" if name == "mpi4py" else "error"  # of that one, Paceline runs with any
            yield Finding(severity, "versions", f"{text}: all ranks must run the same programs.", fix, host)


def _one(versions: Mapping[str, str], name: str) -> dict[str, str]:
    return {name: versions.get(name, NOT_INSTALLED)}


def _clocks(offsets: Mapping[str, float]) -> Iterator[Finding]:
    """Of clocks, by how far they are ahead of that of the first host."""
    most = max(map(abs, offsets.values()), default=0.0)
    if most <= MAX_CLOCK_SECONDS:
        yield Finding("ok", "clocks", f"at most {most:.2f} s apart")
        return
    for host, offset in offsets.items():
        if abs(offset) > MAX_CLOCK_SECONDS:
            text = f"The clock is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the first host's: "
            text += "times in logs, events and files cannot be compared."
            yield Finding(
                "warning", "clocks", text, "Start a time service on every host: timedatectl set-ntp true", host
            )


def judged(met: Mapping[Pair, Met]) -> dict[Pair, bool]:
    """Of each pair, whether its network is as good as that of the best pair, or nearly."""
    best = max((one.bytes_per_second for one in met.values()), default=0.0)
    least = max(LEAST_BYTES_PER_SECOND, best / MAX_BANDWIDTH_RATIO)
    return {
        pair: not one.fault and one.bytes_per_second >= least and one.round_trip_seconds <= MAX_ROUND_TRIP_SECONDS
        for pair, one in met.items()
    }


def findings_of_network(hosts: Sequence[str], met: Mapping[Pair, Met]) -> Iterator[Finding]:
    """The hosts that are the fault, pairs for which no single host is, and what is well.

    Args:
        hosts: Their names.
        met: What was measured, by the numbers of the two hosts.
    """
    good = judged(met)
    bad_hosts, bad_pairs = blamed(good)
    for host in bad_hosts:
        of_host = {pair: one for pair, one in met.items() if host in pair}
        *others, last = (hosts[sum(pair) - host] for pair in of_host)
        partners = f"{', '.join(others)} and {last}" if others else last
        worst = min(of_host.values(), key=lambda one: one.bytes_per_second)
        text = f"The network is slow with {partners} ({speed(worst)}), which are faster with other hosts."
        fix = f"Look at the cable and the interface of {hosts[host]} (ethtool), or leave it out of --hosts."
        if worst.fault:
            text = f"There is no connection with {partners}, which reach other hosts: {worst.fault}."
            fix = _open_ports(hosts[host])
        yield Finding("error" if worst.fault else "warning", "network", text, fix, hosts[host])
    for pair in bad_pairs:
        first, second = (hosts[one] for one in pair)
        text = f"The network between {first} and {second} is slow: {speed(met[pair])}."
        fix = f"Look at the network between {first} and {second}, or leave one of them out of --hosts."
        if fault := met[pair].fault:
            text, fix = f"{first} cannot connect to {second}: {fault}.", _open_ports(second)
        yield Finding("error" if fault else "warning", "network", text, fix)
    if all_well := [met[pair] for pair, is_good in good.items() if is_good]:
        slowest = Met(max(one.round_trip_seconds for one in all_well), min(one.bytes_per_second for one in all_well))
        pairs = "1 pair" if len(all_well) == 1 else f"{len(all_well)} pairs"
        yield Finding("ok", "network", f"{pairs} of hosts with {speed(slowest)}, or better")


def _open_ports(host: str) -> str:
    return f"Let {host} accept connections of the others on all TCP ports: look at its firewall (nft list ruleset)."


def speed(met: Met) -> str:
    """For readers.

    >>> speed(Met(0.0001, 1.25e9))
    '10,000 Mbit/s, 0.10 ms there and back'
    """
    return f"{met.bytes_per_second * 8e-6:,.0f} Mbit/s, {met.round_trip_seconds * 1000:.2f} ms there and back"
