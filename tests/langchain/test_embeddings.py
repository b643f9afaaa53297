"""LMKEmbeddings: LangChain's own suites, and what they do not look at."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.utils.embedding_functions.chroma_langchain_embedding_function import create_langchain_embedding
from fakes import CountingBackend, fake_encoder
from langchain_chroma import Chroma
from langchain_classic.embeddings import CacheBackedEmbeddings
from langchain_core.documents import Document
from langchain_core.stores import InMemoryByteStore
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from heartbeat import Heartbeat
from langchain_lmk import LMKEmbeddings
from lmk_embed import ConfigError, LandmarkConfig, LandmarkEncoder

with warnings.catch_warnings():  # nobody maintains it any more, and there is no other FAISS store for LangChain
    warnings.simplefilter("ignore", DeprecationWarning)
    from langchain_community.vectorstores import FAISS

SENTENCES = [
    "Rent is due on the third working day of each month.",
    "Dogs and cats are allowed in every flat.",
    "The heating is serviced in September.",
]


class TestUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[LMKEmbeddings]:
        return LMKEmbeddings


class TestIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[LMKEmbeddings]:
        return LMKEmbeddings


@pytest.fixture
def asymmetric(tiny_model: Path, tmp_path: Path) -> LMKEmbeddings:
    """A checkpoint that saved a prompt for each role."""
    saved = LandmarkEncoder.from_pretrained(tiny_model, query_prompt="query: ", document_prompt="passage: ")
    saved.save_pretrained(tmp_path / "asymmetric")
    return LMKEmbeddings(model=tmp_path / "asymmetric")


def counting() -> tuple[LMKEmbeddings, CountingBackend]:
    encoder, backend = fake_encoder(batch_tokens=64)
    return LMKEmbeddings.from_encoder(encoder), backend


class SlowBackend(CountingBackend):
    """A forward pass that takes as long as a real one, and says so if two overlap."""

    running = 0
    overlapped = False

    def encode(self, rows: Any) -> Any:
        self.running += 1
        self.overlapped |= self.running > 1
        time.sleep(0.04)
        self.running -= 1
        return super().encode(rows)


def slow() -> tuple[LMKEmbeddings, SlowBackend]:
    encoder, _ = fake_encoder(batch_tokens=64)
    encoder._backend = backend = SlowBackend()
    return LMKEmbeddings.from_encoder(encoder), backend


# What comes out


def test_vectors_are_python_floats_of_unit_length(embeddings: LMKEmbeddings) -> None:
    vectors = [*embeddings.embed_documents(SENTENCES), embeddings.embed_query("rent")]
    assert all(type(value) is float for vector in vectors for value in vector)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_vectors_are_those_of_the_encoder_in_input_order(embeddings: LMKEmbeddings) -> None:
    expected = [doc.vector.tolist() for doc in embeddings.encoder.encode_documents(SENTENCES)]
    assert embeddings.embed_documents(SENTENCES) == expected
    assert embeddings.embed_query("rent") == embeddings.encoder.encode_query("rent").tolist()


async def test_async_gives_the_same(embeddings: LMKEmbeddings) -> None:
    assert await embeddings.aembed_documents(SENTENCES) == embeddings.embed_documents(SENTENCES)
    assert await embeddings.aembed_query("rent") == embeddings.embed_query("rent")


async def test_nothing_to_embed_runs_nothing() -> None:
    embeddings, backend = counting()
    assert embeddings.embed_documents([]) == []
    assert await embeddings.aembed_documents([]) == []
    assert backend.batches == []


def test_blank_texts_have_a_finite_vector(embeddings: LMKEmbeddings) -> None:
    assert np.isfinite(embeddings.embed_documents(["", " \n"])).all()


@pytest.mark.parametrize(
    ("texts", "message"), [("one string", "several texts"), (["ok", None], "text 1 must be a string")]
)
def test_what_is_not_a_list_of_strings_is_refused(embeddings: LMKEmbeddings, texts: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        embeddings.embed_documents(texts)


def test_line_breaks_reach_the_splitter(tiny_model: Path) -> None:
    """Peers replace them by blanks; here they are where Markdown is cut."""
    embeddings = LMKEmbeddings(model=tiny_model, boundaries="markdown", granularity=6)
    with_breaks, without = "# Rent\n\nDue monthly.\n\n# Pets\n\nAllowed.", "# Rent  Due monthly.  # Pets  Allowed."
    assert embeddings.encoder.spans(with_breaks) != embeddings.encoder.spans(without)
    assert embeddings.embed_documents([with_breaks]) != embeddings.embed_documents([without])


def test_a_long_document_is_read_to_its_end(embeddings: LMKEmbeddings) -> None:
    start = "alpha " * 1_000
    first, second = embeddings.embed_documents([start, start + "totally different ending"])
    assert first != second


# Roles


def test_saved_prompts_are_applied_per_role(asymmetric: LMKEmbeddings) -> None:
    assert asymmetric.encoder.config.query_prompt == "query: "
    assert asymmetric.embed_query("Paris") != asymmetric.embed_documents(["Paris"])[0]


def test_a_cache_keeps_roles_and_models_apart(asymmetric: LMKEmbeddings, tiny_model: Path) -> None:
    documents, queries = InMemoryByteStore(), InMemoryByteStore()
    for embeddings in (asymmetric, LMKEmbeddings(model=tiny_model, granularity=3)):
        cached = CacheBackedEmbeddings.from_bytes_store(
            embeddings,
            documents,
            namespace=embeddings.fingerprint,
            query_embedding_cache=queries,
            key_encoder="sha256",
        )
        for _ in range(2):
            assert cached.embed_query("Paris") == embeddings.embed_query("Paris")
            assert cached.embed_documents(["Paris"]) == embeddings.embed_documents(["Paris"])


def test_an_empty_prompt_switches_a_saved_one_off(asymmetric: LMKEmbeddings) -> None:
    plain = asymmetric.model_copy(update={"query_prompt": "", "document_prompt": ""})
    assert plain.encoder.config.query_prompt == ""
    assert plain.embed_query("Paris") != asymmetric.embed_query("Paris")


# Settings


def test_every_setting_of_the_encoder_is_a_field() -> None:
    assert {field.name for field in fields(LandmarkConfig)} <= set(LMKEmbeddings.model_fields)


def test_fields_reach_the_encoder(tiny_model: Path) -> None:
    config = LMKEmbeddings(model=tiny_model, granularity=7, boundaries="fixed", truncate_dim=8).encoder.config
    assert (config.granularity, config.boundaries, config.truncate_dim) == (7, "fixed", 8)


def test_the_name_of_peers_for_the_model_is_understood(tiny_model: Path) -> None:
    assert LMKEmbeddings.model_validate({"model_name": str(tiny_model)}).model == str(tiny_model)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown setting 'granularty'; did you mean 'granularity'"):
        LMKEmbeddings(granularty=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "settings", [{"granularity": 0}, {"batch_tokens": 0}, {"pooling": "mean", "context": "blend"}]
)
def test_impossible_values_are_refused_before_anything_is_loaded(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"granularity|batch_tokens|blend"):
        LMKEmbeddings(model="does/not-exist", **settings)


def test_settings_round_trip_through_json(embeddings: LMKEmbeddings) -> None:
    again = LMKEmbeddings.model_validate_json(embeddings.model_dump_json())
    assert again.fingerprint == embeddings.fingerprint


def test_settings_cannot_change_behind_the_encoder(embeddings: LMKEmbeddings) -> None:
    with pytest.raises(ValueError, match="frozen"):
        embeddings.granularity = 3  # type: ignore[misc]
    changed = embeddings.model_copy(update={"granularity": 3})
    assert changed.encoder.config.granularity == 3
    assert embeddings.encoder.config.granularity == 16


# Sharing and shipping


def test_equal_settings_share_an_encoder_and_others_do_not(tiny_model: Path) -> None:
    first, second = LMKEmbeddings(model=tiny_model), LMKEmbeddings(model=str(tiny_model))
    assert first.encoder is second.encoder
    assert LMKEmbeddings(model=tiny_model, granularity=3).encoder is not first.encoder


def test_a_model_that_was_trained_further_is_loaded_again(tiny_model: Path, tmp_path: Path) -> None:
    LandmarkEncoder.from_pretrained(tiny_model).save_pretrained(tmp_path / "model")
    before = LMKEmbeddings(model=tmp_path / "model").encoder
    LandmarkEncoder.from_pretrained(tiny_model, granularity=9).save_pretrained(tmp_path / "model")
    after = LMKEmbeddings(model=tmp_path / "model").encoder
    assert before is not after
    assert after.config.granularity == 9


def test_an_existing_encoder_is_used_as_it_is(tiny_model: Path) -> None:
    encoder = LandmarkEncoder.from_pretrained(tiny_model, granularity=9)
    embeddings = LMKEmbeddings.from_encoder(encoder)
    assert embeddings.encoder is encoder
    assert (embeddings.model, embeddings.granularity) == (str(tiny_model), 9)


@pytest.mark.parametrize("made", ["from settings", "from an encoder"])
def test_a_pickle_is_small_and_loads_lazily(tiny_model: Path, made: str) -> None:
    if made == "from settings":
        embeddings = LMKEmbeddings(model=tiny_model, granularity=9)
    else:  # granularity None is what the fields alone could not say
        embeddings = LMKEmbeddings.from_encoder(LandmarkEncoder.from_pretrained(tiny_model, granularity=None))
    expected = embeddings.embed_documents(SENTENCES)
    pickled = pickle.dumps(embeddings)
    again = pickle.loads(pickle.dumps(pickle.loads(pickled)))
    assert len(pickled) < 100_000
    assert again._encoder is None
    assert again.embed_documents(SENTENCES) == expected
    assert again.fingerprint == embeddings.fingerprint


def test_an_encoder_without_a_checkpoint_cannot_be_pickled() -> None:
    with pytest.raises(ConfigError, match="save_pretrained"):
        pickle.dumps(counting()[0])


def test_a_given_encoder_does_not_change_its_settings(tiny_model: Path) -> None:
    embeddings = LMKEmbeddings.from_encoder(LandmarkEncoder.from_pretrained(tiny_model))
    with pytest.raises(ConfigError, match="another one"):
        embeddings.model_copy(update={"granularity": 3})


def test_copies_share_the_encoder(embeddings: LMKEmbeddings) -> None:
    for copied in (copy.copy(embeddings), copy.deepcopy(embeddings), embeddings.model_copy()):
        assert copied.encoder is embeddings.encoder


def printed_by(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def test_importing_and_configuring_load_no_torch() -> None:
    # Old versions of langchain_text_splitters load it themselves.
    code = """
import sys, langchain_text_splitters
before = set(sys.modules)
from langchain_lmk import LMKEmbeddings
LMKEmbeddings()
print("torch" in set(sys.modules) - before)
"""
    assert printed_by(code) == "False"


@pytest.mark.parametrize("missing", ["langchain_core", "langchain_text_splitters"])
def test_a_missing_extra_is_named(missing: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
try:
    import langchain_lmk
except ImportError as error:
    print(error)
"""
    assert printed_by(code).endswith('pip install "lmk-embed[langchain]"')


# Threads and event loops


async def test_the_event_loop_stays_alive_and_passes_do_not_overlap() -> None:
    embeddings, backend = slow()
    texts = [f"text {index}" for index in range(200)]
    async with Heartbeat() as pulse:
        await asyncio.gather(
            embeddings.aembed_documents(texts), *(embeddings.aembed_query(text) for text in texts[:5])
        )
    assert len(backend.batches) > 10
    assert pulse.beats > 2 * len(backend.batches)
    assert not backend.overlapped


async def test_cancelling_stops_before_the_next_pass() -> None:
    embeddings, backend = slow()
    task = asyncio.create_task(embeddings.aembed_documents([f"text {index}" for index in range(2_000)]))
    while not backend.batches:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done = len(backend.batches)
    await asyncio.sleep(0.2)
    assert len(backend.batches) <= done + 1


async def test_a_synchronous_call_works_inside_a_running_loop(embeddings: LMKEmbeddings) -> None:
    assert embeddings.embed_query("rent") == await embeddings.aembed_query("rent")


def test_threads_give_the_sequential_result(embeddings: LMKEmbeddings) -> None:
    other = LMKEmbeddings.from_encoder(embeddings.encoder)
    texts = [" ".join(SENTENCES) * (1 + index % 5) for index in range(20)]

    def work(index: int) -> list[list[float]]:
        adapter = (embeddings, other)[index % 2]
        return [adapter.embed_query(texts[index]), *adapter.embed_documents(texts[index : index + 2])]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(20))) == [work(index) for index in range(20)]


# LangChain's stores


@pytest.mark.parametrize("make", [Chroma, InMemoryVectorStore, FAISS])
def test_it_works_in_langchains_stores(make: type[VectorStore], bundled: LMKEmbeddings) -> None:
    documents = [Document(text, metadata={"n": n}) for n, text in enumerate(SENTENCES)]
    store = make.from_documents(documents, bundled)
    found = store.similarity_search("When do I have to pay the rent?", k=2)
    assert (found[0].page_content, found[0].metadata) == (SENTENCES[0], {"n": 0})
    assert store.as_retriever(search_kwargs={"k": 1}).invoke("May I keep a dog?")[0].page_content == SENTENCES[1]


@pytest.mark.filterwarnings("ignore:legacy embedding function config")
def test_chromas_own_bridge_is_no_way_in(embeddings: LMKEmbeddings) -> None:
    """It fails with the embeddings of anybody, as the docstring tells; once it does not, the docstring can go."""
    bridge = create_langchain_embedding(embeddings)
    collection = chromadb.EphemeralClient().create_collection("bridge", embedding_function=bridge)
    collection.add(ids=["a"], documents=SENTENCES[:1])
    with pytest.raises(TypeError, match="embed_query"):
        collection.query(query_texts=["rent"])


@pytest.mark.parametrize("make", [Chroma, InMemoryVectorStore, FAISS])
async def test_it_works_in_langchains_stores_asynchronously(
    make: type[VectorStore], embeddings: LMKEmbeddings
) -> None:
    store = (
        await make.afrom_texts(SENTENCES, embeddings, collection_name="async")
        if make is Chroma
        else (await make.afrom_texts(SENTENCES, embeddings))
    )
    assert len(await store.asimilarity_search("rent", k=2)) == 2
