"""Cases from public complaints about embedding long texts; each test is named after what it protects."""

from __future__ import annotations

import asyncio
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fakes import eos_only_words, fake_encoder, wordpiece
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check

from heartbeat import Heartbeat
from lmk_embed import LandmarkConfig, LandmarkEncoder, SpanError, TokenLimitError

WORDS = " ".join(f"w{i % 100}" for i in range(1000))


def words(n: int) -> str:
    return "alpha " * n


@pytest.fixture(scope="module")
def minilm() -> LandmarkEncoder:
    return LandmarkEncoder.from_pretrained()


class TestTruncationIsVisible:
    """Case 1: two texts that differ behind the limit never get equal vectors without a signal."""

    a = "alpha " * 400
    b = a + " totally different ending"

    def test_windows_read_everything(self, minilm: LandmarkEncoder) -> None:
        first, second = minilm.encode_documents([self.a, self.b])
        assert not first.truncated and not second.truncated
        assert np.abs(first.vector - second.vector).max() > 1e-3
        assert second.end == len(self.b)

    def test_truncation_is_said_once_a_call(self) -> None:
        encoder, _ = fake_encoder(limit=256, overflow="truncate", granularity=32)
        with pytest.warns(UserWarning, match=r"text 0 has 400 tokens, more than fit .* 256: \d+ are read") as seen:
            docs = list(encoder.encode_documents([self.a, self.b, self.b]))
        assert len(seen) == 1
        assert all(doc.truncated for doc in docs)
        assert docs[1].n_tokens < docs[1].total_tokens == 403
        assert docs[1].end < len(self.b)

    def test_error_names_both_numbers(self) -> None:
        encoder, backend = fake_encoder(limit=256, overflow="error", granularity=32)
        with pytest.raises(TokenLimitError, match=r"text 1 has 403 tokens.*256"):
            list(encoder.encode_documents(["short", self.b]))
        assert encoder.encode_document("short").n_tokens == 1
        assert backend.batches, "the short text was still encoded"

    def test_texts_before_a_failing_one_come_out(self) -> None:
        encoder, _ = fake_encoder(limit=256, overflow="error", granularity=32)
        results = encoder.encode_documents(iter(["one", "two", self.b, "three"]))
        assert [next(results).n_tokens, next(results).n_tokens] == [1, 1]
        with pytest.raises(TokenLimitError):
            next(results)


class TestNoTailWithoutLandmark:
    """Case 2: every token the model reads belongs to a chunk that a landmark closes."""

    @pytest.mark.parametrize(
        ("limit", "granularity", "lengths"),
        [(512, 256, [256, 253]), (256, 256, [254]), (512, 32, [32] * 15 + [15])],
    )
    def test_last_landmark_is_the_last_token(self, limit: int, granularity: int, lengths: list[int]) -> None:
        encoder, backend = fake_encoder(limit=limit, overflow="truncate", granularity=granularity)
        with pytest.warns(UserWarning, match="600 tokens"):
            doc = encoder.encode_document(words(600))
        assert [chunk.n_tokens for chunk in doc.chunks] == lengths
        assert doc.n_tokens == sum(lengths) and doc.total_tokens == 600
        (row,) = backend.rows
        assert len(row) == 1 + sum(lengths) + len(lengths) == limit
        sep = wordpiece().sep_token_id
        places = [segment[0] for segment in row.segments]
        assert places == list(np.cumsum(np.array(lengths) + 1))
        assert [int(row.ids[place]) for place in places] == [sep] * len(lengths)
        assert places[-1] == len(row) - 1

    def test_windows_read_the_same_text_to_its_end(self) -> None:
        encoder, backend = fake_encoder(limit=256, granularity=256)
        doc = encoder.encode_document(words(600))
        assert [chunk.n_tokens for chunk in doc.chunks] == [254, 254, 92]
        assert max(map(len, backend.rows)) <= 256
        assert not doc.truncated


class TestSpecialTokenTextIsText:
    """Case 3: "[SEP]" in a source is seven characters, not a separator."""

    @pytest.mark.parametrize("text", ["before [SEP] after", "[SEP][SEP]", "[CLS] x [PAD] y", "[MASK][UNK]"])
    def test_one_landmark_and_no_special_ids(self, text: str) -> None:
        encoder, backend = fake_encoder(granularity=32)
        doc = encoder.encode_document(text)
        check(doc)
        (row,) = backend.rows
        tokenizer = wordpiece()
        inside = row.ids[1:-1].tolist()
        assert len(row.segments) == 1
        assert not set(inside) & set(tokenizer.all_special_ids)
        assert [int(row.ids[0]), int(row.ids[-1])] == [tokenizer.cls_token_id, tokenizer.sep_token_id]
        assert doc.chunks[0].text == text

    def test_known_ids(self) -> None:
        encoder, backend = fake_encoder(granularity=32)
        encoder.encode_document("before [SEP] after")
        assert backend.rows[0].ids[1:-1].tolist() == [2077, 1031, 19802, 1033, 2044]

    def test_separator_text_is_not_an_empty_text(self, minilm: LandmarkEncoder) -> None:
        assert float(minilm.encode_document("[SEP][SEP]").vector @ minilm.encode_document("").vector) < 0.9


class TestPadMayBeTheLandmark:
    """Case 4: with one special token for everything, no landmark is taken for padding."""

    def test_all_landmarks_count(self) -> None:
        encoder, backend = fake_encoder(eos_only_words(), granularity=8)
        short, long = " ".join(["w1"] * 5), " ".join(f"w{i}" for i in range(40))
        docs = list(encoder.encode_documents([short, long]))
        assert [len(doc.chunks) for doc in docs] == [1, 5]
        assert len(backend.batches) == 1
        for doc, text in zip(docs, (short, long), strict=True):
            np.testing.assert_allclose(encoder.encode_document(text).states, doc.states, atol=1e-6)


class TestPaddingSideDoesNotMatter:
    """Case 5: rows are padded by us, on the right, whatever the tokenizer says."""

    @pytest.mark.parametrize("prompt", ["", "find this in the text: "])
    def test_left_equals_right(self, prompt: str) -> None:
        texts = [words(3), words(30)]
        left = wordpiece()
        left.padding_side = "left"
        results = []
        for tokenizer in (wordpiece(), left):
            encoder, _ = fake_encoder(tokenizer, granularity=8, document_prompt=prompt)
            results.append(list(encoder.encode_documents(texts)))
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one.states, other.states)
            assert [(c.start, c.end) for c in one.chunks] == [(c.start, c.end) for c in other.chunks]


class TestOffsetsOfNormalisedText:
    """Case 7: spans index the original string, whatever the tokenizer lower-cases or composes."""

    text = "Café \ufb01ne e\u0301 İstanbul x"

    @pytest.mark.parametrize("granularity", [1, 2, 64])
    def test_original_characters(self, granularity: int) -> None:
        encoder, _ = fake_encoder(granularity=granularity)
        doc = encoder.encode_document(self.text)
        check(doc)
        accent = self.text.index("\u0301")
        assert any(c.start <= accent - 1 and accent < c.end for c in doc.chunks)
        assert doc.chunks[-1].end == len(self.text)


class TestWhiteSpaceIsKept:
    """Case 8: a source is neither stripped nor rewritten."""

    def test_spans_of_a_padded_text(self) -> None:
        encoder, _ = fake_encoder(granularity=32)
        (chunk,) = encoder.encode_document("\n\n  A b  \n").chunks
        assert (chunk.start, chunk.end) == (4, 7)

    @pytest.mark.parametrize("text", ["a\r\nb\rc\td\x00e\u200bf\u3000g", "\ufeffa b"])
    def test_odd_characters(self, text: str) -> None:
        encoder, _ = fake_encoder(granularity=1)
        check(encoder.encode_document(text))


def test_repeated_sentences_get_their_own_offsets() -> None:
    """Case 9: offsets come from the tokenizer, never from searching the text."""
    text = "Chapter 1\nThis is important.\nChapter 2\nThis is important.\n"
    encoder, _ = fake_encoder(boundaries="fixed", granularity=6)
    spans = [(chunk.start, chunk.end) for chunk in encoder.encode_document(text).chunks]
    assert spans == [(0, 28), (29, 57)]
    chunks = encoder.encode_document(text, spans=[(10, 28), (39, 57)]).chunks
    assert [chunk.start for chunk in chunks] == [10, 39]
    assert chunks[0].text == chunks[1].text


class TestPrompts:
    """Case 10: each role has its prompt; prompts never enter spans and never shift the grid."""

    def test_roles_differ(self, minilm: LandmarkEncoder) -> None:
        encoder = LandmarkEncoder.from_pretrained(query_prompt="query: ", document_prompt="passage: ")
        query, document = encoder.encode_query("Paris"), encoder.encode_document("Paris")
        assert np.abs(query - document.vector).max() > 1e-3
        assert (document.chunks[0].start, document.chunks[0].end) == (0, 5)
        np.testing.assert_allclose(minilm.encode_query("Paris"), minilm.encode_document("Paris").vector, atol=1e-6)

    @given(st.text(max_size=300), st.integers(1, 9))
    @settings(max_examples=60, deadline=None)
    def test_the_grid_is_the_same(self, text: str, granularity: int) -> None:
        spans = []
        for prompt in ("", "passage: "):
            encoder, _ = fake_encoder(granularity=granularity, document_prompt=prompt)
            spans.append([(c.start, c.end) for c in encoder.encode_document(text).chunks])
        assert spans[0] == spans[1]

    def test_prompt_counts_against_the_row(self) -> None:
        encoder, backend = fake_encoder(limit=32, granularity=8, document_prompt="one two three four five ")
        encoder.encode_document(words(60))
        assert max(map(len, backend.rows)) <= 32
        assert all(row.ids[:6].tolist() == backend.rows[0].ids[:6].tolist() for row in backend.rows)

    def test_prompt_that_fills_the_row_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"max_seq_length=8 leaves no room.*7 of the prompt"):
            fake_encoder(limit=8, document_prompt="one two three four five six seven")


class TestNothingToEmbed:
    """Case 11."""

    def test_no_texts_no_forward(self) -> None:
        encoder, backend = fake_encoder()
        assert list(encoder.encode_documents([])) == []
        assert encoder.encode_queries([]).shape == (0, 16)
        assert backend.batches == []

    @pytest.mark.parametrize("text", ["", "  \n", "\u200b"])
    def test_blank_has_a_vector_and_no_chunks(self, text: str, minilm: LandmarkEncoder) -> None:
        doc = minilm.encode_document(text)
        check(doc)
        assert doc.chunks == () and doc.vector.shape == (384,)
        assert doc.states.shape == (0, 384) and doc.merge(10).chunks == () and doc.end == 0

    def test_blank_among_others(self) -> None:
        encoder, _ = fake_encoder()
        docs = list(encoder.encode_documents(["ok", "", "fine"]))
        assert [len(doc.chunks) for doc in docs] == [1, 0, 1]

    @pytest.mark.parametrize("texts", [[None], ["ok", None], ["ok", 3]])
    def test_wrong_types_name_the_index(self, texts: list[str]) -> None:
        encoder, backend = fake_encoder()
        for call in (lambda: list(encoder.encode_documents(texts)), lambda: encoder.encode_queries(texts)):
            with pytest.raises(TypeError, match=f"text {len(texts) - 1} must be a string"):
                call()
        assert backend.batches == []
        with pytest.raises(TypeError, match="text 0 must be a string"):
            list(encoder.encode_documents(iter([None])))  # type: ignore[list-item]

    @pytest.mark.parametrize("text", ["ab", b"ab"])
    def test_a_bare_string_is_not_two_documents(self, text: str) -> None:
        encoder, _ = fake_encoder()
        with pytest.raises(TypeError, match="put it into a list"):
            encoder.encode_documents(text)
        with pytest.raises(TypeError, match="put it into a list"):
            encoder.encode_queries(text)
        with pytest.raises(TypeError, match="must be a string"):
            encoder.encode_document(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_tokens", [1, 40, 64, 16_384])
@pytest.mark.parametrize(
    "setup", [{}, {"context": "window"}, {"pooling": "mean"}, {"max_seq_length": 32, "granularity": 16}]
)
def test_alone_equals_batched(batch_tokens: int, setup: dict[str, object]) -> None:
    """Case 12 and I4: neither neighbours nor batch size change a vector, and order is kept."""
    texts = ["hi", "hello world " * 60, "a", "", "The lease ends in May. " * 12, "hello"]
    encoder = LandmarkEncoder.from_pretrained(batch_tokens=batch_tokens, **setup)
    alone = [encoder.encode_document(text) for text in texts]
    together = list(encoder.encode_documents(texts))
    for one, other in zip(alone, together, strict=True):
        check(other)
        assert one.text == other.text
        np.testing.assert_allclose(one.vector, other.vector, atol=1e-5)
        np.testing.assert_allclose(one.states, other.states, atol=1e-5)
    np.testing.assert_allclose(
        encoder.encode_queries(texts), np.stack([encoder.encode_query(text) for text in texts]), atol=1e-5
    )


class TestBatchesByTokens:
    """Case 13: memory is set by the token budget, not by the number or length of texts."""

    def test_one_long_text_among_short_ones(self) -> None:
        encoder, backend = fake_encoder(limit=8192, granularity=8190)
        texts = [words(10)] * 31 + [words(8000)] + [words(10)] * 32
        docs = list(encoder.encode_documents(texts))
        assert [doc.n_tokens for doc in docs] == [10] * 31 + [8000] + [10] * 32
        assert max(backend.padded_tokens) <= 16_384
        assert len(backend.batches) <= 3

    def test_a_text_above_the_budget_runs_alone(self) -> None:
        encoder, backend = fake_encoder(limit=512, granularity=64, batch_tokens=100)
        list(encoder.encode_documents([words(300), words(5), words(5)]))
        assert sorted(backend.batches)[0][0] == 1 and max(backend.padded_tokens) <= 512

    def test_results_stream(self) -> None:
        encoder, backend = fake_encoder(batch_tokens=256)
        read = 0

        def endless() -> object:
            nonlocal read
            while True:
                read += 1
                yield words(20)

        results = encoder.encode_documents(endless())  # type: ignore[arg-type]
        for _ in range(5):
            next(results)
        assert read < 200 and len(backend.batches) < 10


class TestConcurrency:
    """Cases 14 to 16: threads share an encoder, and an event loop stays alive beside it."""

    def test_threads_get_the_sequential_vectors(self, minilm: LandmarkEncoder) -> None:
        texts = [words(n) for n in (1, 7, 30, 90)]
        queries = [minilm.encode_query(text) for text in texts]
        documents = [minilm.encode_document(text).vector for text in texts]

        def work(seed: int) -> bool:
            order = np.random.default_rng(seed).integers(0, len(texts), 12)
            return all(
                np.array_equal(minilm.encode_query(texts[i]), queries[i])
                and np.array_equal(minilm.encode_document(texts[i]).vector, documents[i])
                for i in order
            )

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(16)))

    async def test_event_loop_is_free(self, minilm: LandmarkEncoder) -> None:
        texts = [words(200)] * 30
        async with Heartbeat() as pulse:
            docs = [doc async for doc in minilm.aencode_documents(texts)]
        assert len(docs) == 30 and pulse.beats > 10
        np.testing.assert_allclose(docs[0].vector, minilm.encode_document(texts[0]).vector, atol=1e-5)
        np.testing.assert_array_equal(await minilm.aencode_queries(["x"]), minilm.encode_queries(["x"]))
        assert (await minilm.aencode_queries([])).shape == (0, 384)

    async def test_cancelling_stops_further_passes(self) -> None:
        encoder, backend = fake_encoder(batch_tokens=64)

        async def consume() -> None:
            async for _ in encoder.aencode_documents([words(40)] * 1000):
                await asyncio.sleep(0.001)

        task = asyncio.create_task(consume())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        before = len(backend.batches)
        await asyncio.sleep(0.05)
        assert len(backend.batches) == before < 1000

    async def test_sync_call_inside_a_loop(self, minilm: LandmarkEncoder) -> None:
        assert minilm.encode_query("works").shape == (384,)


class TestInvariants:
    """I1 to I5 on any text."""

    @given(
        st.text(max_size=400),
        st.integers(1, 12),
        st.sampled_from(["fixed", "sentence", "markdown", "code"]),
        st.sampled_from(["landmark", "span_mean", "multi_cls", "mean", "cls", "lasttoken"]),
    )
    @settings(max_examples=300, deadline=None)
    def test_any_text(self, text: str, granularity: int, boundaries: str, pooling: str) -> None:
        encoder, backend = fake_encoder(
            limit=32, granularity=granularity, boundaries=boundaries, pooling=pooling, overlap=8
        )
        doc = encoder.encode_document(text)
        check(doc)
        assert all(len(row) <= 32 for row in backend.rows)
        assert not doc.truncated
        again, _ = fake_encoder(
            limit=32, granularity=granularity, boundaries=boundaries, pooling=pooling, overlap=8
        )
        assert again.encode_document(text).vector.tobytes() == doc.vector.tobytes()

    @given(st.integers(1, 700), st.integers(1, 70))
    @settings(max_examples=50, deadline=None)
    def test_fixed_chunks_are_counted_exactly(self, n: int, granularity: int) -> None:
        encoder, _ = fake_encoder(limit=128, granularity=granularity)
        doc = encoder.encode_document(words(n))
        assert len(doc.chunks) == -(-n // granularity)
        assert max(chunk.n_tokens for chunk in doc.chunks) <= granularity

    def test_fingerprint_follows_settings_only(self) -> None:
        one, other = fake_encoder()[0], fake_encoder(batch_tokens=7)[0]
        assert one.fingerprint == other.fingerprint
        changed = [
            fake_encoder(**change)[0].fingerprint
            for change in (
                {"granularity": 32},
                {"boundaries": "sentence"},
                {"pooling": "span_mean"},
                {"limit": 256},
                {"overlap": 7},
                {"query_prompt": "q: "},
                {"truncate_dim": 8},
                {"landmark_token": "[MASK]"},
            )
        ]
        assert len({one.fingerprint, *changed}) == len(changed) + 1


class TestCallersSpans:
    """The caller's own spans are the chunks, exactly."""

    def test_long_span_is_the_mean_of_its_parts(self) -> None:
        encoder, backend = fake_encoder(limit=64, granularity=8)
        text = words(200)
        doc = encoder.encode_document(text, spans=[(0, 11), (12, 1199)])
        assert [(c.start, c.end) for c in doc.chunks] == [(0, 11), (12, 1199)]
        assert doc.chunks[1].n_tokens == 198
        assert max(map(len, backend.rows)) <= 64
        check(doc)

    @pytest.mark.parametrize(
        ("spans", "match"),
        [
            ([(0, 3), (2, 5)], "span 1, characters 2 to 5: begins before"),
            ([(3, 3)], "span 0.*empty"),
            ([(0, 99)], "outside the text of 7"),
            ([(-1, 3)], "outside"),
            ([(3, 4)], "white space"),
            ([(0.0, 3.0)], "pair of whole numbers"),
            ([(1,)], "pair of whole numbers"),
        ],
    )
    def test_bad_spans(self, spans: list[tuple[int, int]], match: str) -> None:
        encoder, _ = fake_encoder()
        with pytest.raises(SpanError, match=match):
            encoder.encode_document("one two", spans=spans)

    def test_as_many_span_lists_as_texts(self) -> None:
        encoder, _ = fake_encoder()
        with pytest.raises(ValueError, match="shorter"):
            list(encoder.encode_documents(["a", "b"], spans=[[(0, 1)]]))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 200))
@settings(max_examples=100, deadline=None)
def test_merge_is_the_mean_of_what_it_joins(lengths: list[int], max_tokens: int) -> None:
    encoder, backend = fake_encoder(limit=512, granularity=8)
    doc = encoder.encode_document(words(sum(lengths)))
    passes = len(backend.batches)
    merged = doc.merge(max_tokens)
    assert len(backend.batches) == passes, "no second pass"
    check_spans = [(c.start, c.end) for c in merged.chunks]
    assert check_spans[0][0] == doc.chunks[0].start and check_spans[-1][1] == doc.end
    assert sum(c.n_tokens for c in merged.chunks) == doc.n_tokens
    np.testing.assert_array_equal(merged.vector, doc.vector)
    for chunk in merged.chunks:
        members = [c for c in doc.chunks if chunk.start <= c.start < chunk.end]
        assert chunk.n_tokens <= max_tokens or len(members) == 1
        mean = np.mean([c.vector * c.norm for c in members], axis=0)
        np.testing.assert_allclose(chunk.vector * chunk.norm, mean, atol=1e-5)


def test_config_survives_json() -> None:
    config = LandmarkConfig(granularity=None, boundaries="code", language="python", query_prompt="q: ")
    assert LandmarkConfig.from_json(config.to_json()) == config
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LandmarkConfig.from_dict({"overlap": 3}).overlap == 3
