"""What a node shows of its own ranks, over several generations."""

import asyncio
from pathlib import Path

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.launcher.output.screen import STATE_INTERVAL_SECONDS, Screen
from paceline.launcher.output.text_stream import TextOutput
from paceline.launcher.output.worker_logs import WorkerLogs
from paceline.launcher.output.worker_output import OwnOutput
from paceline.rendezvous.agent_messages import Stream


class Page(TextOutput):
    is_live = is_coloured = is_closed = False
    width = 80

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def workers(generation: int, ranks: list[int]) -> list[WorkerIdentity]:
    return [
        WorkerIdentity(
            task=Task(WORKER, rank),
            rank=rank,
            world_size=4,
            local_rank=0,
            local_world_size=2,
            generation=generation,
            job_id="ab12",
            seed=0,
        )
        for rank in ranks
    ]


def test_two_generations_on_one_screen_and_in_files_of_their_own(tmp_path: Path):
    out, err = Page(), Page()

    async def show() -> None:
        with WorkerLogs(tmp_path) as logs:
            shown = OwnOutput(asyncio.get_running_loop(), Screen(out, err), logs)
            shown.begin(workers(1, [2, 3]), "b")
            shown.feed(2, Stream.OUT, b"one\ntw", 0.0)
            shown.feed(3, Stream.ERR, b"bad\n", 0.0)
            assert shown.last_words(3) == ("bad",)
            shown.end(1.0)
            shown.say(["paceline: generation 2 begins"])
            shown.begin(workers(2, [2]), "b")
            shown.feed(2, Stream.OUT, b"o\n", 2.0)
            assert shown.last_words(2) == ()
            shown.end(3.0)

    asyncio.run(show())
    assert out.text == "[b 2] one\n[b 2] tw\n[b 2] o\n"
    assert err.text == "[b 3] bad\npaceline: generation 2 begins\n"
    first, second = (tmp_path / "ab12" / f"generation-{number}" for number in (1, 2))
    assert (first / "job_2.log").read_text() == "one\ntw\npaceline: generation 2 begins\n"
    assert (first / "job_3.log").read_text() == "bad\npaceline: generation 2 begins\n"
    assert [file.name for file in second.iterdir()] == ["job_2.log"]
    assert (tmp_path / "latest" / "job_2.log").read_text() == "o\n"


def test_the_chiefs_unfinished_line_is_shown_in_time():
    out = Page()

    async def show() -> None:
        with WorkerLogs(None) as logs:
            shown = OwnOutput(asyncio.get_running_loop(), Screen(out, Page()), logs)
            shown.begin(workers(1, [0]), "a")
            shown.feed(0, Stream.OUT, b"10%", asyncio.get_running_loop().time() - STATE_INTERVAL_SECONDS)  # due now
            await asyncio.sleep(0.01)
            shown.feed(0, Stream.OUT, b"\r20%\n", 0.0)
            shown.end(1.0)

    asyncio.run(show())
    assert out.text == "[a 0] 10%\n[a 0] 20%\n"
