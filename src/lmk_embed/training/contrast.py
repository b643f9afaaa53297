"""Contrast of chunks: the one that answers a query against those beside it and those of other documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.util import all_gather, all_gather_padded
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence


class ChunkContrastiveLoss(nn.Module):
    r"""InfoNCE over landmark states, with the other chunks of a document as negatives of their own weight.

    .. math:: L = \lambda L_{document} + (1 - \lambda) L_{batch}, \qquad
              L_X = \frac1{|Q|} \sum_q -\log \frac{\sum_{c \in A_q} e^{q \cdot c / \tau}}
                                               {\sum_{c \in A_q \cup N_X(q)} e^{q \cdot c / \tau}}

    :math:`A_q` are the chunks that hold the answer of ``q``; :math:`N_{document}` the other chunks of its
    document, :math:`N_{batch}` all chunks of all other documents of the batch, those of other processes included.
    The split into negatives of the same sequence and of the batch is that of InSeNT (arXiv 2505.24782).

    Parameters
    ----------
    model : SentenceTransformer
        With a ``LandmarkTransformer`` that pools chunks in context.
    in_document_weight : float
        :math:`\lambda`.
    temperature : float
        :math:`\tau`.
    """

    def __init__(self, model: Any, in_document_weight: float = 0.1, temperature: float = 0.05) -> None:
        super().__init__()
        self.model = model
        self.in_document_weight = in_document_weight
        self.temperature = temperature

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        sentence_features : iterable of dict
            Of the queries and of their documents.
        labels : Tensor of int, shape (n, 2)
            Characters of the answer in each document.

        Returns
        -------
        Tensor
            A scalar.
        """
        # One forward pass for both: distributed training allows no second one before the backward pass.
        merged = merge_feature_batches(list(sentence_features))
        assert merged is not None  # all features of a LandmarkTransformer can be merged
        out = self.model(merged)
        n = len(labels)
        queries, counts = out["sentence_embedding"][:n], out["chunk_counts"]
        states = pad_sequence(out["chunk_embeddings"].split(counts.tolist())[n:], batch_first=True)
        real = torch.arange(states.shape[1], device=states.device) < counts[n:, None]
        answers = _holding(merged["chunk_spans"][n:, : states.shape[1]], labels.to(states.device)) & real
        chunks, real = all_gather_padded(normalize(states, dim=-1), real, with_grad=True)
        # As one matrix product: its gradient is contiguous, and processes exchange it as it lies in memory.
        scores = (queries @ chunks.flatten(0, 1).T / self.temperature).unflatten(1, real.shape)
        nothing = torch.finfo(scores.dtype).min / 2  # an infinite one has no gradient where nothing else is left
        scores = scores.masked_fill(~real, nothing)
        first = _first_of_this_process(len(queries), queries.device)
        own = torch.arange(len(queries), device=queries.device)
        inside = scores[own, first + own]
        width = answers.shape[1]
        right = inside[:, :width].masked_fill(~answers, nothing).logsumexp(-1)
        others = scores.clone()
        others[own, first + own] = nothing
        among_all = torch.logaddexp(right, others.flatten(1).logsumexp(-1))
        in_document = (inside.logsumexp(-1) - right).mean()
        in_batch = (among_all - right).mean()
        loss: Tensor = self.in_document_weight * in_document + (1 - self.in_document_weight) * in_batch
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card of Sentence Transformers."""
        return {"in_document_weight": self.in_document_weight, "temperature": self.temperature}


def _holding(chunks: Tensor, spans: Tensor) -> Tensor:
    """Return which chunks share most characters with each span, shape (n, chunks); at least one of each row."""
    start = torch.maximum(chunks[..., 0], spans[:, None, 0])
    end = torch.minimum(chunks[..., 1], spans[:, None, 1])
    shared = (end - start).clamp(min=0)
    lengths = torch.minimum(chunks[..., 1] - chunks[..., 0], (spans[:, 1] - spans[:, 0])[:, None])
    half = (2 * shared >= lengths) & (shared > 0)
    most = torch.zeros_like(half).scatter_(1, shared.argmax(1, keepdim=True), True)
    return half | most


def _first_of_this_process(n: int, device: torch.device) -> int:
    """Return where this process's rows begin among those gathered from all."""
    if not torch.distributed.is_initialized():
        return 0
    counts = all_gather(torch.tensor([n], device=device))
    return int(counts[: torch.distributed.get_rank()].sum())
