"""Real databases for the store: a directory of its own for each test, and one ``chroma run`` for all."""

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import chromadb
import pytest
from chroma_fakes import FakeEncoder

from chroma_lmk import LandmarkStore

_names = itertools.count()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a ``chroma run`` that lives as long as the session."""
    port = free_port()
    program = Path(sys.executable).parent / "chroma"
    path = tmp_path_factory.mktemp("server")
    command = [str(program), "run", "--path", str(path), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + 60
        while True:
            try:
                chromadb.HttpClient(host="127.0.0.1", port=port).heartbeat()
                break
            except Exception:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield port
        server.terminate()
        server.wait()


@pytest.fixture
def collection() -> str:
    """A name no other test uses: the server and in-memory clients are shared."""
    return f"test-{os.getpid()}-{next(_names)}"


@pytest.fixture
def encoder() -> FakeEncoder:
    return FakeEncoder()


@pytest.fixture(params=["embedded", "server"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], object]:
    """Returns what a store is opened with, for an embedded database and for a server."""
    if request.param == "embedded":
        return lambda: tmp_path / "db"
    port = request.getfixturevalue("chroma_server")
    return lambda: chromadb.HttpClient(host="127.0.0.1", port=port)


@pytest.fixture
def store(connect: Callable[[], object], collection: str, encoder: FakeEncoder) -> Iterator[LandmarkStore]:
    with LandmarkStore(connect(), collection, encoder) as opened:
        yield opened


@pytest.fixture
def local_store(tmp_path: Path, collection: str, encoder: FakeEncoder) -> Iterator[LandmarkStore]:
    with LandmarkStore(tmp_path / "db", collection, encoder) as opened:
        yield opened


@pytest.fixture(scope="module", params=["embedded", "server"])
def shared_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LandmarkStore]:
    """One store for all examples of a property."""
    if request.param == "embedded":
        client: object = tmp_path_factory.mktemp("shared") / "db"
    else:
        client = chromadb.HttpClient(host="127.0.0.1", port=request.getfixturevalue("chroma_server"))
    with LandmarkStore(client, f"shared-{os.getpid()}-{next(_names)}", FakeEncoder()) as opened:
        yield opened
