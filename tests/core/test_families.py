"""Every model family gives the layout, spans and vectors that the core promises, whatever its tokenizer does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import FAMILIES, Family
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from tokenizers.models import Unigram

from lmk_embed import ConfigError, DocumentEmbedding, LandmarkEncoder
from lmk_embed.models import default_checkpoint
from lmk_embed.planning import Plan
from lmk_embed.results import Matrix

# None of these models was trained, with landmarks or without.
pytestmark = pytest.mark.filterwarnings("ignore:pooling=.landmark. on a model that was not trained")

POOLINGS = ("landmark", "span_mean", "multi_cls", "mean", "cls", "lasttoken")
#: Positions that every family has; those of RoBERTa's kind have a longer table and cannot use all of it.
LIMIT = 160
#: Tokens of a letter with its accents that stay together even where a chunk is to be shorter.
LETTER = 16

PROSE = "The deposit is three months of rent, and it is returned within ten days after the keys are handed over."
LETTERS = "Grüße aus Köln: Die Höhe der Miete beträgt 850 Euro. 東京で家賃を支払う。 Le café est fermé."
LONG = " ".join(f"{PROSE} {number} {LETTERS}" for number in range(6))

TEXTS = {
    "german": "Grüße aus Köln: Die Kündigung muß schriftlich erfolgen. " * 3,
    "cjk": "賃貸借契約は、双方が署名した日から効力を生じる。東京で𠮷野家に行く。" * 2,
    "emoji": "Grüße 👩‍👧‍👦 aus Köln, 東京 🏳️‍🌈🇩🇪 " * 4,
    "accents": "Cafe\u0301 e\u0301\u0302 a\u0308o\u0308 n\u0303 \ufb01ne İstanbul A\u030a ",
    "many accents": "z\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308" * 6 + " a" + "\u0301" * 90,
    "compatibility": "\ufb01\ufb02 \ufdfa … ™ ½ ㎏ ㍿ \uff21\uff22\uff41\uff42\uff11 \uff76\uff9e x\u00a0y ẞ İ",
    "jamo": "\u1100\u1161\u11a8 각 임대차",
    "right to left": "مرحبا بالعالم שלום עולם नमस्ते दुनिया ",
    "line ends": "one\r\ntwo\r\n\r\n\tthree\t\tfour \r five\x0b\x0c six\n\n\n",
    "controls": "a\x00b \x00\x00 c\x01\x02 \x7f d\ufffd",
    "control first": "\x00 a b",
    "controls alone": "\x00\x01",
    "deleted first": "\x7f\x01 a b",
    "surrogates": "bad \ud800 half. \udfff\ud83d pair\udc00",
    "zero width": "zero\u200bwidth\u200d\u2060 \ufeff joiner \u00ad soft",
    "zero width first": "\ufeff\u200b first",
    "markup of tokenizers": "▁▁a ▁b Ġc ĊĊ ##d ## <0x0A>",
    "long words": "a" * 300 + " http://example.com/" + "x" * 120,
    "gaps": "a" + " " * 50 + "b" + "\n" * 30 + "c",
    "markdown": "# Rent\n\n- 850 €\n- heating\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "white space around": "\n\n  A b  \n",
    "no-break spaces": "\u00a0\u00a0x\u00a0\u2003y\u2028z\u2029",
    "blank": "  \n\t ",
    "empty": "",
}


class Checkpoint:
    """A family's folder, and what ``transformers`` alone makes of it."""

    def __init__(self, family: Family, folder: Path) -> None:
        self.family = family
        self.folder = folder
        self._encoders: dict[tuple[tuple[str, Any], ...], LandmarkEncoder] = {}

    def encoder(self, **choices: Any) -> LandmarkEncoder:
        """Load with fixed boundaries and landmarks unless told otherwise; each choice once."""
        key = tuple(sorted(choices.items()))
        if key not in self._encoders:
            self._encoders[key] = load(self.folder, **choices)
        return self._encoders[key]

    def variant(self, name: str, **tokenizer: Any) -> Path:
        """Copy the folder, with other values in ``tokenizer_config.json``."""
        target = self.folder.with_name(f"{self.family.name}-{name}")
        shutil.copytree(self.folder, target, dirs_exist_ok=True)
        if tokenizer:
            path = target / "tokenizer_config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | tokenizer))
        return target

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)

    @property
    def prefix(self) -> list[int]:
        return [self.tokenizer.convert_tokens_to_ids(token) for token in self.family.prefix]

    @property
    def landmark(self) -> int:
        return int(self.tokenizer.convert_tokens_to_ids(self.family.landmark))

    def content(self, text: str) -> list[int]:
        """Return the ids of a text alone."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def grid(self, text: str, granularity: int) -> list[list[int]]:
        """Return the ids of each fixed chunk: as many as fit, tokens that share a character in the same one."""
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        chunks: list[list[int]] = [[]]
        for group in shared(encoded["input_ids"], encoded["offset_mapping"]):
            if chunks[-1] and len(chunks[-1]) + len(group) > granularity:
                chunks.append([])
            chunks[-1] += group
        return chunks

    def closed(self, text: str) -> list[int]:
        """Return the ids of a text as the tokenizer wraps it; a row always ends in a landmark."""
        return list(self.tokenizer(text)["input_ids"]) + [self.landmark] * (not self.family.closes)

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModel

        return AutoModel.from_pretrained(self.folder).eval()

    def states(self, ids: list[int]) -> Matrix:
        """Return the last hidden states of a row on its own, by nothing but ``transformers``."""
        import torch

        with torch.inference_mode():
            return np.asarray(self._model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy())


def shared(ids: list[int], offsets: list[tuple[int, int]]) -> list[list[int]]:
    """Group neighbouring tokens that share a character."""
    groups: list[list[int]] = []
    reached = 0
    for number, (start, end) in zip(ids, offsets, strict=True):
        if groups and start < reached:
            groups[-1].append(number)
        else:
            groups.append([number])
        reached = max(reached, end)
    return groups


def load(folder: Path, **choices: Any) -> LandmarkEncoder:
    return LandmarkEncoder.from_pretrained(folder, **{"pooling": "landmark", "boundaries": "fixed"} | choices)


def plan(encoder: LandmarkEncoder, text: str) -> Plan:
    (only,) = encoder._planner.documents([text], None)
    return only


def vectors(doc: DocumentEmbedding) -> Matrix:
    return np.stack([doc.vector, *(chunk.vector for chunk in doc.chunks)])


def unit(vector: Matrix) -> Matrix:
    return np.asarray(vector / np.linalg.norm(vector))


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Family], Checkpoint]:
    root = tmp_path_factory.mktemp("families")

    @cache
    def built(name: str) -> Checkpoint:
        family = next(family for family in FAMILIES if family.name == name)
        family.build(root / name)
        return Checkpoint(family, root / name)

    return lambda family: built(family.name)


@pytest.fixture(scope="session", params=FAMILIES, ids=lambda family: family.name)
def checkpoint(request: pytest.FixtureRequest, build: Callable[[Family], Checkpoint]) -> Checkpoint:
    return build(request.param)


class TestLayout:
    """A row is exactly the tokenizer's prefix, c1, landmark, …, cn, landmark."""

    @pytest.mark.parametrize("granularity", [2, 8, 64])
    def test_row(self, checkpoint: Checkpoint, granularity: int) -> None:
        (row,) = plan(checkpoint.encoder(granularity=granularity), PROSE).rows()
        expected, marks = checkpoint.prefix, []
        for chunk in checkpoint.grid(PROSE, granularity):
            expected += [*chunk, checkpoint.landmark]
            marks.append(len(expected) - 1)
        assert row.ids.tolist() == expected
        assert row.segments == tuple((at, at + 1) for at in marks)

    def test_rows_with_a_mark_before_each_chunk(self, checkpoint: Checkpoint) -> None:
        (row,) = plan(checkpoint.encoder(granularity=8, pooling="multi_cls"), PROSE).rows()
        opening = (checkpoint.prefix or [checkpoint.landmark])[-1]
        first, *others = checkpoint.grid(PROSE, 8)
        expected, marks = checkpoint.prefix + first, [max(len(checkpoint.prefix) - 1, 0)]
        for chunk in others:
            marks.append(len(expected))
            expected += [opening, *chunk]
        assert row.ids.tolist() == [*expected, checkpoint.landmark]
        assert row.segments == tuple((at, at + 1) for at in marks)

    @pytest.mark.parametrize("text", [PROSE, LETTERS])
    def test_a_query_is_one_chunk(self, checkpoint: Checkpoint, text: str) -> None:
        (only,) = checkpoint.encoder(pooling="mean")._planner.queries([text])
        (row,) = only.rows()
        assert row.ids.tolist() == checkpoint.closed(text)
        assert row.ids.tolist() == [*checkpoint.prefix, *checkpoint.content(text), checkpoint.landmark]

    def test_special_token_text_is_text(self, checkpoint: Checkpoint) -> None:
        """Case 3: whatever the family's special tokens are, written out they are ordinary characters."""
        tokenizer = checkpoint.tokenizer
        special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id} | {checkpoint.landmark}
        text = f"before {' '.join(tokenizer.all_special_tokens)} after" + "".join(tokenizer.all_special_tokens)
        encoder = checkpoint.encoder(granularity=None)
        (row,) = plan(encoder, text).rows()
        inside = row.ids.tolist()[len(checkpoint.prefix) : -1]
        assert len(row.segments) == 1 and len(inside) > 4
        assert not special & set(inside)
        doc = encoder.encode_document(text)
        check(doc)
        assert doc.chunks[0].text == text
        mark = encoder.encode_document(checkpoint.family.landmark * 2)
        assert np.abs(mark.vector - encoder.encode_document("").vector).max() > 1e-3


class TestStates:
    """Vectors are the model's own states at the tracked places."""

    @pytest.mark.parametrize("text", [PROSE, LETTERS, LONG])
    @pytest.mark.parametrize("pooling", ["landmark", "span_mean", "multi_cls"])
    def test_chunks(self, checkpoint: Checkpoint, pooling: str, text: str) -> None:
        encoder = checkpoint.encoder(granularity=8, pooling=pooling, max_seq_length=48, overlap=16)
        planned = plan(encoder, text)
        expected = np.full((len(planned.pieces), encoder.dimension), np.nan)
        for row in planned.rows():
            assert len(row) <= 48
            assert row.ids.tolist()[: len(checkpoint.prefix)] == checkpoint.prefix
            assert row.ids[-1] == checkpoint.landmark
            states = checkpoint.states(row.ids.tolist())
            for (lo, hi), chunk in zip(row.segments, row.chunks, strict=True):
                piece = planned.pieces[chunk]
                at = hi if pooling == "multi_cls" else hi - 1 - len(piece)
                if pooling == "multi_cls" and lo == 0 and not checkpoint.prefix:
                    at = 0  # nothing stands before the first chunk of a row
                assert row.ids[at : at + len(piece)].tolist() == plan_ids(planned, chunk)
                assert np.isnan(expected[chunk]).all(), "a chunk is taken from one window only"
                expected[chunk] = states[lo:hi].mean(axis=0)
        doc = encoder.encode_document(text)
        check(doc)
        assert len(doc.chunks) == len(planned.pieces) and doc.end == len(text)
        np.testing.assert_allclose(doc.states, expected, atol=1e-4)

    @pytest.mark.parametrize(
        ("text", "prompt"), [(PROSE, ""), (LETTERS, ""), (LETTERS, "query: "), (PROSE, "Find the answer.\nQuery:")]
    )
    def test_whole_rows_are_what_the_model_gives(self, checkpoint: Checkpoint, text: str, prompt: str) -> None:
        states = checkpoint.states(checkpoint.closed(prompt + text))
        for pooling, state in (("mean", states.mean(axis=0)), ("cls", states[0]), ("lasttoken", states[-1])):
            encoder = checkpoint.encoder(pooling=pooling, document_prompt=prompt, query_prompt=prompt)
            np.testing.assert_allclose(encoder.encode_query(text), unit(state), atol=1e-5)
            doc = encoder.encode_document(text)
            np.testing.assert_allclose(doc.vector, unit(state), atol=1e-5)
            assert [(chunk.start, chunk.end) for chunk in doc.chunks] == [(0, len(text))]

    def test_a_row_may_use_every_position(self, checkpoint: Checkpoint) -> None:
        encoder = checkpoint.encoder(granularity=None)
        assert encoder.max_seq_length == LIMIT
        text = "the " * 200
        row = next(plan(encoder, text).rows())
        assert len(row) == LIMIT
        state = checkpoint.states(row.ids.tolist())[-1]
        np.testing.assert_allclose(encoder.encode_document(text).chunks[0].vector, unit(state), atol=1e-5)
        with pytest.raises(ConfigError, match=rf"max_seq_length={LIMIT + 1}, but the model reads at most {LIMIT}"):
            load(checkpoint.folder, max_seq_length=LIMIT + 1)

    @pytest.mark.parametrize("pooling", POOLINGS)
    def test_every_pooling(self, checkpoint: Checkpoint, pooling: str) -> None:
        encoder = checkpoint.encoder(pooling=pooling, granularity=8, boundaries="sentence", max_seq_length=48)
        texts = [*TEXTS.values(), LONG]
        for doc in encoder.encode_documents(texts):
            check(doc)
        queries = encoder.encode_queries(texts)
        assert np.isfinite(queries).all()
        np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-5)

    @pytest.mark.parametrize(
        ("pooling", "base"), [("landmark", "lasttoken"), ("span_mean", "mean"), ("multi_cls", "cls")]
    )
    def test_blend_adds_the_chunk_alone(self, checkpoint: Checkpoint, pooling: str, base: str) -> None:
        windows = {"pooling": pooling, "granularity": 8, "max_seq_length": 48}
        blended = checkpoint.encoder(**windows, context="blend", base_pooling=base).encode_document(LONG)
        check(blended)
        # Behind the first chunk, a text alone may have other tokens: it lacks the space before it.
        inside = checkpoint.encoder(**windows).encode_document(LONG).chunks[0]
        alone = checkpoint.encoder(pooling=base).encode_document(inside.text)
        np.testing.assert_allclose(blended.chunks[0].vector, unit(inside.vector + alone.vector), atol=1e-5)


def plan_ids(planned: Plan, chunk: int) -> list[int]:
    piece = planned.pieces[chunk]
    return [int(number) for number in planned.tokens.ids[piece.first : piece.last]]


class TestSpans:
    """I1 and I2: spans index the caller's string, cover it, and hold no more tokens than asked for."""

    @pytest.mark.parametrize(
        ("boundaries", "granularity"), [("fixed", 1), ("fixed", 5), ("sentence", 5), ("markdown", 1), ("code", 5)]
    )
    def test_odd_texts(self, checkpoint: Checkpoint, boundaries: str, granularity: int) -> None:
        encoder = checkpoint.encoder(granularity=granularity, boundaries=boundaries, max_seq_length=48)
        for doc in encoder.encode_documents(TEXTS.values()):
            check(doc)
            check_tokens(plan(encoder, doc.text))
            assert all(chunk.n_tokens <= max(granularity, LETTER) for chunk in doc.chunks)

    @given(
        st.text(st.characters() | st.sampled_from("\u0301\u200d\ud800\x00\r\n \u3000ﬁ▁Ġ東👩"), max_size=120),
        st.integers(1, 12),
        st.sampled_from(["fixed", "sentence", "markdown", "code"]),
        st.sampled_from(["", "query: ", "é"]),
    )
    @settings(max_examples=15, deadline=None)
    def test_any_text(
        self, checkpoint: Checkpoint, text: str, granularity: int, boundaries: str, prompt: str
    ) -> None:
        encoder = checkpoint.encoder(
            granularity=granularity, boundaries=boundaries, max_seq_length=48, document_prompt=prompt
        )
        check(encoder.encode_document(text))
        check_tokens(plan(encoder, text))

    @pytest.mark.parametrize("prompt", ["", "query: ", "Query:"])
    def test_odd_characters_shift_nothing(self, checkpoint: Checkpoint, prompt: str) -> None:
        encoder = checkpoint.encoder(document_prompt=prompt)
        for text in TEXTS.values():
            tokens = plan(encoder, f"{text} handed over.").tokens
            assert (int(tokens.starts[-1]), int(tokens.ends[-1])) == (len(text) + 12, len(text) + 13)

    @pytest.mark.parametrize("granularity", [2, 3, 8])
    def test_fixed_chunks_are_counted_exactly(self, checkpoint: Checkpoint, granularity: int) -> None:
        doc = checkpoint.encoder(granularity=granularity).encode_document(PROSE)
        expected = [len(chunk) for chunk in checkpoint.grid(PROSE, granularity)]
        assert [chunk.n_tokens for chunk in doc.chunks] == expected
        n = len(checkpoint.content(PROSE))
        # SentencePiece's Unigram gives a space in front of a rare word the place of the word's first letter.
        if not isinstance(checkpoint.tokenizer.backend_tokenizer.model, Unigram):
            assert len(expected) == -(-n // granularity)

    @pytest.mark.parametrize(("boundaries", "granularity"), [("fixed", 1), ("sentence", 4), ("markdown", 20)])
    def test_tokens_are_those_of_the_characters(
        self, checkpoint: Checkpoint, boundaries: str, granularity: int
    ) -> None:
        planned = plan(checkpoint.encoder(granularity=granularity, boundaries=boundaries), f"{LETTERS}\n\n{PROSE}")
        for index, piece in enumerate(planned.pieces):
            decoded = checkpoint.tokenizer.decode(plan_ids(planned, index))
            assert plain(decoded) == plain(planned.text[piece.start : piece.end])

    def test_the_callers_own(self, checkpoint: Checkpoint) -> None:
        words = [match.span() for match in re.finditer(r"\S+", LETTERS)]
        doc = checkpoint.encoder(max_seq_length=48).encode_document(LETTERS, spans=words)
        check(doc)
        assert [(chunk.start, chunk.end) for chunk in doc.chunks] == words

    @pytest.mark.filterwarnings("ignore:text 0 has")
    def test_a_cut_text_ends_between_characters(self, checkpoint: Checkpoint) -> None:
        text = "東京 Köln 👩‍👧‍👦 naïve " * 12
        for room in range(40, 48):
            encoder = checkpoint.encoder(granularity=16, overflow="truncate", max_seq_length=room)
            doc, planned = encoder.encode_document(text), plan(encoder, text)
            check(doc)
            assert doc.truncated and doc.n_tokens < doc.total_tokens and doc.end < len(text)
            (row,) = planned.rows()
            assert len(row) <= room and row.ids[-1] == checkpoint.landmark
            last = planned.pieces[-1].last
            assert planned.tokens.ends[last - 1] <= planned.tokens.starts[last]

    def test_long_texts_have_the_tokens_of_the_whole(self, checkpoint: Checkpoint) -> None:
        """A text is tokenized in pieces; where they are joined, nothing is lost, doubled or changed."""
        text = "\n".join(f"{LETTERS} {PROSE} {number}" for number in range(600))
        tokens = checkpoint.encoder()._planner.tokenizer.tokenize(text)
        assert len(text) > 110_000
        whole = checkpoint.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        assert tokens.ids.tolist() == whole["input_ids"]
        last = text.rindex("599")
        assert last in tokens.starts.tolist() and int(tokens.ends[-1]) == len(text)


def check_tokens(planned: Plan) -> None:
    """Assert that each token with characters is in the piece that holds these, and in no other."""
    tokens, owned = planned.tokens, np.zeros(len(planned.tokens), dtype=int)
    for piece in planned.pieces:
        inside = tokens.slice(piece.first, piece.last)
        solid = inside.ends > inside.starts
        assert (inside.starts[solid] >= piece.start).all() and (inside.ends[solid] <= piece.end).all()
        owned[piece.first : piece.last] += 1
    assert (owned[tokens.ends > tokens.starts] == 1).all() and (owned <= 1).all()


def plain(text: str) -> str:
    """Return the letters that every tokenizer keeps: composed, lower-cased, without accents and white space."""
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter) and not letter.isspace())


class TestSurroundingsDoNotMatter:
    """I4 and cases 4, 5 and 12: neighbours, padding and attention kernels leave vectors as they are."""

    @pytest.mark.parametrize("pooling", ["landmark", "span_mean", "mean"])
    def test_alone_equals_batched(self, checkpoint: Checkpoint, pooling: str) -> None:
        encoder = checkpoint.encoder(granularity=8, pooling=pooling, max_seq_length=48, overlap=16)
        texts = [*TEXTS.values(), LONG]
        for text, together in zip(texts, encoder.encode_documents(texts), strict=True):
            assert together.text == text
            np.testing.assert_allclose(vectors(encoder.encode_document(text)), vectors(together), atol=1e-5)

    def test_padding_side(self, checkpoint: Checkpoint) -> None:
        texts, results, prints = [LONG, PROSE, "a", ""], [], set()
        for side in ("left", "right"):
            encoder = load(checkpoint.variant(side, padding_side=side), granularity=8, document_prompt="text: ")
            assert encoder._planner.tokenizer._original.padding_side == side
            results.append([vectors(doc).tobytes() for doc in encoder.encode_documents(texts)])
            prints.add(encoder.fingerprint)
        assert results[0] == results[1]
        assert len(prints) == 1, "what changes no vector changes no fingerprint"

    def test_padding_may_be_the_landmark(self, checkpoint: Checkpoint) -> None:
        encoder = load(checkpoint.variant("pad", pad_token=checkpoint.family.landmark), granularity=8)
        assert encoder._planner.tokenizer.pad_id == checkpoint.landmark
        texts = ["a", LETTERS, PROSE, LONG]
        usual = checkpoint.encoder(granularity=8).encode_documents(texts)
        for doc, other in zip(encoder.encode_documents(texts), usual, strict=True):
            np.testing.assert_allclose(vectors(doc), vectors(other), atol=1e-6)

    def test_attention_implementation(self, checkpoint: Checkpoint) -> None:
        usual, eager = (
            checkpoint.encoder(granularity=8),
            load(checkpoint.folder, granularity=8, attn_implementation="eager"),
        )
        for doc, other in zip(*(each.encode_documents([LONG, "a"]) for each in (usual, eager)), strict=True):
            np.testing.assert_allclose(vectors(doc), vectors(other), atol=1e-4)

    def test_nothing_is_kept_for_generating(self, checkpoint: Checkpoint) -> None:
        """A decoder's keys and values of all layers would be many times the size of its states."""
        kept: set[str] = set()
        encoder = load(checkpoint.folder, granularity=8)
        encoder._backend.model().register_forward_hook(lambda *call: kept.update(call[-1].keys()))
        encoder.encode_document(PROSE)
        assert "last_hidden_state" in kept and not kept & {"cache", "past_key_values"}

    def test_weights_are_read_in_full_precision(self, checkpoint: Checkpoint) -> None:
        import torch

        half = checkpoint.encoder(granularity=8, dtype="bfloat16")
        folder = checkpoint.folder.with_name(f"{checkpoint.family.name}-half")
        half.save_pretrained(folder)
        full = load(folder, granularity=8)
        for encoder, dtype in ((half, torch.bfloat16), (full, torch.float32)):
            assert {value.dtype for value in encoder._backend.model().parameters()} == {dtype}
        for exact, rounded in zip(*(each.encode_documents([LONG, "a"]) for each in (full, half)), strict=True):
            check(rounded)
            assert (vectors(exact) * vectors(rounded)).sum(axis=1).min() > 0.97


class TestIdentity:
    """I5: the same checkpoint is the same encoder, in any folder and any process."""

    def test_copied_folder(self, checkpoint: Checkpoint) -> None:
        one, other = checkpoint.encoder(granularity=8), load(checkpoint.variant("copy"), granularity=8)
        assert one.fingerprint == other.fingerprint
        assert vectors(one.encode_document(LONG)).tobytes() == vectors(other.encode_document(LONG)).tobytes()
        assert one.fingerprint != checkpoint.encoder(granularity=9).fingerprint

    def test_saved_and_loaded(self, checkpoint: Checkpoint) -> None:
        one = checkpoint.encoder(granularity=8, pooling="span_mean", boundaries="sentence", query_prompt="query: ")
        folder = checkpoint.folder.with_name(f"{checkpoint.family.name}-saved")
        one.save_pretrained(folder)
        other = LandmarkEncoder.from_pretrained(folder)
        assert other.config == one.config
        assert other.fingerprint == one.fingerprint
        for text in (LONG, LETTERS, TEXTS["compatibility"], ""):
            assert vectors(other.encode_document(text)).tobytes() == vectors(one.encode_document(text)).tobytes()
        assert other.encode_query(LETTERS).tobytes() == one.encode_query(LETTERS).tobytes()

    def test_another_process(self, build: Callable[[Family], Checkpoint]) -> None:
        checkpoint = build(next(family for family in FAMILIES if family.name == "mmbert"))
        program = (
            "import sys; from lmk_embed import LandmarkEncoder\n"
            "encoder = LandmarkEncoder.from_pretrained(sys.argv[1], granularity=8, boundaries='fixed')\n"
            "print(encoder.fingerprint, encoder.encode_document(sys.argv[2]).vector.tobytes().hex())"
        )
        command = [sys.executable, "-c", program, str(checkpoint.folder), LONG]
        # Bits are those of one kind of machine: the number of threads decides in which order sums are taken.
        surroundings = os.environ | {"OMP_NUM_THREADS": "1"}
        printed = subprocess.run(
            command, check=True, capture_output=True, text=True, env=surroundings
        ).stdout.split()
        here = load(checkpoint.folder, granularity=8, pooling="span_mean")
        assert printed == [here.fingerprint, here.encode_document(LONG).vector.tobytes().hex()]


def test_the_bundled_model_agrees_with_sentence_transformers() -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    published = sentence_transformers.SentenceTransformer(str(default_checkpoint()[0]), device="cpu")
    texts = [PROSE, LETTERS, "a", "", TEXTS["accents"], TEXTS["controls"], TEXTS["zero width"]]
    expected = published.encode(texts, normalize_embeddings=True)
    encoder = LandmarkEncoder.from_pretrained()
    np.testing.assert_allclose(encoder.encode_queries(texts), expected, atol=1e-5)
    pooled = LandmarkEncoder.from_pretrained(pooling="mean")
    np.testing.assert_allclose(
        np.stack([doc.vector for doc in pooled.encode_documents(texts)]), expected, atol=1e-5
    )
