"""``make chaos``: injects every fault into jobs, and writes the score to ``docs/chaos.md``.

python tests/chaos/run_chaos.py                                 all of it
python tests/chaos/run_chaos.py --matrix --only stop            the matrix, the cases whose name holds "stop"
python tests/chaos/run_chaos.py --random 10 --jobs dropout      ten random schedules over one job
python tests/chaos/run_chaos.py --at-once 2                     two cases at a time: sooner, with more noise
"""

import argparse
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Lab, Verdict, environment_text, last_lines
from schedules import ACTIONS, PHASES, matrix, of_replicas, random_schedules

JOBS = ("momentum", "adam_schedule", "dropout", "batch_normalization", "early_stopping", "accumulation", "pipeline")
PAGE = Path(__file__).parents[2] / "docs" / "chaos.md"
BEGIN, END = "<!-- score -->", "<!-- end of score -->"
NUM_RANDOM = 50
DEADLINE_SECONDS = 300.0
HANG_TIMEOUT_SECONDS = 5.0


def main() -> int:
    options = _options()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # begun in the background of a shell script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    jobs = tuple(options.jobs.split(",")) if options.jobs else JOBS
    is_all = not options.matrix and options.random is None
    cases = [*matrix(jobs), *(of_replicas() if "pipeline" in jobs else ())] if options.matrix or is_all else []
    cases += (
        random_schedules(jobs, NUM_RANDOM if options.random is None else options.random) if not options.matrix else []
    )
    cases = [case for case in cases if re.search(options.only, case.name)]
    folder = Path(tempfile.mkdtemp(prefix="paceline-chaos-"))
    lab = Lab(folder, deadline_seconds=options.deadline, hang_timeout_seconds=HANG_TIMEOUT_SECONDS * options.at_once)
    began = time.monotonic()
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(options.at_once) as pool:
        running = [pool.submit(lab.run, case) for case in cases]
        try:
            for number, future in enumerate(as_completed(running), 1):
                verdict = future.result()
                verdicts.append(verdict)
                print(f"[{number}/{len(cases)}] {_line(verdict)}", flush=True)
                if not verdict.has_passed:
                    print(f"{last_lines(verdict)}\n", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            lab.stop()
            print("stopped; the score of what was run:", flush=True)
    score = score_text(verdicts, time.monotonic() - began, lab.hang_timeout_seconds)
    print(score)
    if all(verdict.has_passed for verdict in verdicts):
        shutil.rmtree(folder, ignore_errors=True)
    if is_all and not options.only and not options.jobs and len(verdicts) == len(cases):
        write_page(score)
    return 0 if verdicts and all(verdict.has_passed for verdict in verdicts) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrix", action="store_true", help="only the matrix")
    parser.add_argument("--random", type=int, metavar="N", help="only N random schedules")
    parser.add_argument("--jobs", metavar="A,B", help=f"out of {', '.join(JOBS)}")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name it finds")
    parser.add_argument("--deadline", type=float, default=DEADLINE_SECONDS, metavar="SECONDS", help="of each run")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="how many cases at a time")
    return parser.parse_args()


def _line(verdict: Verdict) -> str:
    case = verdict.case
    faults = " | ".join(life for life in case.lives if life)
    came = "passed" if verdict.has_passed else "FAILED: " + "; ".join(verdict.faults)
    return (
        f"{case.name}, {case.job}, {case.num_workers} workers: {came} "
        f"({verdict.seconds:.0f} s, {verdict.num_steps_again} steps again; {faults})"
    )


def score_text(verdicts: Sequence[Verdict], seconds: float, hang_timeout_seconds: float) -> str:
    """The table of the page."""
    passed, total = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for verdict in verdicts:
        for cell in verdict.case.cells:
            total[cell.action, cell.phase] += 1
            passed[cell.action, cell.phase] += verdict.has_passed
    lines = [f"| runs that passed, by fault and phase | {' | '.join(PHASES)} |", f"|---|{'---|' * len(PHASES)}"]
    for action in ACTIONS:
        shown = [f"{passed[action, phase]} of {total[action, phase]}" for phase in PHASES]
        lines.append(f"| {action} | {' | '.join(shown)} |")
    random_ones = [verdict for verdict in verdicts if not verdict.case.cells]
    jobs = sorted({verdict.case.job for verdict in random_ones})
    lines += ["", "| random schedules | passed | of |", "|---|---|---|"]
    for job in jobs:
        own = [verdict for verdict in random_ones if verdict.case.job == job]
        lines.append(f"| {job} | {sum(verdict.has_passed for verdict in own)} | {len(own)} |")
    pauses = [pause for verdict in verdicts for pause in verdict.seconds_to_next_step]
    pause = f"{statistics.median(pauses):.1f} s" if pauses else "unknown"
    lines += [
        "",
        f"{len(verdicts)} cases, {sum(verdict.has_passed for verdict in verdicts)} passed, {seconds / 60:.0f} minutes.",
        f"{sum(verdict.num_steps_again for verdict in verdicts)} steps were repeated. From the last step before a",
        f"failure to the next step: {pause} (median of {len(pauses)}; with `stop` this includes the hang timeout of "
        f"{hang_timeout_seconds:g} s).",
        f"{environment_text()}.",
    ]
    return "\n".join(lines)


def write_page(score: str) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{score}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
