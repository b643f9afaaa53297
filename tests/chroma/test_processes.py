"""Case 26: several processes on one path, and on one server; several threads on one store."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import chromadb
import pytest
from chroma_fakes import FakeEncoder
from process_child import found, text

from chroma_lmk import LandmarkStore, StoreLockedError, drop_store
from lmk_embed.results import Document


class Process:
    """Another process with a store of its own."""

    def __init__(self, target: object, collection: str) -> None:
        script = Path(__file__).with_name("process_child.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(target), collection],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = False

    def start(self, *command: object) -> None:
        """Send a command without waiting for its answer."""
        if not self.ready:
            assert self.answer() == "ready"
            self.ready = True
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> object:
        return json.loads(self.process.stdout.readline())

    def __call__(self, *command: object) -> object:
        self.start(*command)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def spawn() -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def start(target: object, collection: str) -> Process:
        processes.append(Process(target, collection))
        return processes[-1]

    yield start
    for each in processes:
        each.kill()
        each.process.stdin.close()
        each.process.stdout.close()


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_case_26_a_second_writer_is_refused_at_once(
    tmp_path: Path, collection: str, encoder: FakeEncoder, spawn: Callable
) -> None:
    path = tmp_path / "db"
    with LandmarkStore(path, collection, encoder) as store:
        store.add([Document("mine", text("mine"))])
        other = spawn(path, collection)
        began = time.monotonic()
        refused = other("add", "p", 0, 1)
        assert refused["error"] == "StoreLockedError"
        for part in (f"process {os.getpid()}", "chroma run", "HttpClient", str(path)):
            assert part in refused["message"]
        assert other("delete", "mine")["error"] == "StoreLockedError"
        assert time.monotonic() - began < 10
        assert other("find", "mine") == ["mine"], "reading needs no lock"
    assert other("add", "p", 0, 3) == 3
    with LandmarkStore(path, collection, encoder) as store:
        with pytest.raises(StoreLockedError, match=f"process {other.process.pid}"):
            store.add([Document("x", "text")])
        with pytest.raises(StoreLockedError):
            drop_store(path, collection)
        other.kill()
        assert store.add([Document("x", "text")]).added == 1, "the lock of a killed process is gone"
        assert store.count("document") == 5


def test_case_26_a_reader_sees_what_another_process_writes(
    tmp_path: Path, collection: str, encoder: FakeEncoder, spawn: Callable
) -> None:
    path = tmp_path / "db"
    with LandmarkStore(path, collection, encoder) as store:
        assert store.search("anything") == []
        writer = spawn(path, collection)
        for round_ in range(4):
            assert writer("add", f"r{round_}_", 0, 5) == 5
            assert store.count("document") == 5 * (round_ + 1)
            for name in names(f"r{round_}_", 5):
                assert found(store, name, text(name))
                assert store.search(text(name), where={"lmk:doc": name}, per="document")[0].doc_id == name
        assert writer("replace", "r0_1") == 1
        assert found(store, "r0_1", text("newr0_1"))
        assert [document.text for document in store.get(["r0_1"])] == [text("newr0_1")]
        assert writer("delete", "r0_0") == 5
        assert not found(store, "r0_0", text("r0_0"))
        writer("reopen")
        # The roles change: what this process loaded before must not be saved over what the other wrote.
        assert store.add([Document("mine", text("mine"))]).added == 1
        assert found(store, "r3_4", text("r3_4"))
        assert found(store, "mine", text("mine"))


def test_case_26_writers_that_take_turns_lose_nothing(
    tmp_path: Path, collection: str, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch, spawn: Callable
) -> None:
    """Each process saves an index it loaded long ago, unless it notices the other's writes."""
    monkeypatch.setattr("chroma_lmk.settings._SYNC_THRESHOLD", 30)
    path = tmp_path / "db"
    other = spawn(path, collection)
    client = chromadb.PersistentClient(str(path))
    for turn in range(4):
        with LandmarkStore(client, collection, encoder) as store:
            store.add(Document(name, text(name)) for name in names(f"a{turn}_", 4))
        assert other("add", f"b{turn}_", 0, 4) == 4
        other("reopen")
    everything = [name for turn in range(4) for kind in "ab" for name in names(f"{kind}{turn}_", 4)]
    fresh = spawn(path, collection)
    for each in (other, fresh):
        assert each("find", *everything) == everything
        assert each("count") == 32 * 5
    with LandmarkStore(client, collection, encoder) as store:
        assert [name for name in everything if found(store, name, text(name))] == everything


def test_readers_during_writes_lose_nothing(
    tmp_path: Path, collection: str, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch, spawn: Callable
) -> None:
    """Two processes read all the time while one writes and saves its index over and over."""
    monkeypatch.setattr("chroma_lmk.settings._SYNC_THRESHOLD", 40)
    path = tmp_path / "db"
    with LandmarkStore(path, collection, encoder) as store:
        store.add([Document("first", text("first"))])
        readers = [spawn(path, collection) for _ in range(2)]
        for each in readers:
            assert each("find", "first") == ["first"]
        for number in range(15):
            for each in readers:
                each.start("find", "first", f"d{number - 1}") if number else each.start("find", "first")
            store.add([Document(f"d{number}", text(f"d{number}"))])
            for each in readers:
                answer = each.answer()
                assert answer == (["first", f"d{number - 1}"] if number else ["first"])
        everything = names("d", 15)
        for each in readers:
            assert each("find", *everything) == everything
    fresh = spawn(path, collection)
    assert fresh("find", *everything) == everything
    assert fresh("count") == 16 * 5


def test_case_26_several_processes_write_through_a_server(
    chroma_server: int, collection: str, encoder: FakeEncoder, spawn: Callable
) -> None:
    processes = [spawn(chroma_server, collection) for _ in range(4)]
    for number, each in enumerate(processes):
        each.start("one-by-one", f"p{number}_", 0, 8)
    assert [each.answer() for each in processes] == [8, 8, 8, 8]
    everything = [name for number in range(4) for name in names(f"p{number}_", 8)]
    for each in processes:
        assert each("find", *everything) == everything
    assert processes[0]("count") == 32 * 5
    with LandmarkStore(chromadb.HttpClient(host="127.0.0.1", port=chroma_server), collection, encoder) as store:
        assert store.verify().ok


@pytest.mark.parametrize("readers", [8])
def test_threads_read_while_one_writes(store: LandmarkStore, readers: int) -> None:
    store.add(Document(name, text(name)) for name in names("fixed", 10))
    stop = threading.Event()
    errors: list[BaseException] = []
    searches = [0] * readers

    def read(number: int) -> None:
        try:
            while not stop.is_set():
                name = f"fixed{searches[number] % 10}"
                assert found(store, name, text(name)), name
                assert store.get([name]) == [Document(name, text(name))]
                hits = store.search("changing0x1", k=5, per="passage", where={"lmk:doc": "changing"})
                for hit in hits:
                    assert any(hit.text in text(f"changing{n}", 30 + n) for n in range(30)), hit
                searches[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    for each in threads:
        each.start()
    for number in range(30):
        store.add(
            [
                Document("changing", text(f"changing{number}", 30 + number)),
                Document(f"n{number}", text(f"n{number}")),
            ]
        )
        if number % 3 == 0:
            store.delete([f"n{number}"])
    stop.set()
    for each in threads:
        each.join()
    assert not errors, errors[0]
    assert min(searches) > 0
    kept = [f"n{number}" for number in range(30) if number % 3]
    assert [name for name in kept if found(store, name, text(name))] == kept
    assert store.verify().ok


def test_two_stores_of_one_process_share_the_lock(tmp_path: Path, encoder: FakeEncoder) -> None:
    path = tmp_path / "db"
    with LandmarkStore(path, "one", encoder) as one, LandmarkStore(path, "two", encoder) as two:
        one.add([Document("a", text("a"))])
        two.add([Document("b", text("b"))])
        one.close()
        two.add([Document("c", text("c"))])
        assert found(two, "b", text("b"))
        with LandmarkStore(path, "one", encoder) as again:
            assert found(again, "a", text("a"))


def test_another_spelling_of_the_path_is_another_writer(tmp_path: Path, encoder: FakeEncoder) -> None:
    """Chroma keeps one index in memory for each spelling, so they are as far apart as two processes."""
    path = tmp_path / "db"
    with LandmarkStore(path, "lmk", encoder) as one, LandmarkStore(f"{path}/../db", "lmk", encoder) as two:
        one.add([Document("a", text("a"))])
        with pytest.raises(StoreLockedError):
            two.add([Document("b", text("b"))])
        assert found(two, "a", text("a"))
        one.add([Document("c", text("c"))])
        assert found(two, "c", text("c"))
