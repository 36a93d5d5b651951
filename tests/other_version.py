"""A port behind which another version of Paceline answers."""

import contextlib
import socket
import threading
from collections.abc import Iterator

from paceline.wire.frames import frame
from paceline.wire.handshake import Rejected


@contextlib.contextmanager
def other_version_at(port: int) -> Iterator[None]:
    """Answers at `port` of this host as Paceline 9.9 does, to whoever connects meanwhile."""

    def serve() -> None:
        with contextlib.suppress(OSError):  # the test is over
            while True:
                connected, _ = server.accept()
                with connected:
                    connected.recv(4096)
                    connected.sendall(frame(Rejected("9.9")))

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
