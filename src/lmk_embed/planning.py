"""From a text and its role to the rows that the model will read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np

from lmk_embed.boundaries import Piece, cut, cut_at_spans
from lmk_embed.config import LandmarkConfig, Pooling
from lmk_embed.errors import ConfigError, TokenLimitError
from lmk_embed.layout import Frame, Row, rows, truncated
from lmk_embed.tokens import ContentTokenizer, Tokens, encodable

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A text cut into pieces, and how they are laid out.

    Attributes
    ----------
    text : str
    tokens : Tokens
    pieces : list of Piece
        Empty for a text without content.
    owners : list of int
        For each piece, the index of the chunk it belongs to; several pieces only for long caller's spans.
    total_tokens : int
        Content tokens before any truncation.
    frame : Frame
    pooling : str
    alone : str or None
        How each piece is pooled a second time, in a row of its own; None: it is not.
    overlap : int
    include_prompt : bool
    """

    text: str
    tokens: Tokens
    pieces: list[Piece]
    owners: list[int]
    total_tokens: int
    frame: Frame
    pooling: Pooling
    alone: Pooling | None
    overlap: int
    include_prompt: bool

    @property
    def n_tokens(self) -> int:
        """Content tokens that are encoded."""
        return sum(map(len, self.pieces))

    def rows(self) -> Iterator[Row]:
        """Yield the rows in which pieces see their neighbours."""
        return rows(
            self.tokens,
            self.pieces,
            self.frame,
            self.pooling,
            overlap=self.overlap,
            include_prompt=self.include_prompt,
        )

    def rows_alone(self) -> Iterator[Row]:
        """Yield the rows of the second pass, if there is one."""
        if self.alone is None:
            return iter(())
        return rows(self.tokens, self.pieces, self.frame, self.alone, include_prompt=self.include_prompt)


class Planner:
    """Settings resolved against one model; holds no state that a call changes.

    Parameters
    ----------
    tokenizer : ContentTokenizer
    config : LandmarkConfig
    max_positions : int
        Most tokens of a row that the model can read.

    Raises
    ------
    ConfigError
        If a row cannot hold a prompt and at least one token, or is longer than the model reads.
    """

    def __init__(self, tokenizer: ContentTokenizer, config: LandmarkConfig, max_positions: int) -> None:
        length = config.max_seq_length or max_positions
        if length > max_positions:
            raise ConfigError(
                f"max_seq_length={length}, but the model reads at most {max_positions} tokens; "
                "longer documents are read in windows, so leave it out or lower it"
            )
        overlap = min(128, length // 4) if config.overlap is None else config.overlap
        if overlap >= length:
            raise ConfigError(f"overlap={overlap} must be smaller than the row of {length} tokens")
        self.tokenizer = tokenizer
        self.config = config.override(max_seq_length=length, overlap=overlap)
        self._overlap = overlap
        self._frames = {
            prompt: self._frame(prompt, length) for prompt in (config.query_prompt, config.document_prompt)
        }

    def _frame(self, prompt: str, length: int) -> Frame:
        # White space that ends a prompt belongs to the first word of the text, as if both were one string.
        ids = self.tokenizer.tokenize(prompt.rstrip()).ids if prompt else np.empty(0, dtype=np.int32)
        frame = Frame(self.tokenizer.prefix, ids, self.tokenizer.landmark_id, length)
        if frame.capacity < 2:
            raise ConfigError(
                f"max_seq_length={length} leaves no room for text: {len(frame.prefix)} tokens in front, "
                f"{len(ids)} of the prompt {prompt!r} and 1 landmark"
            )
        return frame

    def documents(self, texts: Iterable[str], spans: Iterable[Spans] | None) -> Iterator[Plan]:
        """Plan documents lazily; warns once when texts are truncated.

        Raises
        ------
        TypeError, SpanError, TokenLimitError
            See :meth:`lmk_embed.LandmarkEncoder.encode_documents`.
        ConfigError
            If there are fewer span lists than texts.
        """
        own = self.config.pooling
        alone = self.config.base_pooling if self.config.context == "blend" else None
        given = repeat(None) if spans is None else spans
        yield from self._plans(
            zip(texts, given, strict=spans is not None), own, alone, self.config.document_prompt
        )

    def queries(self, texts: Sequence[str]) -> Iterator[Plan]:
        """Plan queries; a model without landmark training pools them as it was trained to."""
        config = self.config
        pooling: Pooling = config.base_pooling if config.pooling == "span_mean" else config.pooling
        blended = config.context == "blend" and config.pooling != "span_mean"
        alone = config.base_pooling if blended else None
        yield from self._plans(zip(texts, repeat(None)), pooling, alone, config.query_prompt)

    def _plans(
        self,
        texts: Iterable[tuple[str, Spans | None]],
        pooling: Pooling,
        alone: Pooling | None,
        prompt: str,
    ) -> Iterator[Plan]:
        warned = False
        for index, (text, spans) in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"text {index} must be a string, got {type(text).__name__}")
            plan = self._plan(text, spans, pooling, alone, prompt)
            if plan.n_tokens < plan.total_tokens:
                message = (
                    f"text {index} has {plan.total_tokens} tokens, more than fit into one row of "
                    f"{self.config.max_seq_length}: {plan.n_tokens} are "
                )
                if self.config.overflow == "error":
                    raise TokenLimitError(
                        message + 'all that would be read; use overflow="window" to read the rest'
                    )
                if not warned:
                    warnings.warn(
                        message
                        + "read. Further texts of this call are not reported; see DocumentEmbedding.truncated",
                        stacklevel=2,
                    )
                    warned = True
            yield plan

    def _plan(self, text: str, spans: Spans | None, pooling: Pooling, alone: Pooling | None, prompt: str) -> Plan:
        frame = self._frames[prompt]
        readable = encodable(text)  # what splitters and tokenizers take; the same characters at the same places
        tokens = self.tokenizer.tokenize(readable)
        joined = self._behind_prompt(readable, tokens, prompt)
        room = frame.capacity - 1 - max(len(joined) - len(tokens), 0)
        if spans is not None:
            pieces, owners = cut_at_spans(readable, tokens, spans, room)
        else:
            granularity = None if pooling != self.config.pooling else self.config.granularity
            limit = min(granularity or room, room)
            pieces = cut(readable, tokens, self.config, limit, self.tokenizer.backend)
            owners = list(range(len(pieces)))
        moved = _moved(pieces, tokens, joined)
        if moved is not None:
            tokens, pieces = joined, moved
        total = sum(map(len, pieces))
        if self.config.overflow != "window":
            pieces = truncated(pieces, tokens, frame.capacity)
        if len(pieces) <= 1 and pooling == "span_mean" and alone == "mean":
            alone = None  # the only piece is alone already
        return Plan(
            text,
            tokens,
            pieces,
            owners[: len(pieces)],
            total,
            frame,
            pooling,
            alone if pieces else None,
            self._overlap,
            self.config.include_prompt,
        )

    def _behind_prompt(self, text: str, tokens: Tokens, prompt: str) -> Tokens:
        """Return the tokens of the text as they are when the prompt and the text are one string.

        A byte-level tokenizer has other tokens for a word behind a space than for the same word at the start,
        and one like Llama's puts a space in front of whatever it is given.
        """
        head = text[:200]
        if not prompt or np.array_equal(self._continued(head, prompt).ids, self.tokenizer.tokenize(head).ids):
            return tokens
        return self._continued(text, prompt)

    def _continued(self, text: str, prompt: str) -> Tokens:
        joined, ids = self.tokenizer.tokenize(text, prompt), self._frames[prompt].prompt
        if np.array_equal(joined.ids[: len(ids)], ids):
            return joined.slice(len(ids), len(joined))
        # A token reaches from the prompt into the text: both keep the tokens that they have on their own.
        return self.tokenizer.tokenize(text, prompt[len(prompt.rstrip()) :])


def _moved(pieces: list[Piece], old: Tokens, new: Tokens) -> list[Piece] | None:
    """Give pieces of one tokenization the token ranges they have in another that differs at the start only.

    None if a token of the other one lies in two pieces.
    """
    if old is new:
        return pieces
    shift = len(new) - len(old)
    n = min(len(old), len(new))
    a, b = old.slice(len(old) - n, len(old)), new.slice(len(new) - n, len(new))
    differs = np.flatnonzero(((a.ids != b.ids) | (a.starts != b.starts))[::-1])
    settled = len(old) - (int(differs[0]) if len(differs) else n)

    def move(at: int) -> int:
        if not at:
            return 0  # the space between prompt and text, where it is a token of its own, goes with the text
        if at >= settled or at == len(old):
            return at + shift
        return int(np.searchsorted(new.starts, old.starts[at]))

    moved = [Piece(move(p.first), move(p.last), p.start, p.end) for p in pieces]
    crossed = any(new.ends[p.last - 1] > q.start or new.starts[q.first] < p.end for p, q in pairwise(moved))
    return None if crossed or any(p.first >= p.last for p in moved) else moved
