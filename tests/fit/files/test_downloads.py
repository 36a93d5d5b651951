"""Ranks of a host that download together: one does it, all find the whole file. Ranks are threads of this process."""

import http.server
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.fit.compat import file_utils
from paceline.fit.files import once as downloads
from paceline.fit.files.claims import Claims

CONTENT = bytes(range(256)) * 64
OTHERS_TIME_SECONDS = 0.3
"""What the origin gives the other ranks, in the middle of the file, to do something wrong."""


class Origin:
    """A server on this host: half of the file, then time for the others, then the rest."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.fails = False
        self.requests = 0
        self.halfway: Callable[[], Any] = lambda: None
        origin = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                origin.requests += 1
                if origin.fails:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(origin.content)))
                self.end_headers()
                half = len(origin.content) // 2
                self.wfile.write(origin.content[:half])
                origin.halfway()
                self.wfile.write(origin.content[half:])

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/digits.npz"


@pytest.fixture
def origin() -> Iterator[Origin]:
    origin = Origin()
    thread = threading.Thread(target=origin.server.serve_forever, args=(0.01,))
    thread.start()
    yield origin
    origin.server.shutdown()
    origin.server.server_close()
    thread.join(60)


@pytest.fixture
def get_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Keras's `get_file` as a rank calls it: each thread is a rank of one host."""
    rank = threading.local()

    def claims() -> Claims:
        if not hasattr(rank, "claims"):
            rank.claims = Claims(tmp_path / "job")
        return rank.claims

    monkeypatch.setattr(downloads, "current_world", lambda: SimpleNamespace(size=2))
    monkeypatch.setattr(downloads, "shared_claims", claims)
    keras_get = getattr(file_utils.get_file, "__wrapped__", file_utils.get_file)
    retrieve = getattr(file_utils.urlretrieve, "__wrapped__", file_utils.urlretrieve)
    monkeypatch.setattr(file_utils, "urlretrieve", downloads.retrieved_whole(retrieve))
    wrapped = downloads.downloaded_once(keras_get)
    return lambda *args, **kwargs: Path(wrapped(*args, cache_dir=str(tmp_path), **kwargs))


def _on_ranks(number: int, act: Callable[[], Any]) -> list[Any]:
    together = threading.Barrier(number)  # so that no thread is two ranks

    def rank() -> Any:
        together.wait(60)
        return act()

    with ThreadPoolExecutor(number) as ranks:
        return [done.result(60) for done in [ranks.submit(rank) for _ in range(number)]]


@pytest.mark.parametrize("force_download", [False, True])
def test_ranks_that_come_together_download_once_and_find_the_whole_file(
    origin: Origin, get_file: Callable[..., Path], tmp_path: Path, force_download: bool
) -> None:
    other_is_done, seen_halfway = threading.Event(), []

    def halfway() -> None:
        other_is_done.wait(OTHERS_TIME_SECONDS)
        seen_halfway.append((tmp_path / "datasets" / "digits.npz").exists())

    def rank() -> bytes:
        read = get_file("digits.npz", origin=origin.url, force_download=force_download).read_bytes()
        other_is_done.set()
        return read

    origin.halfway = halfway
    assert _on_ranks(2, rank) == [CONTENT] * 2
    assert origin.requests == 1
    assert seen_halfway == [False], "a part of the file is there under its name"
    assert _on_ranks(2, rank) == [CONTENT] * 2  # a later call: threads of another pool are other ranks
    assert origin.requests == 1


def test_an_archive_is_extracted_once(origin: Origin, get_file: Callable[..., Path]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("one.txt", "1")
        archive.writestr("two.txt", "2")
    origin.content = packed.getvalue()

    def rank() -> Path:
        return get_file("digits.zip", origin=origin.url, extract=True)

    [folder] = _on_ranks(1, rank)
    assert (folder / "one.txt").read_text() == "1"
    (folder / "one.txt").unlink()  # who extracts again puts it back
    assert _on_ranks(2, lambda: [rank(), rank()]) == [[folder] * 2] * 2
    assert not (folder / "one.txt").exists()
    assert (folder / "two.txt").exists()


def test_a_rank_that_fails_leaves_the_download_to_the_next(origin: Origin, get_file: Callable[..., Path]) -> None:
    origin.fails = True
    for _ in range(2):
        with pytest.raises(Exception, match="404"):
            _on_ranks(1, lambda: get_file("digits.npz", origin=origin.url))
    origin.fails = False
    [path] = _on_ranks(1, lambda: get_file("digits.npz", origin=origin.url))
    assert path.read_bytes() == CONTENT
    path.unlink()
    [path] = _on_ranks(1, lambda: get_file("digits.npz", origin=origin.url))
    assert path.read_bytes() == CONTENT, "what has been removed meanwhile is downloaded again"
    assert origin.requests == 4


def test_one_call_of_each_rank_is_one_download_with_force(origin: Origin, get_file: Callable[..., Path]) -> None:
    def rank() -> None:
        for _ in range(2):
            get_file("digits.npz", origin=origin.url, force_download=True)

    _on_ranks(1, rank)
    _on_ranks(1, rank)
    assert origin.requests == 2


def test_alone_keras_does_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "current_world", lambda: SimpleNamespace(size=1))
    assert downloads.downloaded_once(lambda *args, **kwargs: (args, kwargs))(1, two=2) == ((1,), {"two": 2})
