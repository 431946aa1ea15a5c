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

from . import _options, _sluice
from ._arrays import Array, floats_of, ids_of

Loss = Callable[..., Any]


def cross_entropy(log_probabilities: Any, targets: Any) -> Any:
    """Mean of -log p over the targets that count: what is learnt where no loss is named."""
    count = max(1, int((targets >= 0).sum()))
    if not isinstance(log_probabilities, np.ndarray):
        return -log_probabilities.sum() / count
    return -float(log_probabilities.sum(dtype=np.float64)) / count, np.full(log_probabilities.shape, -1 / count, np.float32)


def advantages(rewards: Array, *, scale_rewards: str = "group") -> npt.NDArray[np.float32]:
    """How much better each reward is than the mean of its row, which has the answers to one prompt, as TRL's GRPO has it.

    scale_rewards   what that is divided by: the deviation of the "group", which is the row, of the "batch", or "none". A reward of NaN
                    counts nowhere
    """
    groups = np.asarray(rewards, np.float64)
    if groups.ndim != 2:
        raise ValueError(f"advantages: rewards have {groups.ndim} dimensions: a row for each prompt is needed")
    settings = ["train.objective=grpo", *_options.settings(_GRPO, {"scale_rewards": scale_rewards}, "advantages")]
    return np.asarray(_sluice.advantages(settings, groups.reshape(-1).tolist(), groups.shape[1]), np.float32).reshape(groups.shape)


_GRPO = _options.of_sections("run", "objective")


class grpo:
    """The loss of sampled answers by their advantages: TRL's GRPO and its kin, for Session.forward_backward(..., loss=...).

    targets        those of the call, of which an answer's tokens count and those of its prompt do not
    advantages     one for each answer, in their order; or one for each target, in their shape
    old_log_probabilities   of the targets when they were sampled; None: the model's own, which is the same while no step comes between
    reference_log_probabilities   of the targets, for a beta above 0
    positions      those of the call: an answer is what counts of a document, or of a sequence
    max_completion_length   that an answer may have, by which loss_type="dr_grpo" divides
    options        loss_type, epsilon and so on: the keys of [objective], docs/rl.md. Their defaults are TRL's

    Losses are divided by what the targets of the whole call have, and may be over rounds. After a call, `metrics` has the shares of
    what is clipped, and "kl", of the rows that it saw.
    """

    def __init__(self, targets: Array, advantages: Array, *, old_log_probabilities: Array | None = None,
                 reference_log_probabilities: Array | None = None, positions: Array | None = None,
                 max_completion_length: int | None = None, **options: Any):
        self.metrics: dict[str, float] = {}
        wanted = ids_of(targets, "targets")
        if wanted.ndim != 2:
            raise ValueError(f"grpo: targets have {wanted.ndim} dimensions: a row for each sequence is needed")
        given = {"loss_type": "dapo", **options}
        self._settings = ["train.objective=grpo", *_options.settings(_GRPO, given, "grpo")]
        if (reference_log_probabilities is not None) != (float(given.get("beta") or 0) > 0):
            raise ValueError("grpo: reference_log_probabilities go with a beta above 0")
        if max_completion_length is not None:
            self._settings.append(f"rollout.max_tokens={int(max_completion_length)}")
        elif given["loss_type"] == "dr_grpo":
            raise ValueError("grpo: loss_type=\"dr_grpo\" divides by max_completion_length")
        places = np.tile(np.arange(wanted.shape[1]), (len(wanted), 1)) if positions is None else ids_of(positions, "positions")
        document = (places.reshape(-1) == 0).cumsum()  # a sequence begins one
        counted = wanted.reshape(-1) >= 0
        answers, self._answer = np.unique(document[counted], return_inverse=True)
        index = np.full(wanted.size, -1, np.int32)
        index[counted] = self._answer
        self._answer = index.reshape(wanted.shape)
        each = floats_of(advantages, "advantages")
        if each.shape != wanted.shape:
            if each.size != answers.size:
                raise ValueError(f"grpo: {each.size} advantages of {answers.size} answers; one for each, or for each target, is needed")
            each = np.where(self._answer >= 0, each.reshape(-1)[self._answer], np.float32(0)).astype(np.float32)
        self._advantages = each
        self._old = self._like(old_log_probabilities, "old_log_probabilities")
        self._reference = self._like(reference_log_probabilities, "reference_log_probabilities")
        self._counts = (float(answers.size), float(counted.sum()))

    def _like(self, array: Array | None, name: str) -> Any:
        floats = floats_of(array, name)
        if floats is not None and floats.shape != self._answer.shape:
            raise ValueError(f"grpo: {name} are of shape {floats.shape}: it must be {self._answer.shape}")
        return floats

    def __call__(self, log_probabilities: Any, targets: Any, rows: slice = slice(None)) -> tuple[float, npt.NDArray[np.float32]]:
        now = floats_of(log_probabilities, "log_probabilities")
        answers = np.ascontiguousarray(self._answer[rows], np.int32)
        if now.shape != answers.shape:
            raise ValueError(f"grpo: log-probabilities of shape {now.shape}, and the loss was made for {answers.shape}")
        old, reference = (None if a is None else np.ascontiguousarray(a[rows]) for a in (self._old, self._reference))
        value, seeds, self.metrics = _sluice.policy_loss(self._settings, now, answers, np.ascontiguousarray(self._advantages[rows]),
                                                         old, reference, *self._counts)
        return value, seeds


class distillation:
    """How far each token's distribution is from the one that a teacher recorded, for Session.forward_backward(..., loss=...,
    loss_over="round", top_tokens=...).

    targets            those of the call, of which an answer's tokens count
    top_log_probabilities   of the teacher for each of the call's top_tokens, a row for each target; -inf where there is none
    options            beta, loss_add_tail and temperature: the keys of [objective], docs/distillation.md

    The divergence is divided by the number of targets that count in the whole call. After a call, `metrics` has the probability of the
    recorded tokens, by the teacher and by the model.
    """

    def __init__(self, targets: Array, top_log_probabilities: Array, **options: Any):
        self.metrics: dict[str, float] = {}
        wanted, teacher = ids_of(targets, "targets"), floats_of(top_log_probabilities, "top_log_probabilities")
        if teacher.ndim != wanted.ndim + 1 or teacher.shape[:-1] != wanted.shape:
            raise ValueError(f"distillation: top_log_probabilities of shape {teacher.shape}, and targets of {wanted.shape}: a row for "
                             "each target is needed")
        given = {"loss_top_k": teacher.shape[-1], **options}
        self._settings = ["train.objective=distillation", *_options.settings(_GRPO, given, "distillation")]
        self._teacher = teacher
        self._tokens = float(max(1, (wanted >= 0).sum()))

    def __call__(self, log_probabilities: Any, targets: Any, rows: slice = slice(None)) -> tuple[float, npt.NDArray[np.float32]]:
        now, counted = floats_of(log_probabilities, "log_probabilities"), np.asarray(targets) >= 0
        teacher = self._teacher[rows]
        if now.shape != (*teacher.shape[:-1], teacher.shape[-1] + 1):
            raise ValueError(f"distillation: log-probabilities of shape {now.shape}; forward_backward() has to have top_tokens, and "
                             f"{teacher.shape[-1]} for each target")
        value, slopes, self.metrics = _sluice.distillation_loss(self._settings, np.ascontiguousarray(now[counted][:, 1:]),
                                                                np.ascontiguousarray(teacher[counted]), self._tokens)
        seeds = np.zeros(now.shape, np.float32)
        inner = np.zeros((int(counted.sum()), now.shape[-1]), np.float32)
        inner[:, 1:] = slopes
        seeds[counted] = inner
        return value, seeds


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
