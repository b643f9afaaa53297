"""Needles in haystacks: a sentence that answers one question, at a chosen depth of a document of a chosen length.

The task is that of the passkey test: each document holds the key of one person, and the question asks for one of
them. Every document of a set has a key at the same depth, so that only its content tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from lmk_embed.boundaries import sentence_ends
from lmk_embed.errors import ConfigError
from lmk_embed.evaluation.data import Dataset
from lmk_embed.evaluation.splitting import Count

_FIRST = """Ada Boris Carla Dmitri Elena Farid Greta Hugo Ines Jonas Karin Luca Maren Nils Olga Pedro Quinn Rosa
Stefan Tessa Ulrich Vera Walid Xenia Yusuf Zelda"""
_LAST = """Abbott Berger Castillo Duval Eriksen Fontana Grabowski Haddad Ivanova Jensen Kowalski Lindqvist Moreau
Novak Okafor Petrov Quigley Rossi Santos Takeda Ueda Vargas Weber Yilmaz Zeman"""
_NAMES = tuple(f"{first} {last}" for first, last in product(_FIRST.split(), _LAST.split()))
_SUBJECTS = """the harbour, the old mill, a narrow road, the northern garden, the library, the evening train,
the market, a stone bridge, the orchard, the town hall, the lighthouse, the weather station, a small workshop"""
_VERBS = """was repaired, stood empty, filled with visitors, looked much older, was painted blue, opened early,
lay in fog, was closed for repairs, drew little notice, kept its quiet, lost a window, smelled of cut grass"""
_TIMES = """in the first week of spring, after the long rain, before the harvest, on most afternoons,
in the winter, at the end of the month, while the river was low, for the third year in a row, late in autumn"""


@dataclass(frozen=True, slots=True, eq=False)
class Haystack:
    """Sentences to hide a needle between.

    Attributes
    ----------
    sentences : list of str
        Each with the white space behind it.
    lengths : list of int
        Tokens of each.
    """

    sentences: list[str]
    lengths: list[int]

    @staticmethod
    def generated(count: Count, seed: int) -> Haystack:
        """Return plain sentences, the same for the same seed.

        Parameters
        ----------
        count : callable
            Counts the tokens of a text.
        seed : int
        """
        lists = ([part.strip() for part in words.split(",")] for words in (_SUBJECTS, _VERBS, _TIMES))
        parts = list(product(*lists))
        order = np.random.default_rng(seed).permutation(len(parts))
        sentences = [f"{' '.join(parts[at]).capitalize()}. " for at in order]
        return Haystack(sentences, [count(sentence) for sentence in sentences])

    @staticmethod
    def of(texts: Sequence[str], count: Count, seed: int) -> Haystack:
        """Return the sentences of some texts, which begin with a text drawn by the seed.

        Parameters
        ----------
        texts : sequence of str
        count : callable
        seed : int

        Raises
        ------
        ConfigError
            If there is no sentence in them.
        """
        order = np.random.default_rng(seed).permutation(len(texts))
        sentences: list[str] = []
        for at in order:
            start = 0
            for end in sentence_ends(texts[at], "en"):
                if sentence := texts[at][start:end].strip():
                    sentences.append(sentence + " ")
                start = end
        if not sentences:
            raise ConfigError("the data sets have no sentence to hide a needle between")
        return Haystack(sentences, [count(sentence) for sentence in sentences])

    def between(self, needle: str, needle_tokens: int, n_tokens: int, depth: float, first: int) -> tuple[str, int]:
        """Hide a needle.

        Parameters
        ----------
        needle : str
        needle_tokens : int
        n_tokens : int
            Of the whole document, at most.
        depth : float
            Share of the other tokens that stand in front of it.
        first : int
            Sentence to begin with; after the last comes the first again.

        Returns
        -------
        text : str
        start : int
            Where in it the needle begins.

        Raises
        ------
        ConfigError
            If the needle alone is longer.
        """
        room = n_tokens - needle_tokens
        if room < 0:
            raise ConfigError(f"a document of {n_tokens} tokens cannot hold a needle of {needle_tokens}")
        before, at = self._take(first, round(room * depth))
        after, _ = self._take(at, room - round(room * depth))
        head, tail = "".join(before), "".join(after).rstrip()
        return f"{head}{needle} {tail}".rstrip(), len(head)

    def _take(self, first: int, n_tokens: int) -> tuple[list[str], int]:
        taken: list[str] = []
        at = first % len(self.sentences)
        while self.lengths[at] <= n_tokens:
            # A sentence without any token the tokenizer knows would never fill a document.
            n_tokens -= max(self.lengths[at], 1)
            taken.append(self.sentences[at])
            at = (at + 1) % len(self.sentences)
        return taken, at


def needle_set(
    haystack: Haystack, count: Count, *, n_tokens: int, depth: float, candidates: int, seed: int
) -> Dataset:
    """Build documents of one length, each with the key of another person at the same depth.

    Parameters
    ----------
    haystack : Haystack
    count : callable
    n_tokens : int
        Most tokens of each document, special tokens left out; it is short of them by less than two sentences.
    depth : float
        From 0, the beginning, to 1, the end.
    candidates : int
        Documents, and as many questions.
    seed : int
        Of persons and keys.

    Returns
    -------
    Dataset
        With the span of each needle.

    Raises
    ------
    ConfigError
        If a number is out of range.
    """
    if not 0 <= depth <= 1:
        raise ConfigError(f"a depth lies between 0 and 1, got {depth}")
    if not 2 <= candidates <= len(_NAMES):
        raise ConfigError(f"candidates must lie between 2 and {len(_NAMES)}, got {candidates}")
    random = np.random.default_rng(seed)
    persons = [_NAMES[at] for at in random.permutation(len(_NAMES))[:candidates]]
    keys = random.permutation(np.arange(10_000, 100_000))[:candidates]
    documents, queries, spans = {}, {}, {}
    for number, (person, key) in enumerate(zip(persons, keys, strict=True)):
        needle = f"The pass key of {person} is {key}."
        first = int(random.integers(len(haystack.sentences)))
        text, start = haystack.between(needle, count(needle), n_tokens, depth, first)
        documents[f"d{number}"] = text
        queries[f"q{number}"] = f"What is the pass key of {person}?"
        spans[f"q{number}"] = {f"d{number}": ((start, start + len(needle)),)}
    return Dataset(
        name=f"needle-{n_tokens}-{depth:.0%}",
        documents=documents,
        queries=queries,
        qrels={f"q{number}": {f"d{number}": 1} for number in range(candidates)},
        spans=spans,
    )
