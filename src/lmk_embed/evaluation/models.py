"""One model, loaded once, as the landmark encoder and the Sentence Transformers model that systems need."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from lmk_embed.backends import Backend
from lmk_embed.checkpoint import locate
from lmk_embed.encoder import LandmarkEncoder
from lmk_embed.errors import missing_extra
from lmk_embed.evaluation.splitting import Count, token_counter, transformer_digest
from lmk_embed.loading import Parts, load_parts
from lmk_embed.tokens import ContentTokenizer


class Model:
    """A checkpoint that several systems share.

    Parameters
    ----------
    name : str or Path or None
        A folder, a hub id, or None for the bundled default.
    device : str, optional
        By default CUDA, else MPS, else CPU.
    dtype : str
        Such as "bfloat16".
    max_seq_length : int, optional
        Longest row, if not what the checkpoint says.
    """

    def __init__(
        self,
        name: str | Path | None = None,
        *,
        device: str | None = None,
        dtype: str = "float32",
        max_seq_length: int | None = None,
    ) -> None:
        self.name = str(name or "default")
        self._source = name
        self._device = device
        self._dtype = dtype
        self._length = {} if max_seq_length is None else {"max_seq_length": max_seq_length}
        self._backend: Backend | None = None

    def encoder(self, **settings: Any) -> LandmarkEncoder:
        """Return an encoder with other settings over the same weights, which are loaded once.

        Raises
        ------
        CheckpointError, ConfigError
            As for :meth:`lmk_embed.LandmarkEncoder.from_pretrained`.
        """
        parts = self._parts(settings)
        self._backend = self._backend or parts.backend
        return LandmarkEncoder(
            self._backend, parts.tokenizer, parts.config, max_positions=parts.max_positions, source=parts.source
        )

    def reading(self, length: int) -> Model:
        """Return the same model with rows of another length, as long as it has positions."""
        length = min(length, self._parts({}).max_positions)
        return Model(self._source, device=self._device, dtype=self._dtype, max_seq_length=length)

    def _parts(self, settings: dict[str, Any]) -> Parts:
        return load_parts(
            self._source,
            self._length | settings,
            revision=None,
            device=self._device,
            dtype=self._dtype,
            attn_implementation=None,
            trust_remote_code=False,
        )

    @cached_property
    def default(self) -> LandmarkEncoder:
        """The encoder with the settings that the checkpoint asks for."""
        return self.encoder()

    @cached_property
    def tokenizer(self) -> ContentTokenizer:
        """The model's tokenizer, for counting."""
        from transformers import AutoTokenizer

        return ContentTokenizer(AutoTokenizer.from_pretrained(self._folder))

    @cached_property
    def count(self) -> Count:
        """Counts content tokens of a text."""
        return token_counter(self.tokenizer)

    @cached_property
    def n_special(self) -> int:
        """Tokens that the model puts around a text."""
        return len(self.tokenizer.backend.encode("", add_special_tokens=True).ids)

    @property
    def _folder(self) -> Path:
        return locate(self._source, revision=None, trust_remote_code=False).folder

    @cached_property
    def transformer(self) -> Any:
        """The ``SentenceTransformer`` of the checkpoint, reading rows as long as the encoder's.

        A folder without Sentence Transformers modules, and a landmark checkpoint, is wrapped in the pooling that
        its base model was trained with, and in its prompts.

        Raises
        ------
        MissingExtraError
            If sentence-transformers is not installed.
        """
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise missing_extra("sentence-transformers", "eval") from error
        from lmk_embed.backends.torch import quiet

        config = self.default.config
        kwargs = {"dtype": self._dtype}
        plain = not (self._folder / "modules.json").is_file() or (self._folder / "lmk_config.json").is_file()
        with quiet():
            if plain:
                model = SentenceTransformer(
                    modules=_modules(
                        self._folder, config.base_pooling, kwargs, include_prompt=config.include_prompt
                    ),
                    prompts={"query": config.query_prompt, "document": config.document_prompt},
                    device=self._device,
                )
            else:
                model = SentenceTransformer(
                    str(self._folder), device=self._device, local_files_only=True, model_kwargs=kwargs
                )
        model.max_seq_length = config.max_seq_length
        return model

    @cached_property
    def transformer_fingerprint(self) -> str:
        """Hex digest of everything that changes the vectors of :attr:`transformer`."""
        return transformer_digest(self.transformer, self.tokenizer)


def _modules(folder: Path, pooling: str, kwargs: dict[str, Any], *, include_prompt: bool) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(str(folder), model_kwargs=kwargs)
    dimension = transformer.get_embedding_dimension()
    return [transformer, Pooling(dimension, pooling, include_prompt=include_prompt), Normalize()]
