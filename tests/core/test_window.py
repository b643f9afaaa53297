"""Window layers in blocks give what the stock attention gives, and never see a dense mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from lmk_embed import ConfigError, LandmarkEncoder
from lmk_embed.backends import window
from lmk_embed.models import default_checkpoint

_SMALL = {
    "vocab_size": 200,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
_LAYERS = ["full_attention", "sliding_attention", "sliding_attention"]
_SHAPES: dict[str, dict[str, Any]] = {
    "ModernBertConfig": {"local_attention": 16},
    "UltrabertConfig": {"sliding_window": 8, "num_key_value_heads": 2},
    "EmbeddingGemma2TextConfig": {"sliding_window": 8, "num_key_value_heads": 2, "head_dim": 8},
}


class _Layer(torch.nn.Module):
    """What the attention reads of a layer."""

    is_causal = False

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.num_key_value_groups = groups


def _model(name: str, attention: str | None, **shape: Any) -> Any:
    """Return the same random model of an architecture, whatever its attention is."""
    config = getattr(transformers, name)(**_SMALL | {"layer_types": _LAYERS} | _SHAPES[name] | shape)
    assert window.is_window_encoder(config)
    torch.manual_seed(0)
    model = AutoModel.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def _batch(lengths: list[int], *, left: bool = False) -> dict[str, torch.Tensor]:
    width = max(lengths)
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, width - length if left else 0 : width if left else length] = 1
    ids = torch.randint(1, 200, mask.shape, generator=torch.Generator().manual_seed(len(lengths)))
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("name", _SHAPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lengths", [[1], [9], [144], [145], [384], [700], [700, 700], [401, 3, 280, 130]])
def test_every_architecture_gives_the_states_of_its_stock_attention(
    name: str, left: bool, lengths: list[int]
) -> None:
    blocks, stock = _model(name, window.register()), _model(name, "sdpa")
    batch = _batch(lengths, left=left)
    with torch.inference_mode():
        got, expected = (model(**batch).last_hidden_state for model in (blocks, stock))
    real = batch["attention_mask"].bool()
    assert torch.isfinite(got).all()
    assert torch.allclose(got[real], expected[real], atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_window_length_and_padding(data: st.DataObject) -> None:
    reach = data.draw(st.sampled_from([1, 3, 16, 64, 65, 100]), "reach")
    length = data.draw(st.integers(1, 900), "length")
    rows = data.draw(st.integers(1, 3), "rows")
    heads, groups = data.draw(st.sampled_from([(2, 2), (4, 2), (3, 1)]), "heads")
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99), "seed"))
    query, key, value = (
        torch.randn(rows, length, count, 8, generator=generator).transpose(1, 2)
        for count in (heads, groups, groups)
    )
    starts = [data.draw(st.integers(0, length - 1), "start") for _ in range(rows)]
    ends = [data.draw(st.integers(start + 1, length), "end") for start in starts]
    places = torch.arange(length)
    valid = torch.stack([(places >= start) & (places < end) for start, end in zip(starts, ends, strict=True)])
    near = (places[:, None] - places).abs() <= reach
    asked = {
        "batch_size": rows,
        "q_length": length,
        "kv_length": length,
        "mask_function": lambda row, head, q, k: abs(q - k) <= reach,
        "attention_mask": valid,
        "local_size": reach,
        "allow_is_causal_skip": False,
        "allow_is_bidirectional_skip": True,
    }
    layer = _Layer(heads // groups)
    got, _ = window.attention(layer, query, key, value, window.mask(**asked), scaling=0.3)
    expected, _ = sdpa_attention_forward(
        layer, query, key, value, (near & valid[:, None, :])[:, None], scaling=0.3
    )
    assert torch.isfinite(got[valid]).all()
    assert torch.allclose(got[valid], expected[valid], atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_stock_attention() -> None:
    batch = _batch([401, 300])
    gradients = []
    for attention in (window.register(), "sdpa"):
        model = _model("ModernBertConfig", attention).train()
        states = model(**batch).last_hidden_state
        (states.cos() * batch["attention_mask"][..., None]).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for got, expected in zip(*gradients, strict=True):
        assert torch.allclose(got, expected, atol=1e-5 * float(expected.abs().max()) + 1e-6)


def test_masks_grow_with_length_times_window() -> None:
    reach, sizes = 64, []
    for length in (4096, 8192):
        asked = {
            "batch_size": 2,
            "q_length": length,
            "kv_length": length,
            "attention_mask": _batch([length, length // 2])["attention_mask"].bool(),
            "allow_is_causal_skip": False,
            "allow_is_bidirectional_skip": True,
        }
        near, padding = window.mask(**asked, local_size=reach), window.mask(**asked)
        assert isinstance(near, window.WindowMask)
        assert isinstance(padding, torch.Tensor)
        assert padding.shape == (2, 1, 1, length)
        sizes.append(near.allowed.numel())
    assert sizes == [2 * 4096 * 4 * reach, 2 * 8192 * 4 * reach]


def test_a_causal_pattern_keeps_its_dense_mask() -> None:
    places = torch.arange(300)
    causal = window.mask(
        batch_size=1,
        q_length=300,
        kv_length=300,
        mask_function=lambda row, head, q, k: (k <= q) & (k > q - 8),
        local_size=8,
    )
    assert isinstance(causal, torch.Tensor)
    assert torch.equal(causal[0, 0], (places <= places[:, None]) & (places > places[:, None] - 8))


def test_scores_that_a_model_changes_are_refused() -> None:
    states = torch.randn(1, 2, 300, 8)
    near = window.WindowMask(torch.ones(3, 1, 128, 136, dtype=torch.bool), 128, 4)
    with pytest.raises(ConfigError, match="softcap"):
        window.attention(_Layer(), states, states, states, near, softcap=30.0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modernbert")
    tokenizer = AutoTokenizer.from_pretrained(default_checkpoint()[0])
    _model("ModernBertConfig", None, vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _attention(encoder: LandmarkEncoder) -> str:
    return str(encoder._backend.model().config._attn_implementation)  # type: ignore[attr-defined]


def test_the_cpu_takes_blocks_unless_told_otherwise(checkpoint: Path, tiny_model: Path) -> None:
    text = "The deposit is returned within ten days after the keys are handed over. " * 40
    choices: dict[str, dict[str, Any]] = {"block_window": {}, "sdpa": {"attn_implementation": "sdpa"}}
    vectors, fingerprints = [], set()
    for expected, choice in choices.items():
        encoder = LandmarkEncoder.from_pretrained(
            checkpoint, device="cpu", max_seq_length=500, granularity=32, **choice
        )
        vectors.append(torch.from_numpy(encoder.encode_document(text).states))
        assert _attention(encoder) == expected
        fingerprints.add(encoder.fingerprint)
    assert torch.allclose(vectors[0], vectors[1], atol=1e-5)
    assert len(fingerprints) == 1
    assert _attention(LandmarkEncoder.from_pretrained(tiny_model, device="cpu")) == "sdpa"
    asked = LandmarkEncoder.from_pretrained(checkpoint, device="cpu", attn_implementation="block_window")
    assert _attention(asked) == "block_window"
