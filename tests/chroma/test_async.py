"""The store in asyncio: the loop keeps running, writes take turns, a cancelled call leaves nothing half-done."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import chromadb
import pytest
from chroma_fakes import FakeEncoder, sample_text

from chroma_lmk import LandmarkStore, StoreError
from heartbeat import Heartbeat
from lmk_embed.results import Document, DocumentEmbedding


class SlowEncoder(FakeEncoder):
    """Takes its time for each document, as a model does, and says so."""

    started = threading.Event()
    seconds = 0.05

    def encode_document(self, text: str) -> DocumentEmbedding:
        self.started.set()
        time.sleep(self.seconds)
        return super().encode_document(text)


def library(count: int) -> list[Document]:
    return [Document(f"d{n}", sample_text(n, 30), {"n": n}) for n in range(count)]


@pytest.fixture
def slow_store(tmp_path: Path) -> Iterator[LandmarkStore]:
    SlowEncoder.started.clear()
    with LandmarkStore(tmp_path / "db", "lmk", SlowEncoder()) as opened:
        yield opened


async def test_each_method_does_what_the_one_without_the_a_does(
    store: LandmarkStore, connect: Callable[[], object], collection: str, tmp_path: Path
) -> None:
    documents = library(6)
    async with store:
        assert await store.asearch("w5") == []
        report = await store.aadd(iter(documents))
        assert report.added == 6
        assert (await store.aadd(documents, skip_unchanged=True)).unchanged == 6
        assert await store.aget(["d3", "d1"]) == [documents[3], documents[1]]
        assert await store.acount() == store.count()
        assert await store.acount("document") == 6
        for settings in ({"per": "document"}, {"where": {"n": 3}}, {"max_tokens": 16}, {"min_score": 0.2}):
            assert await store.asearch("w5 w6", 3, **settings) == store.search("w5 w6", 3, **settings)
        assert await store.adelete(["d0", "unknown"]) == 4
        await store.aexport(tmp_path / "index.parquet")
        assert (await store.aimport(tmp_path / "index.parquet")).unchanged == 5
    with pytest.raises(StoreError, match="closed"):
        await store.asearch("w5")
    async with await LandmarkStore.aopen(connect(), collection, load_encoder=FakeEncoder.from_dict) as again:
        assert await again.acount("document") == 5


async def test_errors_come_through(store: LandmarkStore) -> None:
    with pytest.raises(TypeError, match="iterable of document ids"):
        await store.adelete("d1")
    with pytest.raises(ValueError, match="blank"):
        await store.asearch(" ")


async def test_the_loop_keeps_running(slow_store: LandmarkStore) -> None:
    searches = 0
    async with Heartbeat() as pulse:
        adding = asyncio.create_task(slow_store.aadd(library(30)))
        while not adding.done():
            await slow_store.asearch("w5")
            searches += 1
    assert adding.result().added == 30
    assert searches > 3
    assert pulse.beats > 2 * 30, "a blocked loop gets a turn once a document"


async def test_many_writes_at_once_take_turns_and_leave_the_readers_their_threads(
    store: LandmarkStore,
) -> None:
    documents = library(60)
    writes = [store.aadd([each]) for each in documents]
    reads = [store.asearch("w5", 3) for _ in range(60)]
    reports = await asyncio.gather(*writes, *reads)
    assert sum(report.added for report in reports[:60]) == 60
    assert await store.aget([each.id for each in documents]) == documents
    assert store.verify().ok
    assert sum(thread.name.startswith("lmk-writer") for thread in threading.enumerate()) == 1


async def test_a_cancelled_add_stops_soon_and_keeps_what_was_embedded(slow_store: LandmarkStore) -> None:
    documents = library(200)
    adding = asyncio.create_task(slow_store.aadd(documents))
    await asyncio.to_thread(slow_store.encoder.started.wait, 10)
    await asyncio.sleep(0.2)
    before = time.perf_counter()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert time.perf_counter() - before < 0.2, "nobody waits for the thread"
    assert await slow_store.adelete(["d0"]) == 4, "the next write waits until it has stopped"
    embedded = len(slow_store.encoder.embedded)
    assert 1 <= embedded < 100
    assert await slow_store.acount("document") == embedded - 1
    assert (await slow_store.aget(["d1"])) == [documents[1]]
    assert slow_store.verify().ok


async def test_a_write_that_is_cancelled_before_it_began_never_runs(slow_store: LandmarkStore) -> None:
    first = asyncio.create_task(slow_store.aadd(library(5)))
    second = asyncio.create_task(slow_store.aadd([Document("never", "text")]))
    await asyncio.to_thread(slow_store.encoder.started.wait, 10)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first).added == 5
    assert await slow_store.aget(["never"]) == []


async def test_a_time_limit_leaves_whole_documents(slow_store: LandmarkStore, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await slow_store.aadd(library(100))
    await slow_store.aclose()
    with LandmarkStore(tmp_path / "db", "lmk", SlowEncoder()) as again:
        assert 0 < again.count("document") < 60
        assert again.verify().ok


async def test_an_asynchronous_client_is_refused_with_the_remedy(chroma_server: int, collection: str) -> None:
    waiting = chromadb.AsyncHttpClient(host="127.0.0.1", port=chroma_server)
    with pytest.raises(TypeError, match=r"pass chromadb.HttpClient\(…\)"):
        LandmarkStore(waiting, collection, FakeEncoder())
    client = await chromadb.AsyncHttpClient(host="127.0.0.1", port=chroma_server)
    with pytest.raises(TypeError, match=r"asearch.*do not block the event loop"):
        await LandmarkStore.aopen(client, collection)
    remedy = chromadb.HttpClient(host="127.0.0.1", port=chroma_server)
    async with LandmarkStore(remedy, collection, FakeEncoder()) as store:
        assert (await store.aadd(library(3))).added == 3
        assert len(await store.asearch("w1", k=3, per="document")) == 3
