"""Parses the text of ``--chaos`` into a `Plan`; reports all mistakes at once. Pure.

    kill:rank=1,step=50; stop:phase=validation; corrupt-snapshot:rank=any,step=90
    random:seed=7,every=40

Faults without ``generation=`` are injected in the order given. A fault that ends its generation is followed by the next
one in the next generation, so a restarted job does not get the same fault again.
"""

import contextlib
from collections.abc import Mapping, Sequence

from paceline.chaos.plan import AT_A_STEP_ONLY, WITHOUT_STEP, Action, Fault, Phase, Plan, RandomFaults
from paceline.cluster.spec import PARAMETER_SERVER, WORKER, Task
from paceline.cluster.value_checks import FaultList, shown

SETTING = "--chaos"
RANDOM = "random"
ANY = "any"

_ACTIONS = (*map(str, Action), RANDOM)
_SERVERS = (WORKER, PARAMETER_SERVER)
_CONDITIONS = ("rank", *_SERVERS, "step", "phase", "generation", "factor")
_RANDOM_CONDITIONS = ("seed", "every", "action")
_RANDOM_ACTIONS = (Action.KILL, Action.STOP, Action.EXCEPTION)
_MAX_DIGITS = 12
_MAX_FACTOR = 100


def read_plan(texts: Sequence[str]) -> Plan:
    """The plan in the values of ``--chaos``, of which each holds one or more faults.

    >>> [str(fault) for fault in read_plan(["kill:step=5; kill:phase=restart,rank=1"]).faults]
    ['kill:rank=0,step=5,generation=1', 'kill:rank=1,phase=restart,generation=2']

    Raises:
        ConfigurationError: names every fault of the text.
    """
    faults = FaultList(SETTING, "[chaos]")
    pieces = [piece.strip() for text in texts for piece in text.split(";")]
    found: list[Fault] = []
    randoms: list[RandomFaults] = []
    generation = 1
    is_over = False
    for piece in pieces:
        action, conditions = _taken_apart(piece, faults)
        if action == RANDOM:
            randoms += _random(piece, conditions, faults)
            continue
        fault = _fault(piece, action, conditions, generation, faults)
        if fault is None:
            continue
        if is_over and "generation" not in conditions:
            faults.add(shown(piece), "a fault after a term", "term as the last one", "term ends the job: put it last")
        found.append(fault)
        if "generation" not in conditions and fault.ends_generation:
            generation += 1
            is_over = fault.action is Action.TERM
    if randoms and (found or len(randoms) > 1):
        faults.add(RANDOM, f"{len(randoms) + len(found)} faults", "it alone", "leave the others out")
    if len(faults):
        raise faults.error()
    return Plan(tuple(found), randoms[0] if randoms else None)


def _taken_apart(piece: str, faults: FaultList) -> tuple[str, dict[str, str]]:
    """Action and conditions."""
    action, _, rest = piece.partition(":")
    action = action.strip()
    known = _RANDOM_CONDITIONS if action == RANDOM else _CONDITIONS
    conditions: dict[str, str] = {}
    for text in rest.split(",") if rest.strip() else []:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in known or not value or name in conditions:
            once = " once" if name in conditions else ""
            faults.add(
                shown(piece),
                shown(text.strip()),
                f"NAME=VALUE{once} with a name out of {', '.join(known)}",
                "correct it or leave it out",
            )
        else:
            conditions[name] = value
    return action, conditions


def _fault(piece: str, action: str, conditions: dict[str, str], generation: int, faults: FaultList) -> Fault | None:
    before = len(faults)
    if action not in _ACTIONS:
        faults.add(shown(piece), shown(action), f"one of {', '.join(_ACTIONS)}", "e.g. kill:rank=1,step=50")
        return None
    is_any = conditions.get("rank") == ANY
    rank = None if is_any else _number(piece, "rank", conditions, 0, faults, default=0)
    indices = {role: _number(piece, role, conditions, 0, faults) for role in _SERVERS if role in conditions}
    servers = [Task(role, index) for role, index in indices.items() if index is not None]
    step = _number(piece, "step", conditions, 1, faults)
    number = _number(piece, "generation", conditions, 1, faults, default=generation)
    factor = _factor(piece, action, conditions, faults)
    is_at_start = action == Action.SLOW and "step" not in conditions
    phase = conditions.get("phase", Phase.START if is_at_start else Phase.STEP)
    if phase not in [*Phase]:
        faults.add(shown(piece), f"phase={phase}", f"one of {', '.join(Phase)}", "correct it")
        return None
    if len(faults) > before or number is None:
        return None
    if servers and (len(servers) > 1 or "rank" in conditions or action != Action.KILL):
        targets = " or ".join(f"{role}=" for role in ("rank", *_SERVERS))
        faults.add(shown(piece), "a fault of a server", f"kill, with one of {targets}", "e.g. kill:worker=1,step=50")
        return None
    server = servers[0] if servers else None
    fault = Fault(
        action=Action(action),
        phase=Phase(phase),
        rank=rank,
        server=server,
        step=step,
        generation=number,
        factor=factor,
    )
    _check(piece, fault, faults)
    return fault


def _check(piece: str, fault: Fault, faults: FaultList) -> None:
    """What cannot happen together."""
    if fault.action in AT_A_STEP_ONLY and fault.phase is not Phase.STEP:
        faults.add(shown(piece), f"phase={fault.phase}", f"step= only with {fault.action}", "leave phase= out")
    elif fault.phase is Phase.STEP and fault.step is None:
        faults.add(shown(piece), "neither step= nor phase=", "when it is injected", "add step=50, or phase=validation")
    if fault.phase in WITHOUT_STEP and fault.step is not None:
        faults.add(shown(piece), f"step={fault.step}", f"no step= with phase={fault.phase}", "leave one of them out")
    if fault.phase is Phase.RESTART and fault.generation == 1:
        faults.add(
            shown(piece),
            "generation 1, which is no restart",
            "a generation from 2 on",
            "put a fault in front of it, e.g. kill:step=5; kill:phase=restart",
        )


def _random(piece: str, conditions: dict[str, str], faults: FaultList) -> list[RandomFaults]:
    seed = _number(piece, "seed", conditions, 0, faults, default=0)
    every = _number(piece, "every", conditions, 1, faults)
    action = conditions.get("action", Action.KILL)
    if action not in _RANDOM_ACTIONS:
        faults.add(shown(piece), f"action={action}", f"one of {', '.join(_RANDOM_ACTIONS)}", "correct it")
        return []
    if every is None or seed is None:
        if "every" not in conditions:
            faults.add(shown(piece), "no every=", "about how many steps apart", "e.g. random:seed=7,every=40")
        return []
    return [RandomFaults(seed, every, Action(action))]


def _number(
    piece: str, name: str, conditions: dict[str, str], least: int, faults: FaultList, default: int | None = None
) -> int | None:
    text = conditions.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) >= least:
        return int(text)
    expected = f"a number from {least} on" + (f", or {ANY}" if name == "rank" else "")
    faults.add(shown(piece), f"{name}={text}", expected, "correct it")
    return None


def _factor(piece: str, action: str, conditions: dict[str, str], faults: FaultList) -> float:
    text = conditions.get("factor")
    if action != Action.SLOW:
        if text is not None:
            faults.add(shown(piece), f"factor={text}", f"factor= only with {Action.SLOW}", "leave factor= out")
        return 1.0
    with contextlib.suppress(ValueError, TypeError):
        factor = float(text)  # type: ignore[arg-type]  # None is suppressed
        if 1 < factor <= _MAX_FACTOR:
            return factor
    received = "no factor=" if text is None else f"factor={text}"
    faults.add(
        shown(piece),
        received,
        f"how many times as slow, more than 1, at most {_MAX_FACTOR}",
        "e.g. slow:rank=1,factor=2",
    )
    return 1.0


_SHOWN_FAULTS = 6


def check_possible(
    plan: Plan, *, world_size: int, servers: Mapping[str, int], has_snapshots: bool, has_hang_timeout: bool
) -> None:
    """Refuses a plan of which a fault would never be injected, or from which the job would never recover.

    Args:
        plan: What ``--chaos`` says.
        world_size: How many ranks the job has.
        servers: How many workers and parameter servers stand outside of the world, by role; empty: none.
        has_snapshots: Whether it takes snapshots.
        has_hang_timeout: Whether it notices processes that do nothing.

    Raises:
        ConfigurationError: names all that is wrong.
    """
    faults = FaultList(SETTING, "[chaos]")
    if not has_snapshots:
        faults.add(
            "--snapshot-dir", "nothing", "a folder: the steps are counted as snapshots count them", "add --snapshot-dir"
        )
    for fault in plan.faults:
        if fault.server is not None:
            number = servers.get(fault.server.type, 0)
            if fault.server.index >= number:
                expected = f"one from 0 to {number - 1}" if number else "rank=, as the job has no parameter servers"
                faults.add(str(fault), str(fault.server), expected, "correct it, or start the job with --ps")
        elif fault.rank is not None and fault.rank >= world_size:
            faults.add(
                str(fault), f"rank {fault.rank}", f"a rank from 0 to {world_size - 1}", "correct rank=, or --workers"
            )
    actions = {fault.action for fault in plan.faults} | ({plan.random.action} if plan.random else set())
    if Action.STOP in actions and not has_hang_timeout:
        faults.add(
            "--hang-timeout",
            "nothing",
            "seconds: without --hang-timeout the job waits for a stopped worker for ever",
            "add --hang-timeout 10",
        )
    if len(faults):
        raise faults.error()


def plan_text(plan: Plan, max_restarts: int) -> str:
    """The line that lists the faults.

    >>> plan_text(Plan((Fault(action=Action.KILL, phase=Phase.STEP, rank=1, step=50),)), max_restarts=3)
    'chaos: kill rank 1 at step 50 of generation 1'
    """
    if plan.random is not None:
        every, action, seed = plan.random.every, plan.random.action, plan.random.seed
        text = f"{action} a random rank about every {every} steps (seed {seed})"
    else:
        shown = [_fault_text(fault) for fault in plan.faults[:_SHOWN_FAULTS]]
        more = len(plan.faults) - len(shown)
        text = "; ".join([*shown, *([f"and {more} more"] if more else [])])
    deaths = plan.num_deaths
    deaths_are_too_many = plan.faults and plan.faults[-1].action is not Action.TERM and (deaths or 0) > max_restarts
    if deaths_are_too_many:
        text += f". The job will not recover: {deaths} failures, but --max-restarts {max_restarts}"
    return f"chaos: {text}"


def _fault_text(fault: Fault) -> str:
    rank = "any rank" if fault.rank is None else str(fault.server or f"rank {fault.rank}")
    what = {
        Action.EXCEPTION: f"exception in {rank}",
        Action.DISK_FULL: f"disk full for {rank}",
        Action.SLOW: f"make {rank} {fault.factor:g} times as slow",
        Action.CORRUPT_SNAPSHOT: f"flip a bit of the newest snapshot and kill {rank}",
    }.get(fault.action, f"{fault.action} {rank}")
    since = "" if fault.step is None else f" from step {fault.step} on"
    where = {
        Phase.STEP: f"at step {fault.step}",
        Phase.START: "before the first step",
        Phase.RESTART: "at the restart",
        Phase.VALIDATION: f"during a validation{since}",
        Phase.SNAPSHOT: f"while a snapshot is written{since}",
        Phase.END: f"at the last step{since}",
    }[fault.phase]
    return f"{what} {where} of generation {fault.generation}"
