"""What a step trains on: windows of text and short texts, drawn so that step n is the same in every run.

A step depends on the seed and its number alone. A run that is resumed, or spread over several processes, draws
what an undisturbed run would have drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from lmk_embed.boundaries import sentence_ends
from lmk_embed.config import Boundaries, LandmarkConfig, Pooling
from lmk_embed.errors import ConfigError
from lmk_embed.layout import Row, rows, windows
from lmk_embed.planning import Plan, Planner
from lmk_embed.tokens import ContentTokenizer
from lmk_embed.training.corpus import CorpusError, TextCorpus
from lmk_embed.training.questions import Question, Questions

#: What steps train on, in turn: rows of full length, rows of half that length, short texts.
_CYCLE = ("full", "short", "full", "half", "full", "short")
#: The same where there are questions with answers.
_ASKED_CYCLE = ("full", "asked", "short", "asked", "half", "asked")
#: Share of a row's characters that may stand in front of an answer.
_LEAD = 0.4
_ROW_CHARACTERS = 4  # a token, in most text
#: Most questions asked about one window.
_ASKED = 6
#: Characters a token takes at most, in text of any language; what is too much is left out.
_CHARACTERS = 7
#: A text's chance to be drawn grows with this power of its length: long ones often, short ones now and then.
_LENGTH_POWER = 0.75
#: Characters of a sentence, or a question, that is trained as a short text.
_SHORT = (12, 300)
#: Tokens of a short text, on average; sets how many make a batch.
_SHORT_TOKENS = 50
_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of label-free distillation.

    Attributes
    ----------
    granularities : tuple of int
        Most tokens of a chunk, drawn for each text; one that is named twice is drawn twice as often.
    fixed_share : float
        Share of texts that are cut every ``granularity`` tokens, in place of between sentences.
    batch_tokens : int
        Tokens of a step; more on a GPU.
    context_weight : float
        Weight of the chunk as the teacher sees it in its window, against the chunk alone, in a target.
    passage_weight : float
        Weight of the passage around the chunk, read without its document, against the chunk alone, in a target.
    passage_tokens : int
        Most tokens of that passage.
    temperature : float
        Of the similarity distributions.
    similarity_weight : float
        Weight of the divergence between the student's similarities and the teacher's.
    norm_weight : float
        Weight of the term that keeps the lengths of landmark states even.
    answer_weight : float
        Weight of the contrast between chunks that answer a question and all others of the batch.

    Raises
    ------
    ConfigError
        If a value is impossible.
    """

    granularities: tuple[int, ...] = (32, 64, 64, 128)
    fixed_share: float = 0.1
    batch_tokens: int = 2048
    context_weight: float = 1.0
    passage_weight: float = 1.0
    passage_tokens: int = 256
    temperature: float = 0.05
    similarity_weight: float = 1.0
    norm_weight: float = 0.1
    answer_weight: float = 0.1

    def __post_init__(self) -> None:
        """Check the numbers where they enter."""
        if not self.granularities or min(self.granularities) < 1:
            raise ConfigError(f"granularities must be at least 1, got {self.granularities}")
        if not 0 <= self.fixed_share <= 1:
            raise ConfigError(f"fixed_share must lie between 0 and 1, got {self.fixed_share}")
        for name in ("batch_tokens", "passage_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.temperature > 0:
            raise ConfigError(f"temperature must be above 0, got {self.temperature}")
        for name in ("context_weight", "passage_weight", "similarity_weight", "norm_weight", "answer_weight"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Answer:
    """A question of a batch. Chunks are counted over the whole batch, text by text.

    Attributes
    ----------
    query : range
        Chunks of the question itself.
    chunks : tuple of int
        Those that answer it.
    """

    query: range
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's texts, each cut into chunks that share a row.

    Attributes
    ----------
    number : int
        Of the draw.
    plans : tuple of Plan
        One a text; its pieces fit into one row.
    answers : tuple of Answer
        What is asked and where it is answered, in batches with questions.
    """

    number: int
    plans: tuple[Plan, ...]
    answers: tuple[Answer, ...] = ()

    def rows(self, pooling: Pooling) -> list[Row]:
        """Lay every text out for a pooling; segments come text by text, chunk by chunk."""
        return [row for plan in self.plans for row in rows_of(plan, pooling)]

    @property
    def chunks(self) -> list[int]:
        """The number of chunks of each text."""
        return [len(plan.pieces) for plan in self.plans]

    @property
    def n_tokens(self) -> int:
        """Tokens that the student reads, landmarks included."""
        return sum(len(row) for row in self.rows("landmark"))


def rows_of(plan: Plan, pooling: Pooling) -> Iterator[Row]:
    """Lay out a text whose pieces share a row."""
    return rows(plan.tokens, plan.pieces, plan.frame, pooling, include_prompt=plan.include_prompt)


class Sampler:
    """Draws batches by number.

    Parameters
    ----------
    tokenizer : ContentTokenizer
    config : LandmarkConfig
        Of the student; prompts and the longest row are read.
    max_positions : int
    texts : TextCorpus
    queries : TextCorpus or None
        Half of the short texts, where given; the rest are sentences of ``texts``.
    questions : Questions or None
        Every second batch asks some of them, where given.
    recipe : Recipe
    seed : int
    """

    def __init__(
        self,
        tokenizer: ContentTokenizer,
        config: LandmarkConfig,
        max_positions: int,
        texts: TextCorpus,
        queries: TextCorpus | None,
        questions: Questions | None,
        recipe: Recipe,
        seed: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self._max_positions = max_positions
        self._texts = texts
        self._queries = queries
        self._questions = questions
        self._recipe = recipe
        self._seed = seed
        weights = np.cumsum(texts.lengths.astype(np.float64) ** _LENGTH_POWER)
        self._shares = weights / weights[-1]
        self._planner = cache(self._make_planner)
        longest = self._planner("fixed", 1, None).config.max_seq_length
        assert longest is not None  # the planner resolved it
        self._rows = {"full": longest, "half": self._half(longest)}

    def _half(self, longest: int) -> int:
        try:
            self._planner("fixed", 1, longest // 2)
        except ConfigError:  # the prompts leave no room
            return longest
        return longest // 2

    def _make_planner(self, boundaries: Boundaries, granularity: int, length: int | None) -> Planner:
        changes: dict[str, Any] = {"boundaries": boundaries, "granularity": granularity, "overlap": 0}
        if length is not None:
            changes["max_seq_length"] = length
        return Planner(self._tokenizer, self._config.override(**changes), self._max_positions)

    def batch(self, number: int) -> Batch:
        """Draw a batch.

        Parameters
        ----------
        number : int
            Equal numbers give equal batches.

        Raises
        ------
        CorpusError
            If text with at least one token is hardly ever found.
        """
        random = np.random.default_rng((self._seed, number))
        cycle = _CYCLE if self._questions is None else _ASKED_CYCLE
        kind = cycle[number % len(cycle)]
        if self._questions is not None and kind == "asked":
            return self._asked(number, random, self._questions)
        budget = self._recipe.batch_tokens
        count = budget // (_SHORT_TOKENS if kind == "short" else self._rows[kind])
        draw = self._short if kind == "short" else lambda random: self._window(random, self._rows[kind])
        plans: list[Plan] = []
        for _ in range(_ATTEMPTS * max(count, 1)):
            if len(plans) >= max(count, 1):
                break
            plan = draw(random)
            if plan.pieces:
                plans.append(first_row(plan))
        if not plans:
            raise CorpusError("the training text has hardly any text that the tokenizer knows")
        return Batch(number, tuple(plans))

    def _window(self, random: np.random.Generator, length: int) -> Plan:
        fixed = random.random() < self._recipe.fixed_share
        granularity = int(random.choice(self._recipe.granularities))
        planner = self._planner("fixed" if fixed else "sentence", granularity, length)
        (plan,) = planner.documents([self._excerpt(random, length * _CHARACTERS)], None)
        return plan

    def _short(self, random: np.random.Generator) -> Plan:
        granularity = int(random.choice(self._recipe.granularities))
        planner = self._planner("sentence", granularity, None)
        if self._queries is not None and random.random() < 0.5:
            query = self._queries.texts[int(random.integers(len(self._queries)))]
            (plan,) = planner.queries([query[: _SHORT[1]]])
            return plan
        (plan,) = planner.documents([self._sentence(random)], None)
        return plan

    def _sentence(self, random: np.random.Generator) -> str:
        text = self._excerpt(random, 3 * _SHORT[1])
        ends = [0, *sentence_ends(text, self._config.language or "en")]
        # The first and the last may be parts of sentences; they serve where there is nothing else.
        sentences = [text[a:b].strip() for a, b in pairwise(ends)]
        whole = [each for each in sentences[1:-1] if _SHORT[0] <= len(each) <= _SHORT[1]]
        return whole[int(random.integers(len(whole)))] if whole else sentences[0][: _SHORT[1]]

    def _asked(self, number: int, random: np.random.Generator, questions: Questions) -> Batch:
        """Draw windows around answers, and behind them all the questions about what is in them."""
        windows_of: list[Plan] = []
        asked: list[tuple[Plan, tuple[int, ...]]] = []
        tokens = chunks = 0
        for _ in range(_ATTEMPTS):
            question = questions.questions[int(random.integers(len(questions.questions)))]
            plan, start = self._around(random, question, questions.documents[question.document])
            if not plan.pieces:
                continue
            also = questions.by_document[question.document]
            others = random.permutation(len(also))[:_ASKED].tolist()
            for each in [question, *(also[at] for at in others if also[at] is not question)]:
                found = tuple(chunks + at for at in _answering(plan, start, each.gold))
                (query,) = self._planner("sentence", self._config.granularity or 64, None).queries([each.text])
                if found and query.pieces:
                    asked.append((first_row(query), found))
            windows_of.append(plan)
            chunks += len(plan.pieces)
            tokens += plan.n_tokens + len(plan.pieces)
            if tokens >= self._recipe.batch_tokens:
                break
        answers = []
        for query, found in asked:
            answers.append(Answer(range(chunks, chunks + len(query.pieces)), found))
            chunks += len(query.pieces)
        if not answers:
            raise CorpusError("the questions have hardly any answer that fits into a row")
        return Batch(number, (*windows_of, *(query for query, _ in asked)), tuple(answers))

    def _around(self, random: np.random.Generator, question: Question, text: str) -> tuple[Plan, int]:
        """Draw a window with an answer in it; also return where in the document it begins."""
        length = self._rows["half" if random.random() < 0.5 else "full"]
        granularity = int(random.choice(self._recipe.granularities))
        gold = question.gold[int(random.integers(len(question.gold)))]
        lead = int(random.integers(int(length * _ROW_CHARACTERS * _LEAD)))
        start = max(0, gold[0] - lead)
        if start:
            start = min(text.find(" ", start, gold[0]) + 1 or gold[0], gold[0])
        (plan,) = self._planner("sentence", granularity, length).documents(
            [text[start : start + length * _CHARACTERS]], None
        )
        return (first_row(plan) if plan.pieces else plan), start

    def _excerpt(self, random: np.random.Generator, characters: int) -> str:
        """Draw a text, and a place in it where a word begins if it is long."""
        text = self._texts.texts[int(np.searchsorted(self._shares, random.random(), side="right"))]
        if len(text) <= 2 * characters:
            return text[:characters]
        start = int(random.integers(len(text) - characters))
        excerpt = text[start : start + characters]
        word = excerpt.find(" ") + 1
        return excerpt[word:] if word < characters // 2 else excerpt


def _answering(plan: Plan, start: int, gold: Sequence[tuple[int, int]]) -> list[int]:
    """Return the pieces that lie half or more in an answer, or hold half or more of one."""
    found = []
    for index, piece in enumerate(plan.pieces):
        for first, last in gold:
            shared = min(piece.end + start, last) - max(piece.start + start, first)
            if shared > 0 and 2 * shared >= min(piece.end - piece.start, last - first):
                found.append(index)
                break
    return found


def first_row(plan: Plan) -> Plan:
    """Keep of a text what fits into its first row.

    Parameters
    ----------
    plan : Plan
        With at least one piece.
    """
    lengths = [len(piece) for piece in plan.pieces]
    last = windows(lengths, plan.frame.capacity, 0)[0].last
    return replace(plan, pieces=plan.pieces[:last], owners=plan.owners[:last])
