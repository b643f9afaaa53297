"""What runs the model: one protocol, one implementation per runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from lmk_embed.layout import Row
from lmk_embed.results import Matrix


@runtime_checkable
class Backend(Protocol):
    """A model that turns rows into the vectors of their segments.

    Attributes
    ----------
    dimension : int
        Length of a state; known without loading weights.
    """

    dimension: int

    def encode(self, rows: Sequence[Row]) -> Matrix:
        """Run one forward pass over a batch.

        Parameters
        ----------
        rows : sequence of Row
            Padded inside to the longest; the mask comes from their lengths.

        Returns
        -------
        ndarray of float32, shape (n_segments, D)
            Mean of the last hidden states in each segment, row by row. Nothing else leaves the device.
        """
        ...

    def weights_digest(self) -> str:
        """Return a hex digest of the loaded weights and of how they are used, the same in any folder."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights and model configuration as ``from_pretrained`` reads them."""
        ...


__all__ = ["Backend"]
