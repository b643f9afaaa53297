"""The loss of label-free distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from lmk_embed.training.sampling import Recipe


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
    total : Tensor
    """

    cosine: torch.Tensor
    similarity: torch.Tensor
    norm: torch.Tensor
    total: torch.Tensor


def distillation_loss(states: torch.Tensor, targets: torch.Tensor, recipe: Recipe) -> Parts:
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
    return Parts(cosine, similarity, norm, total)
