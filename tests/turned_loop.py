"""An event loop that the test turns, with a clock that stands still until the test moves it."""

import asyncio


class TurnedLoop(asyncio.SelectorEventLoop):
    """Runs what is ready, round by round."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def turn(self, times: int = 1) -> None:
        """Lets the loop handle what has arrived and what is due."""
        for _ in range(times):
            self.call_soon(self.stop)
            self.run_forever()
