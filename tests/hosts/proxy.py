"""A TCP proxy that delays what it carries, carries nothing for a while, or ends connections.

For what `tc netem` would do, which many kernels lack. TCP hides lost packets from programs: they see a pause, and after
a long one an end, so that is what this makes. Runs in a thread, or on a host of a lab:

    python proxy.py PORT HOST PORT DELAY_SECONDS
"""

import asyncio
import contextlib
import socket
import struct
import sys
import threading

_READ_BYTES = 1 << 16


class Proxy(contextlib.AbstractContextManager["Proxy"]):
    """Listens from entering to leaving.

    Args:
        host: Where it connects to for every connection that it accepts.
        port: There.
        delay_seconds: How long bytes are on the way, each way; their order and rate stay.
        listen_port: Its own; 0 takes a free one.
    """

    def __init__(self, host: str, port: int, delay_seconds: float = 0.0, listen_port: int = 0) -> None:
        self.port = listen_port
        self._to = (host, port)
        self._delay_seconds = delay_seconds
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "0.0.0.0", self.port), self._loop
        ).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def pause(self) -> None:
        """From now on nothing arrives; connections stay."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def resume(self) -> None:
        """What was sent meanwhile arrives."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def cut(self) -> None:
        """Ends all connections with a reset."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._writers:
            _reset(writer)

    async def _close(self) -> None:
        self._server.close()
        self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward_reader, onward = await asyncio.open_connection(*self._to)
        except OSError:
            _reset(writer)
            return
        self._writers |= {writer, onward}
        try:
            await asyncio.gather(self._carry(reader, onward), self._carry(onward_reader, writer))
        except (OSError, asyncio.CancelledError):  # cancelled when the proxy closes
            pass
        finally:
            for one in (writer, onward):
                self._writers.discard(one)
                one.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Two loops, so that the next bytes are read while earlier ones are on the way."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)

        async def deliver() -> None:
            while True:
                arrives_at, data = await on_the_way.get()
                await asyncio.sleep(arrives_at - self._loop.time())
                await self._flows.wait()
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        delivery = asyncio.ensure_future(deliver())
        try:
            while True:
                data = await reader.read(_READ_BYTES)
                await on_the_way.put((self._loop.time() + self._delay_seconds, data))
                if not data:
                    break
            await delivery
        finally:
            delivery.cancel()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection at once; the other end is told of a reset, not of an end."""
    if not writer.is_closing():
        at_once = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    writer.transport.abort()


if __name__ == "__main__":
    with Proxy(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[1])):
        threading.Event().wait()
