"""Texts to tokens with character offsets, through a tokenizer whose state is never changed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmk_embed.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ints = NDArray[np.int32]

_SPACES = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)
_SURROGATE = re.compile("[\ud800-\udfff]")

#: Characters tokenized at once, and how far neighbouring pieces overlap to be joined where they agree.
_PIECE, _SEAM = 100_000, 2_000
#: Equal tokens in a row that count as agreement.
_AGREE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Content tokens of a text.

    Attributes
    ----------
    ids : ndarray of int32, shape (n,)
    starts, ends : ndarray of int32, shape (n,)
        Character span of each token without surrounding white space; a token of white space alone has
        ``start == end``. Starts never fall.
    """

    ids: Ints
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)

    def slice(self, first: int, last: int) -> Tokens:
        """Return the tokens ``first`` to ``last`` (exclusive)."""
        return Tokens(self.ids[first:last], self.starts[first:last], self.ends[first:last])

    @staticmethod
    def join(parts: list[Tokens]) -> Tokens:
        """Return the parts one after the other."""
        return Tokens(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
        )


class ContentTokenizer:
    """A private copy of a fast tokenizer that adds no special tokens, never cuts and never pads.

    Special-token text in a source ("[SEP]") is tokenized as ordinary text. No state changes after construction,
    so any number of threads may use one object.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        A tokenizer with a fast backend; it is copied, not changed.
    landmark_token : str, optional
        The landmark; by default the separator, else the token that the tokenizer closes a text with, else the
        end-of-text token.

    Attributes
    ----------
    prefix : ndarray of int32
        What the tokenizer puts in front of a text (``[CLS]``; empty for many decoders).
    landmark_id, pad_id : int

    Raises
    ------
    CheckpointError
        If the tokenizer has no fast backend, or no token that can serve as a landmark.
    ConfigError
        If ``landmark_token`` is not in the vocabulary.
    """

    def __init__(self, tokenizer: Any, landmark_token: str | None = None) -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise CheckpointError(
                f"{type(tokenizer).__name__} has no fast backend, so it cannot say which characters a token "
                "covers. Convert it to a tokenizer.json (transformers does so when 'tokenizers' knows the format)."
            )
        self._original = tokenizer
        self._backend: Tokenizer = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        # Without the file's padding and truncation, which change no vector and must not change a fingerprint.
        self.serialized: str = self._backend.to_str()
        prefix, suffix = self._wrapping()
        self.prefix: Ints = np.array(prefix, dtype=np.int32)
        self.landmark_id = self._landmark(tokenizer, landmark_token, suffix)
        self._backend.encode_special_tokens = True
        self._backend = _without_special_words(self._backend)
        pad = getattr(tokenizer, "pad_token_id", None)
        self.pad_id: int = self.landmark_id if pad is None else int(pad)

    @property
    def backend(self) -> Tokenizer:
        """The underlying ``tokenizers.Tokenizer``; treat it as read-only."""
        return self._backend

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files as ``AutoTokenizer.from_pretrained`` reads them."""
        self._original.save_pretrained(folder)

    def _wrapping(self) -> tuple[list[int], list[int]]:
        """Return the ids that the tokenizer puts around a text."""
        bare = self._backend.encode("a", add_special_tokens=False).ids
        full = self._backend.encode("a", add_special_tokens=True).ids
        for at in range(len(full) - len(bare) + 1):
            if full[at : at + len(bare)] == bare:
                return full[:at], full[at + len(bare) :]
        return [], []

    def _landmark(self, tokenizer: Any, wanted: str | None, suffix: list[int]) -> int:
        if wanted is not None:
            found = self._backend.token_to_id(wanted)
            if found is None:
                raise ConfigError(f"landmark_token {wanted!r} is not in the tokenizer's vocabulary")
            return int(found)
        candidates = (
            getattr(tokenizer, "sep_token_id", None),
            suffix[0] if suffix else None,
            getattr(tokenizer, "eos_token_id", None),
        )
        for candidate in candidates:
            if candidate is not None:
                return int(candidate)
        raise CheckpointError(
            "the tokenizer has neither a separator nor an end-of-text token to serve as landmark; "
            "name one with landmark_token="
        )

    def tokenize(self, text: str, lead: str = "") -> Tokens:
        """Tokenize a text of any length.

        A long text is tokenized in overlapping pieces joined where both agree, so that memory stays with the ids
        and offsets; where no agreement is found the whole text is tokenized at once.

        Parameters
        ----------
        text : str
        lead : str
            Put in front of the text, as a prompt is; offsets do not count it.

        Returns
        -------
        Tokens
            Those of ``lead`` included; a token of nothing else has ``start == end == 0``.
        """
        text, lead = encodable(text), encodable(lead)
        if len(text) <= _PIECE:
            return self._once(text, 0, lead)
        starts = range(0, len(text) - _SEAM, _PIECE)
        pieces: list[Tokens] = []
        for start in starts:
            piece = self._once(text[start : start + _PIECE + _SEAM], start, "" if start else lead)
            if pieces:
                seam = _agreement(pieces[-1], piece, start)
                if seam is None:
                    return self._once(text, 0, lead)
                pieces[-1], piece = pieces[-1].slice(0, seam[0]), piece.slice(seam[1], len(piece))
            pieces.append(piece)
        return Tokens.join(pieces)

    def _dropped(self, text: str) -> int:
        """Count the characters at the start that the normalizer drops.

        SentencePiece's normalizer forgets them in its offsets, so that all spans would be too far to the left.
        """
        normalizer = self._backend.normalizer
        if normalizer is None:
            return 0
        plain = normalizer.normalize_str("a")
        return next((i for i, c in enumerate(text) if normalizer.normalize_str(c + "a") != plain), len(text))

    def _once(self, text: str, shift: int, lead: str) -> Tokens:
        joined = lead + text
        skipped = self._dropped(joined)
        encoding = self._backend.encode(joined[skipped:], add_special_tokens=False)
        offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2) + skipped - len(lead)
        offsets = np.clip(offsets, 0, len(text))
        solid = ~np.isin(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32), _SPACES)
        position = np.arange(len(text), dtype=np.int32)
        following = np.append(np.where(solid, position, len(text)), len(text))
        following = np.minimum.accumulate(following[::-1])[::-1]
        preceding = np.maximum.accumulate(np.append(0, np.where(solid, position + 1, 0)))
        ends = np.maximum(offsets[:, 0], np.minimum(offsets[:, 1], preceding[offsets[:, 1]]))
        starts = np.minimum(following[offsets[:, 0]], offsets[:, 1])
        blank = starts >= ends
        ends[blank] = starts[blank] = offsets[blank, 1]
        return Tokens(
            np.array(encoding.ids, dtype=np.int32),
            np.maximum.accumulate(starts + shift).astype(np.int32) if len(starts) else starts.astype(np.int32),
            (ends + shift).astype(np.int32),
        )


def _without_special_words(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer whose model cannot read a special token out of a text.

    Some models know the names of special tokens as words like any other (SentencePiece's Unigram holds "</s>" as
    its most likely piece), which not splitting the text at special tokens does not prevent.
    """
    added = tokenizer.get_added_tokens_decoder()
    special = {token.content: number for number, token in added.items() if token.special}
    if not any(number in tokenizer.encode(text, add_special_tokens=False).ids for text, number in special.items()):
        return tokenizer
    stored = json.loads(tokenizer.to_str())
    model = stored["model"]
    # Surrounded by a character that no text has, a name keeps its number and is never found.
    hidden = {name: f"\U0010ffff{name}\U0010ffff" for name in special}
    if isinstance(model["vocab"], dict):
        known = model["vocab"].keys() & hidden.keys()
        model["vocab"] = {hidden.get(word, word): number for word, number in model["vocab"].items()}
    else:
        known = {word for word, _ in model["vocab"]} & hidden.keys()
        model["vocab"] = [[hidden.get(word, word), score] for word, score in model["vocab"]]
    if "merges" in model:
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if not known & {*pair, "".join(pair)}]
    if model.get("unk_token") in known:
        model["unk_token"] = hidden[model["unk_token"]]
    stored["added_tokens"] = [token for token in stored["added_tokens"] if token["content"] not in known]
    changed = type(tokenizer).from_str(json.dumps(stored))
    changed.encode_special_tokens = True
    return changed


def encodable(text: str) -> str:
    r"""Return a text of the same length that UTF-8 can express: lone surrogates become U+FFFD.

    Examples
    --------
    >>> encodable("a\ud800b") == "a\ufffdb"
    True
    """
    return _SURROGATE.sub("\ufffd", text)


def _agreement(left: Tokens, right: Tokens, start: int) -> tuple[int, int] | None:
    """Find where two overlapping pieces hold the same tokens, as an index into each.

    The middle of the overlap is tried first: both pieces have the most context there.
    """
    lo = int(np.searchsorted(left.starts, start))
    hi = len(left)
    middle = start + _SEAM // 2
    for at in sorted(range(lo, hi - _AGREE + 1), key=lambda i: abs(int(left.starts[i]) - middle)):
        other = int(np.searchsorted(right.starts, left.starts[at]))
        same = slice(at, at + _AGREE), slice(other, other + _AGREE)
        if (
            np.array_equal(left.ids[same[0]], right.ids[same[1]])
            and np.array_equal(left.starts[same[0]], right.starts[same[1]])
            and np.array_equal(left.ends[same[0]], right.ends[same[1]])
            and all(a < b for a, b in pairwise(left.starts[same[0]].tolist()))
        ):
            return at, other
    return None
