"""The PyTorch backend: any Hugging Face encoder or decoder through ``AutoModel``."""

from __future__ import annotations

import hashlib
import inspect
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmk_embed.backends import window
from lmk_embed.errors import CheckpointError, ConfigError
from lmk_embed.layout import Row
from lmk_embed.results import Matrix

if TYPE_CHECKING:
    import torch

#: Architectures whose position embeddings start behind the padding index, read off the input ids by default.
OFFSET_POSITIONS = frozenset(
    {
        "camembert",
        "data2vec-text",
        "ibert",
        "longformer",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
    }
)

#: Keys of a model configuration that change no hidden state.
_LABELS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "dtype",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)


class TorchBackend:
    """Weights on one device; loaded at the first forward pass.

    Parameters
    ----------
    folder : Path
        A local model folder with safetensors weights.
    model_config : transformers.PretrainedConfig
    pad_id : int
        Fills the right side of shorter rows; never read, since the mask comes from lengths.
    device : str, optional
        By default CUDA, else MPS, else CPU.
    dtype : str
        Such as "float32" or "bfloat16".
    attn_implementation : str, optional
        As transformers names them, or "block_window"; by default that for sliding-window encoders on a CPU, and
        transformers' own choice for all others.
    trust_remote_code : bool
        Run model code that the folder brings.
    """

    def __init__(
        self,
        folder: Path,
        model_config: Any,
        pad_id: int,
        *,
        device: str | None = None,
        dtype: str = "float32",
        attn_implementation: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.folder = folder
        self.dimension: int = hidden_size(model_config)
        self._config = model_config
        self._pad_id = pad_id
        self._device_name = device
        self._dtype_name = dtype
        self._attention = attn_implementation
        self._trust = trust_remote_code
        self._model: Any = None
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        """Where the weights are, or will be."""
        return _device(self._device_name)

    def model(self) -> Any:
        """Return the loaded ``transformers`` model.

        Raises
        ------
        CheckpointError
            If the weights do not load or miss parameters.
        ConfigError
            If the device or dtype does not exist.
        """
        with self._lock:
            return self._loaded()

    def _loaded(self) -> Any:
        if self._model is None:
            device = self.device
            attention = self._attention
            if attention == window.BLOCK_WINDOW or (
                attention is None and device.type == "cpu" and window.is_window_encoder(self._config)
            ):
                attention = window.register()
            model = _load(self.folder, _dtype(self._dtype_name), attention, trust_remote_code=self._trust)
            try:
                self._model = model.to(device)
            except (AssertionError, NotImplementedError, RuntimeError) as error:
                raise ConfigError(f"device {str(device)!r} cannot be used here: {error}") from error
        return self._model

    def encode(self, rows: Sequence[Row]) -> Matrix:
        """Run one forward pass over a batch; see :class:`lmk_embed.backends.Backend`."""
        import torch

        # One pass at a time: several at once compete for the same cores and add up their memory.
        with self._lock, torch.inference_mode():
            model = self._loaded()
            states = model(**self.inputs(rows)).last_hidden_state
            return np.asarray(segment_means(states, rows).float().cpu().numpy(), dtype=np.float32)

    def inputs(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return what the model is called with for a batch of rows, on its device."""
        import torch

        model = self._loaded()
        width = max(len(row) for row in rows)
        ids = np.full((len(rows), width), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row.ids
            mask[index, : len(row)] = 1
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        inputs |= self._positions(width, len(rows))
        return {name: value.to(model.device) for name, value in inputs.items()} | _no_cache(model)

    def _positions(self, width: int, n_rows: int) -> dict[str, torch.Tensor]:
        # They number tokens by comparing ids with the pad id, which is wrong when pad is a landmark.
        if self._config.model_type not in OFFSET_POSITIONS:
            return {}
        import torch

        first = int(self._config.pad_token_id) + 1
        return {"position_ids": torch.arange(first, first + width).expand(n_rows, width)}

    def weights_digest(self) -> str:
        """Return a digest over all parameters and buffers, and over what the configuration makes of them."""
        import torch

        # Only what differs from the architecture's defaults: a newer transformers adds keys that change nothing.
        shape = {key: value for key, value in self._config.to_diff_dict().items() if key not in _LABELS}
        digest = hashlib.sha256(json.dumps(shape, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.model().state_dict().items()):
            value = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write ``config.json`` and safetensors weights."""
        model = self.model()
        with quiet():
            model.save_pretrained(folder)


def hidden_size(model_config: Any) -> int:
    """Return the length of a hidden state, whatever the architecture calls it.

    Raises
    ------
    CheckpointError
        If no known name is in the configuration.
    """
    for name in ("hidden_size", "d_model", "n_embd", "dim"):
        size = getattr(model_config, name, None)
        if isinstance(size, int):
            return size
    raise CheckpointError(f"cannot tell the hidden size of a {model_config.model_type!r} model from its config")


def _no_cache(model: Any) -> dict[str, bool]:
    """Ask a decoder not to keep the keys and values of all layers, which only generation reads."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def segment_means(states: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    """Return the mean state of each segment, gathering no state outside of segments.

    Parameters
    ----------
    states : Tensor, shape (n_rows, width, D)
    rows : sequence of Row

    Returns
    -------
    Tensor, shape (n_segments, D)
    """
    import torch

    width = states.shape[1]
    bounds = [
        (index * width + lo, index * width + hi) for index, row in enumerate(rows) for lo, hi in row.segments
    ]
    lengths = torch.tensor([hi - lo for lo, hi in bounds])
    flat = states.reshape(-1, states.shape[-1])
    picked = torch.from_numpy(np.concatenate([np.arange(lo, hi) for lo, hi in bounds])).to(flat.device)
    values = flat.index_select(0, picked)
    if len(values) == len(bounds):
        return values
    lengths = torch.tensor([hi - lo for lo, hi in bounds], device=flat.device)
    return torch.segment_reduce(values.float(), "mean", lengths=lengths)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bar and its report on unused heads of a pre-training checkpoint."""
    from transformers.utils import logging

    settings: Any = logging  # partly untyped
    verbosity, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        if bars:
            settings.enable_progress_bar()


def _load(folder: Path, dtype: torch.dtype, attention: str | None, *, trust_remote_code: bool) -> Any:
    from safetensors import SafetensorError
    from transformers import AutoModel

    extra = {} if attention is None else {"attn_implementation": attention}
    try:
        with quiet():
            model, report = AutoModel.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                **extra,
            )
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"the model in {folder} does not load: {error}") from error
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise CheckpointError(
            f"the weights in {folder} lack {len(missing)} parameters of the model, among them {missing[0]!r}; "
            "they would be random. Is this the checkpoint that belongs to config.json?"
        )
    return model.eval()


def _device(name: str | None) -> torch.device:
    import torch

    if name is not None:
        try:
            return torch.device(name)
        except RuntimeError as error:
            raise ConfigError(f"device {name!r} is not one that torch knows: {error}") from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _dtype(name: str) -> torch.dtype:
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ConfigError(f'dtype {name!r} is not a floating-point type of torch; try "float32" or "bfloat16"')
    return dtype
