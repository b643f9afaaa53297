"""Landmark checkpoints in Sentence Transformers: load, train, evaluate and save them there."""

from lmk_embed.errors import missing_extra

try:
    from sentence_transformers_lmk.convert import save_sentence_transformer, to_sentence_transformer
    from sentence_transformers_lmk.module import LandmarkTransformer
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "sentence_transformers":
        raise
    raise missing_extra("sentence-transformers", "sentence-transformers") from error

__all__ = ["LandmarkTransformer", "save_sentence_transformer", "to_sentence_transformer"]
