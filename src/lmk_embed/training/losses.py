"""The loss of label-free distillation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from lmk_embed.training.sampling import Answer, Recipe


@dataclass(frozen=True, slots=True)
class Parts:
    """The terms of the loss, each a scalar tensor.

    Attributes
    ----------
    cosine : Tensor
        1 minus the cosine to the target, mean over all chunks.
    similarity : Tensor
        Divergence of the student's similarities to all targets from the teacher's own.
    norm : Tensor
        Variance of the landmark states' lengths over their mean squared.
    answer : Tensor or None
        Contrast of answers with other chunks, in batches with questions.
    total : Tensor
    """

    cosine: torch.Tensor
    similarity: torch.Tensor
    norm: torch.Tensor
    answer: torch.Tensor | None
    total: torch.Tensor


def distillation_loss(
    states: torch.Tensor, targets: torch.Tensor, recipe: Recipe, answers: Sequence[Answer] = ()
) -> Parts:
    r"""Compare landmark states with their targets.

    .. math:: L = \frac1n \sum_i (1 - \hat s_i \cdot t_i)
              + w_s \frac1n \sum_i KL(softmax(t_i T^\top / \tau) \| softmax(\hat s_i T^\top / \tau))
              + w_n \frac{\frac1n \sum_i (|s_i| - m)^2}{m^2}, \quad m = \frac1n \sum_i |s_i|

    where :math:`\hat s` has unit length, and no gradient flows through :math:`m`.

    Parameters
    ----------
    states : Tensor of float32, shape (n, D)
        Raw.
    targets : Tensor of float32, shape (n, D)
        Unit length.
    recipe : Recipe
    answers : sequence of Answer
        Adds ``answer_weight`` times :func:`answer_loss`.

    Returns
    -------
    Parts
    """
    import torch.nn.functional as functional

    directions = functional.normalize(states, dim=-1)
    cosine = (1 - (directions * targets).sum(-1)).mean()
    similarity = functional.kl_div(
        functional.log_softmax(directions @ targets.T / recipe.temperature, dim=-1),
        functional.log_softmax(targets @ targets.T / recipe.temperature, dim=-1),
        reduction="batchmean",
        log_target=True,
    )
    lengths = states.norm(dim=-1)
    mean = lengths.mean().detach()
    norm = ((lengths - mean) ** 2).mean() / mean**2
    total = cosine + recipe.similarity_weight * similarity + recipe.norm_weight * norm
    if not answers:
        return Parts(cosine, similarity, norm, None, total)
    answer = answer_loss(states, answers, recipe.temperature)
    return Parts(cosine, similarity, norm, answer, total + recipe.answer_weight * answer)


def answer_loss(states: torch.Tensor, answers: Sequence[Answer], temperature: float) -> torch.Tensor:
    r"""Contrast the chunks that answer a question with all other chunks of the batch.

    .. math:: \frac1{|Q|} \sum_q -\log \frac{\sum_{c \in A_q} e^{q \cdot c / \tau}}{\sum_c e^{q \cdot c / \tau}}

    A question that has several answers need match only one of them well.

    Parameters
    ----------
    states : Tensor of float32, shape (n, D)
        Raw; the chunks of all documents, then those of all questions.
    answers : sequence of Answer
        At least one.
    temperature : float

    Returns
    -------
    Tensor
        A scalar.
    """
    import torch
    import torch.nn.functional as functional

    n_chunks = min(answer.query.start for answer in answers)
    chunks = functional.normalize(states[:n_chunks], dim=-1)
    queries = torch.stack([states[answer.query.start : answer.query.stop].mean(0) for answer in answers])
    scores = functional.normalize(queries, dim=-1) @ chunks.T / temperature
    wrong = torch.ones_like(scores, dtype=torch.bool)
    for row, answer in enumerate(answers):
        wrong[row, list(answer.chunks)] = False
    right = scores.masked_fill(wrong, float("-inf"))
    return (scores.logsumexp(-1) - right.logsumexp(-1)).mean()
