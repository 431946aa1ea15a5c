# SPDX-License-Identifier: Apache-2.0
"""Losses of one's own, for Session.forward_backward(..., loss=...).

A loss is called with log p of every target, in the shape of the batch, and with the targets. Where torch is imported, both are
tensors, and what it returns is a scalar that depends on the log-probabilities. Otherwise both are NumPy arrays, and it returns its
value and its derivative with respect to each of them. Targets of -1 do not count: their log-probabilities are 0, and what is said of
them does not matter. One over rounds (loss_over="round") is called with some of the sequences, and with a third argument: the slice
of the call's sequences that they are.
"""
from __future__ import annotations

import sys
from typing import Any, Callable

import numpy as np
import numpy.typing as npt

from ._arrays import floats_of

Loss = Callable[..., Any]


def cross_entropy(log_probabilities: Any, targets: Any) -> Any:
    """Mean of -log p over the targets that count: what is learnt where no loss is named."""
    count = max(1, int((targets >= 0).sum()))
    if not isinstance(log_probabilities, np.ndarray):
        return -log_probabilities.sum() / count
    return -float(log_probabilities.sum(dtype=np.float64)) / count, np.full(log_probabilities.shape, -1 / count, np.float32)


def differentiate(loss: Loss, log_probabilities: npt.NDArray[np.float32], targets: npt.NDArray[np.int32],
                  *rows: slice) -> tuple[float, npt.NDArray[np.float32]]:
    """The value of a loss, and its derivative with respect to each log-probability."""
    torch = sys.modules.get("torch")
    if torch is not None:
        leaf = torch.from_numpy(log_probabilities).requires_grad_()
        value = loss(leaf, torch.from_numpy(targets.copy()), *rows)
        if isinstance(value, torch.Tensor):
            if value.numel() != 1 or not value.requires_grad:
                raise TypeError(f"loss returned a tensor of shape {tuple(value.shape)}: it must be a scalar that depends on the "
                                "log-probabilities")
            value.backward()
            return float(value.detach()), leaf.grad.numpy()
    else:
        value = loss(log_probabilities, targets, *rows)
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"loss returned {type(value).__name__}: it must return its value and its derivative with respect to each "
                        "log-probability; a scalar alone, of torch, where that is imported")
    seeds = floats_of(value[1], "derivatives")
    if seeds.shape != log_probabilities.shape:
        raise ValueError(f"loss returned derivatives of shape {seeds.shape}: it must be {log_probabilities.shape}")
    return float(value[0]), seeds
