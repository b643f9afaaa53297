"""An encoder that is built when it is first needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from lmk_embed import LandmarkEncoder


class EncoderHandle:
    """Holds an encoder, or what is needed to build it; copies share it, a pickle holds no weights.

    Parameters
    ----------
    recipe : mapping
        Arguments of ``LandmarkEncoder.from_pretrained``.
    encoder : LandmarkEncoder, optional
        The encoder, where there is one already.
    """

    def __init__(self, recipe: Mapping[str, Any], encoder: LandmarkEncoder | None = None) -> None:
        self.recipe = dict(recipe)
        self._encoder = encoder
        self._lock = threading.Lock()

    def encoder(self) -> LandmarkEncoder:
        """Return the encoder, always the same one."""
        with self._lock:
            if self._encoder is None:
                self._encoder = LandmarkEncoder.from_pretrained(**self.recipe)
            return self._encoder

    async def aencoder(self) -> LandmarkEncoder:
        """Return the encoder without blocking the event loop while files are read."""
        return await asyncio.to_thread(self.encoder) if self._encoder is None else self._encoder

    def __deepcopy__(self, memo: dict[int, Any]) -> EncoderHandle:
        """Return itself: an encoder never changes, and weights are not for copying."""
        return self

    def __reduce__(self) -> tuple[type[EncoderHandle], tuple[dict[str, Any]]]:
        """Leave the encoder behind."""
        return EncoderHandle, (self.recipe,)
