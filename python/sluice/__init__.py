# SPDX-License-Identifier: Apache-2.0
"""Plans training of language models under hard caps on device and host memory, and runs it.

    import sluice
    plan = sluice.plan("llama3-8b", "rtx4090", device="22GiB", host="110GiB", seq_len=8192, tokens_per_step=131072)
    print(plan)
"""
from __future__ import annotations

import os as _os
from typing import Callable, Mapping, Sequence

from . import _sluice, losses
from ._errors import Error
from ._session import Queued, Session
from ._sluice import Adoption, Dataset, ExpertLoad, LayerLoad, Machine, Model, Plan, Sample, Step, parse_bytes
from ._tables import Records, compare, estimate, sweep
from ._trainer import Run, Trainer
from ._views import Lane, Memory

__all__ = ["Dataset", "Error", "ExpertLoad", "Lane", "LayerLoad", "Machine", "Memory", "Model", "Plan", "Queued", "Records", "Run", "Sample",
           "Session", "Step", "Trainer", "compare", "diff", "estimate", "losses", "parse_bytes", "plan", "sweep"]
__version__: str = _sluice.version()


def plan(model: Model | str, machine: Machine | str | None = None, *, device: int | str | None = None, host: int | str | None = None,
         seq_len: int = 1024, tokens_per_step: int = 16384, compute: str = "auto", gradients: str = "auto", state: str = "auto",
         master_weights: bool | str | None = None, stochastic: bool | None = None, deferred_updates: bool | None = None,
         freeze: Sequence[str] = (), optimizer: str = "adamw", hyperparameters: Mapping[str, float] | None = None,
         clip_norm: float = 1.0, router_z_loss: float = 0.0, seed: int = 1, packed: bool = False, weighted: bool = False,
         log_probabilities: bool = False, round_losses: bool = False, evaluate: bool = True, sample_window: int = 0,
         progress: Callable[[str, int, int], None] | None = None) -> Plan:
    """Searches for the fastest training step that stays under the caps.

    model             a Model, or the name of a preset
    machine           a Machine, the name of a preset, or a machine file; None: this machine
    device, host      most bytes that may be in use: 24 * 2**30, "24GiB"; None: what a preset's card has, and no cap elsewhere
    compute, gradients, state   number formats: "auto", "f32", "bf16"; of state "i8", too
    master_weights    beside bf16 weights: "f32" or True: copies; "i8": a byte each, which makes 24 bits of it; "off" or False
    stochastic, deferred_updates   None: what is fast on the machine
    freeze            patterns over the names of tensors, of what is not trained: ["model.embed_tokens", "model.layers.[0-7]"]
    router_z_loss     how much the z-loss of routers is trained beside the loss, of models with experts
    packed            several documents side by side in a sequence
    weighted          batches have weights, or losses of one's own
    log_probabilities   steps tell those of their targets (Queued)
    round_losses      losses of one's own are called while a step runs (Session.forward_backward(loss_over="round"))
    evaluate          Session.forward() and evaluate() will be called; losses of one's own call forward()
    sample_window     tokens that Session.sample() looks back at most; 0: it is not called
    progress          called with what is done, how much of it, and of how much (0: unknown)

    Raises Error; of kind "does not fit" where nothing works under the caps, with tier, given and need.
    """
    if isinstance(master_weights, bool):
        master_weights = "f32" if master_weights else "off"
    if isinstance(model, str):
        model = Model.preset(model)
    if machine is None:
        machine = Machine.here()
    elif isinstance(machine, str):
        machine = Machine.preset(machine)
    caps = [parse_bytes(cap) if isinstance(cap, str) else cap for cap in (device, host)]
    return _sluice.plan(model, machine, *caps, seq_len=seq_len, tokens_per_step=tokens_per_step, compute=compute, gradients=gradients,
                        state=state, master_weights="auto" if master_weights is None else master_weights, stochastic=stochastic, deferred_updates=deferred_updates,
                        freeze=list(freeze), optimizer=optimizer, hyperparameters=dict(hyperparameters or {}), clip_norm=clip_norm,
                        router_z_loss=router_z_loss, seed=seed, packed=packed, weighted=weighted, log_probabilities=log_probabilities, round_losses=round_losses,
                        evaluate=evaluate, sample_window=sample_window, progress=progress)


def diff(before: Plan | str | _os.PathLike[str], after: Plan | str | _os.PathLike[str]) -> str:
    """What changed between two plans, in words. A plan that is saved is named by its plan.json."""
    def text(of: Plan | str | _os.PathLike[str]) -> str:
        if isinstance(of, Plan):
            return of.json()
        with open(_os.fspath(of), encoding="utf-8") as file:  # a number would be an open file, which this would close
            return file.read()

    return _sluice.diff(text(before), text(after))
