"""A deterministic encoder without weights: hashed bags of words, exact spans, a norm for each chunk."""

import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from lmk_embed.results import DocumentEmbedding, make_chunk, unit

WORD = re.compile(r"\w+")


@lru_cache(maxsize=100_000)
def word_vector(word: str, dimension: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)


@dataclass
class FakeEncoder:
    """Cuts a text every ``words`` words; a chunk's state is the mean of its word vectors."""

    words: int = 8
    dimension: int = 32
    model: str = "fake"
    max_words: int | None = None
    embedded: list[str] = field(default_factory=list, repr=False)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:16]

    def to_dict(self) -> dict:
        return {"model": self.model, "words": self.words, "dimension": self.dimension}

    @classmethod
    def from_dict(cls, settings: dict) -> "FakeEncoder":
        return cls(**settings)

    def state(self, words: list[str]) -> np.ndarray:
        return np.mean([word_vector(word.lower(), self.dimension) for word in words], axis=0)

    def encode_document(self, text: str) -> DocumentEmbedding:
        self.embedded.append(text)
        found = list(WORD.finditer(text))
        seen = found[: self.max_words]
        groups = [seen[first : first + self.words] for first in range(0, len(seen), self.words)]
        chunks = tuple(
            make_chunk(
                index,
                (group[0].start(), group[-1].end()),
                len(group),
                text[group[0].start() : group[-1].end()],
                self.state([word.group() for word in group]),
            )
            for index, group in enumerate(groups)
        )
        states = [chunk.vector * chunk.norm for chunk in chunks] or [np.ones(self.dimension, dtype=np.float32)]
        vector = unit(np.mean(states, axis=0))
        return DocumentEmbedding(text, vector, chunks, len(seen), len(found))

    def encode_documents(self, texts: Iterable[str]) -> Iterator[DocumentEmbedding]:
        for text in texts:
            yield self.encode_document(text)

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        return unit(np.stack([self.state(WORD.findall(text) or [text]) for text in texts]))


class VectorEncoder(FakeEncoder):
    """Chunks are lines, and a line says its own vector: ``"1 0 0.5 some text"`` for three dimensions."""

    def encode_document(self, text: str) -> DocumentEmbedding:
        self.embedded.append(text)
        chunks = []
        for line in re.finditer(r"[^\n]+", text):
            vector = self.line_vector(line.group())
            chunks.append(make_chunk(len(chunks), line.span(), 1, line.group(), vector))
        vector = unit(np.mean([chunk.vector for chunk in chunks] or [np.ones(self.dimension)], axis=0))
        return DocumentEmbedding(text, vector, tuple(chunks), len(chunks), len(chunks))

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        return unit(np.stack([self.line_vector(text) for text in texts]))

    def line_vector(self, line: str) -> np.ndarray:
        return np.array([float(number) for number in line.split()[: self.dimension]], dtype=np.float32)


def sample_text(seed: int, words: int, topic: str = "") -> str:
    """A text whose words, spacing and punctuation depend on the seed alone."""
    rng = random.Random(seed)
    parts = []
    for position in range(words):
        parts.append(topic if topic and position % 7 == 0 else f"w{rng.randrange(400)}")
        parts.append(rng.choice([" ", " ", " ", ". ", ",\n", "\n\n", " … "]))
    return "".join(parts)
