"""From an encoder to a SentenceTransformer, in memory or as a folder."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lmk_embed import LandmarkEncoder
from sentence_transformers_lmk.module import LandmarkTransformer

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def to_sentence_transformer(
    encoder: LandmarkEncoder, *, device: str | None = None, trust_remote_code: bool = False
) -> SentenceTransformer:
    """Return a model with a copy of an encoder's weights, to train it or to hand it to ``mteb.evaluate``.

    To train with landmarks, load the encoder with ``pooling="landmark", context="window", landmark_trained=True``:
    that is what the saved checkpoint will say.

    Parameters
    ----------
    encoder : LandmarkEncoder
        Not changed by training.
    device : str, optional
        As for SentenceTransformer.
    trust_remote_code : bool
        As the encoder was loaded with.

    Returns
    -------
    SentenceTransformer
        ``encode_document`` and ``encode_query`` give the encoder's vectors; ``save_pretrained`` writes a folder
        that SentenceTransformer (with ``trust_remote_code=True``) and LandmarkEncoder read.

    Examples
    --------
    >>> encoder = LandmarkEncoder.from_pretrained()
    >>> model = to_sentence_transformer(encoder, device="cpu")
    >>> text = "The deposit is three months of rent."
    >>> bool(abs(model.encode_document(text) - encoder.encode_document(text).vector).max() < 1e-5)
    True
    """
    from sentence_transformers import SentenceTransformer

    # Through a folder: it holds everything there is to know, and the weights become a copy.
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        encoder.save_pretrained(folder)
        dtype = encoder.to_dict()["dtype"]
        module = LandmarkTransformer.from_pretrained(folder, dtype=dtype, trust_remote_code=trust_remote_code)
    config = encoder.config
    prompts = {"query": config.query_prompt, "document": config.document_prompt}
    return SentenceTransformer(modules=[module], prompts=prompts, device=device, similarity_fn_name="cosine")


def save_sentence_transformer(encoder: LandmarkEncoder, folder: str | Path) -> None:
    """Write a folder that both SentenceTransformer and LandmarkEncoder read.

    Parameters
    ----------
    encoder : LandmarkEncoder
    folder : str or Path
        ``SentenceTransformer(folder, trust_remote_code=True)`` needs lmk-embed to be installed; the flag is what
        Sentence Transformers asks for any module that is not its own, and no code is stored in the folder.
    """
    to_sentence_transformer(encoder, device="cpu").save_pretrained(str(folder), create_model_card=False)
