"""The usual way: LangChain's recursive splitter, and each chunk embedded alone by Sentence Transformers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from lmk_embed.errors import missing_extra
from lmk_embed.evaluation.vectors import CorpusVectors, mean_vectors
from lmk_embed.results import Matrix
from lmk_embed.tokens import ContentTokenizer, encodable

if TYPE_CHECKING:
    from lmk_embed.evaluation.models import Model

Count = Callable[[str], int]


def token_counter(tokenizer: ContentTokenizer) -> Count:
    """Return a function that counts the content tokens of a text.

    The splitter asks for the length of each word again and again, so short texts are remembered.
    """

    def count(text: str) -> int:
        return len(tokenizer.backend.encode(text, add_special_tokens=False).ids)

    remembered = lru_cache(maxsize=200_000)(count)
    return lambda text: remembered(text) if len(text) < 64 else count(text)


def recursive_spans(text: str, n_tokens: int, overlap: int, count: Count) -> list[tuple[int, int]]:
    """Cut a text with LangChain's ``RecursiveCharacterTextSplitter`` and say where each piece stands.

    The splitter's own ``add_start_index`` subtracts an overlap in tokens from a position in characters, and then
    finds a later repetition of the piece, or nothing. Here the splitter gets a text in which every character but
    its separators is one of a kind, so that a piece tells its place; lengths are those of the text itself.

    Parameters
    ----------
    text : str
        Cut beforehand, at a paragraph if there is one, after each million characters, for which there are enough
        characters of a kind.
    n_tokens : int
        The splitter's ``chunk_size``.
    overlap : int
        The splitter's ``chunk_overlap``, in tokens.
    count : callable

    Returns
    -------
    list of (int, int)
        Characters of each piece, without white space around it; pieces of white space alone are left out, as the
        splitter does.

    Raises
    ------
    MissingExtraError
        If langchain-text-splitters is not installed.

    Examples
    --------
    >>> text = "one two three four. one two three four."
    >>> recursive_spans(text, 4, 0, lambda piece: len(piece.split()))
    [(0, 19), (20, 39)]
    """
    try:
        from langchain_text_splitters import RecursiveCharacterTextSplitter
    except ImportError as error:
        raise missing_extra("langchain-text-splitters", "eval") from error

    spans = []
    for first, last in _parts(text):
        part = _Marked(text[first:last])
        # White space is stripped afterwards, from the text itself: in the marked one a tab is a mark like any.
        splitter = RecursiveCharacterTextSplitter(
            chunk_size=n_tokens,
            chunk_overlap=overlap,
            length_function=lambda piece, part=part: count(part.original(piece)),
            strip_whitespace=False,
        )
        for piece in splitter.split_text(part.marked):
            start, solid = part.start(piece), part.original(piece)
            start += len(solid) - len(solid.lstrip())
            if solid := solid.strip():
                spans.append((first + start, first + start + len(solid)))
    return spans


class _Marked:
    """A text in which each character but the splitter's separators is replaced by one that occurs once."""

    SEPARATORS = "\n "
    #: The characters outside of the basic plane: none is white space, and none is a separator.
    FIRST, SIZE = 0x10000, 0x100000

    def __init__(self, text: str) -> None:
        self._text = text
        self.marked = "".join(
            character if character in self.SEPARATORS else chr(self.FIRST + at)
            for at, character in enumerate(text)
        )

    def start(self, piece: str) -> int:
        """Return where a piece of the marked text stands; 0 for separators alone, whose place nobody needs."""
        lead = len(piece) - len(piece.lstrip(self.SEPARATORS))
        return ord(piece[lead]) - self.FIRST - lead if lead < len(piece) else 0

    def original(self, piece: str) -> str:
        """Return the characters that a piece of the marked text stands for."""
        if not piece.strip(self.SEPARATORS):
            return piece
        start = self.start(piece)
        return self._text[start : start + len(piece)]


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Divide a text into ranges that :class:`_Marked` has enough characters for."""
    first = 0
    while len(text) - first > _Marked.SIZE:
        limit = first + _Marked.SIZE
        ends = (text.rfind(separator, first + 1, limit) for separator in ("\n\n", "\n", " "))
        last = next((end for end in ends if end > 0), limit)
        yield first, last
        first = last
    yield first, len(text)


class SplitEmbedder:
    """Split and embed.

    Parameters
    ----------
    name : str
    model : Model
    n_tokens : int
        Most tokens of a chunk.
    overlap : int
        Overlap in per cent of ``n_tokens``.
    """

    def __init__(self, name: str, model: Model, n_tokens: int, overlap: int) -> None:
        self.name = name
        self._model = model
        self._n_tokens = n_tokens
        self._overlap = n_tokens * overlap // 100

    @property
    def settings(self) -> dict[str, Any]:
        """What the report says about it."""
        return {
            "splitter": "RecursiveCharacterTextSplitter",
            "chunk_tokens": self._n_tokens,
            "overlap_tokens": self._overlap,
            "max_seq_length": self._transformer.max_seq_length,
        }

    @property
    def fingerprint(self) -> str:
        """Hex digest of weights, tokenizer, prompts and the modules around the model."""
        return self._model.transformer_fingerprint

    @property
    def key(self) -> dict[str, Any]:
        """Everything that changes its vectors."""
        return {
            **self.settings,
            "fingerprint": self.fingerprint,
            "langchain-text-splitters": version("langchain-text-splitters"),
        }

    @property
    def _transformer(self) -> Any:
        return self._model.transformer

    def encode_documents(self, texts: Sequence[str]) -> CorpusVectors:
        """Split each text and embed each piece alone; a document's vector is the mean of its pieces'."""
        started = time.perf_counter()
        counter = self._model.count
        spans = [recursive_spans(encodable(text), self._n_tokens, self._overlap, counter) for text in texts]
        pieces = [encodable(text[a:b]) for text, own in zip(texts, spans, strict=True) for a, b in own]
        # A text of white space alone has no piece; its vector is that of an empty text.
        blank = not all(spans)
        vectors = self._encode(pieces + [""] * blank, self._transformer.encode_document)
        chunks = vectors[: len(pieces)]
        counts = np.array([len(own) for own in spans], dtype=np.int64)
        empty = np.broadcast_to(vectors[-1], (len(texts), vectors.shape[1]))
        room = self._transformer.max_seq_length - self._model.n_special
        too_long = np.array(
            [any(counter(text[a:b]) > room for a, b in own) for text, own in zip(texts, spans, strict=True)]
        )
        return CorpusVectors(
            counts=counts,
            spans=np.array([span for own in spans for span in own], dtype=np.int64).reshape(-1, 2),
            chunks=chunks,
            documents=mean_vectors(chunks, counts, empty),
            cut=too_long,
            seconds=time.perf_counter() - started,
        )

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed queries, shape (n, D), unit length."""
        return self._encode(list(texts), self._transformer.encode_query)

    @staticmethod
    def _encode(texts: list[str], encode: Callable[..., Any]) -> Matrix:
        vectors = encode(texts, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)


def transformer_digest(transformer: Any, tokenizer: ContentTokenizer) -> str:
    """Return a hex digest of everything that changes the vectors of a Sentence Transformers model."""
    import torch

    digest = hashlib.sha256(repr(transformer).encode())
    digest.update(repr(sorted(transformer.prompts.items())).encode())
    digest.update(tokenizer.serialized.encode())
    for name, tensor in sorted(transformer.state_dict().items()):
        value = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {value.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(value.view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()
