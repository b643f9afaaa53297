"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from transformers import AutoTokenizer, BertConfig, BertModel

from lmk_embed.models import default_checkpoint

# Workers of pytest-xdist share the cores; tiny models gain nothing from several threads and wait for each other.
torch.set_num_threads(1)

# `make test` gives the same verdict on the same code; `make fuzz` looks for new examples.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("fuzz", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a random BERT with MiniLM's tokenizer: real in every part, and fast."""
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    tokenizer = AutoTokenizer.from_pretrained(default_checkpoint()[0])
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    BertModel(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
