"""Sliding-window attention in blocks, for encoders such as ModernBERT on a CPU.

Two functions registered with transformers under one name, as its interfaces for attention and masks ask for. A
window layer then costs O(n * window) in time and memory, where the stock one masks a dense n x n product. All
other layers run as with "sdpa", but with a padding mask of O(n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmk_embed.errors import ConfigError

if TYPE_CHECKING:
    import torch

#: The name for ``attn_implementation``.
BLOCK_WINDOW = "block_window"

#: Architectures with layers that see a window on both sides, masked by transformers in the way ``mask`` knows.
_ENCODERS = frozenset({"embedding_gemma2_text", "modernbert", "ultrabert"})

#: Query tokens of a block, at least.
_BLOCK = 128

#: What some models add to the scores, and the blocks do not.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


@dataclass(frozen=True, slots=True)
class WindowMask:
    """Which keys the queries of each block see; stands in for the dense mask of the window layers.

    Attributes
    ----------
    allowed : Tensor of bool, shape (n_rows * n_blocks, 1, block, block + 2 * reach)
        Each block of queries against the keys from ``reach`` before to ``reach`` behind it.
    block : int
        Tokens of a block of queries.
    reach : int
        Furthest distance that a query sees, in both directions.
    """

    allowed: torch.Tensor
    block: int
    reach: int


def register() -> str:
    """Make the attention known to transformers, and return its name; may be called again."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(BLOCK_WINDOW, attention)
    AttentionMaskInterface.register(BLOCK_WINDOW, mask)
    return BLOCK_WINDOW


def is_window_encoder(model_config: Any) -> bool:
    """Return whether a model is of an architecture whose window layers gain from this attention."""
    return getattr(model_config, "model_type", None) in _ENCODERS


def mask(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> torch.Tensor | WindowMask | None:
    """Return the mask of the layers of one kind; parameters are those of transformers' mask interface.

    Returns
    -------
    WindowMask, Tensor or None
        A ``WindowMask`` for a window on both sides, where rows are longer than the window; a tensor of shape
        (n_rows, 1, 1, n) for padding alone; None if nothing is masked; for any other pattern (causal, or combined
        with a function of the model's own) the dense mask of "sdpa".
    """
    from transformers.masking_utils import prepare_padding_mask, sdpa_mask

    both_sides = not allow_is_causal_skip and allow_is_bidirectional_skip and q_length == kv_length
    narrow = local_size is not None and kv_length > max(_BLOCK, 2 * local_size) + 2 * local_size
    if not both_sides or (local_size is not None and not narrow):
        return sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            attention_mask=attention_mask,
            local_size=local_size,
            allow_is_causal_skip=allow_is_causal_skip,
            allow_is_bidirectional_skip=allow_is_bidirectional_skip,
            device=device,
            **kwargs,
        )
    valid = prepare_padding_mask(attention_mask, kv_length, kwargs.get("kv_offset", 0))
    if local_size is not None:
        return _window_mask(valid, batch_size, kv_length, local_size, device)
    return None if valid is None or bool(valid.all()) else valid[:, None, None, :]


def _window_mask(
    valid: torch.Tensor | None, n_rows: int, length: int, reach: int, device: torch.device | str
) -> WindowMask:
    import torch

    block = max(_BLOCK, 2 * reach)
    n_blocks = -(-length // block)
    if valid is None:
        valid = torch.ones(n_rows, length, dtype=torch.bool, device=device)
    tail = n_blocks * block - length
    keys = torch.nn.functional.pad(valid, (reach, tail + reach)).unfold(1, block + 2 * reach, block)
    distance = torch.arange(block + 2 * reach, device=device) - torch.arange(block, device=device)[:, None] - reach
    allowed = keys[:, :, None, :] & (distance.abs() <= reach)
    # A query that is padding sees itself: without any key its state would be no number, and spread.
    allowed |= distance == 0
    return WindowMask(allowed.flatten(0, 1)[:, None], block, reach)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | WindowMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend in blocks where the mask is a ``WindowMask``, else as "sdpa" does.

    Parameters
    ----------
    module : Module
        The attention layer.
    query, key, value : Tensor, shape (n_rows, n_heads, n, head_dim)
        Keys and values may have fewer heads.
    attention_mask : Tensor, WindowMask or None
        What :func:`mask` returned.
    dropout, scaling : float
    **kwargs
        Of transformers' attention interface.

    Returns
    -------
    (Tensor, None)
        Shape (n_rows, n, n_heads, head_dim); differentiable.

    Raises
    ------
    ConfigError
        If the model changes the scores in a way that is not implemented here.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if not isinstance(attention_mask, WindowMask):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    for name in _UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise ConfigError(
                f'attn_implementation="{BLOCK_WINDOW}" knows no {name!r}, which this model needs; use "eager"'
            )
    n_rows, n_heads, length, _ = query.shape
    repeats = n_heads // key.shape[1]
    keys, values = (_neighbourhoods(states, attention_mask, repeats) for states in (key, value))
    attended = torch.nn.functional.scaled_dot_product_attention(
        _blocks(query, attention_mask.block),
        keys,
        values,
        attn_mask=attention_mask.allowed,
        dropout_p=dropout,
        scale=scaling,
    )
    states = attended.transpose(1, 2).reshape(n_rows, -1, n_heads, value.shape[-1])
    return states[:, :length].contiguous(), None


def _flat(states: torch.Tensor, block: int) -> torch.Tensor:
    """Return rows one after the other, each filled up to whole blocks: shape (n_tokens, n_heads, head_dim)."""
    import torch

    tail = -states.shape[2] % block
    return torch.nn.functional.pad(states.transpose(1, 2), (0, 0, 0, 0, 0, tail)).flatten(0, 1)


def _blocks(states: torch.Tensor, block: int) -> torch.Tensor:
    flat = _flat(states, block)
    return flat.view(-1, block, *flat.shape[1:]).transpose(1, 2)


def _neighbourhoods(states: torch.Tensor, window: WindowMask, repeats: int) -> torch.Tensor:
    """Return each block with ``reach`` tokens around it, as a view of one copy of the states.

    At the ends of a row these are tokens of the row beside it, which the mask hides.
    """
    import torch

    if repeats > 1:
        states = states.repeat_interleave(repeats, dim=1)
    flat = torch.nn.functional.pad(_flat(states, window.block), (0, 0, 0, 0, window.reach, window.reach))
    return flat.unfold(0, window.block + 2 * window.reach, window.block).transpose(2, 3)
