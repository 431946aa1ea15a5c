# SPDX-License-Identifier: Apache-2.0
"""Plans training of language models under hard caps on device and host memory, and runs it.

    import sluice
    plan = sluice.plan("llama3-8b", "rtx4090", device="22GiB", host="110GiB", seq_len=8192, tokens_per_step=131072)
    print(plan)
"""
from __future__ import annotations

import html as _html
import json as _json
import os as _os
from typing import Callable, Mapping, NamedTuple

import numpy as _np

from . import _sluice
from ._errors import Error
from ._sluice import Machine, Model, Plan, Session, Step, parse_bytes

__all__ = ["Error", "Machine", "Memory", "Model", "Plan", "Session", "Step", "diff", "parse_bytes", "plan"]
__version__ = _sluice.__version__


def plan(model: Model | str, machine: Machine | str | None = None, *, device: int | str | None = None, host: int | str | None = None,
         seq_len: int = 1024, tokens_per_step: int = 16384, compute: str = "auto", gradients: str = "auto", state: str = "auto",
         master_weights: bool | None = None, stochastic: bool | None = None, deferred_updates: bool | None = None,
         optimizer: str = "adamw", hyperparameters: Mapping[str, float] | None = None, clip_norm: float = 1.0, seed: int = 1,
         packed: bool = False, evaluate: bool = True, generate_window: int = 0,
         progress: Callable[[str, int, int], None] | None = None) -> Plan:
    """Searches for the fastest training step that stays under the caps.

    model             a Model, or the name of a preset
    machine           a Machine, the name of a preset, or a machine file; None: this machine
    device, host      most bytes that may be in use: 24 * 2**30, "24GiB"; None: what a preset's card has, and no cap elsewhere
    compute, gradients, state   number formats: "auto", "f32", "bf16"
    master_weights, stochastic, deferred_updates   None: what is fast on the machine
    generate_window   tokens that Session.generate() looks back; 0: it is not called
    progress          called with what is done, how much of it, and of how much (0: unknown)

    Raises Error; of kind "does not fit" where nothing works under the caps, with tier, given and need.
    """
    if isinstance(model, str):
        model = Model.preset(model)
    if machine is None:
        machine = Machine.here()
    elif isinstance(machine, str):
        machine = Machine.preset(machine)
    caps = [parse_bytes(cap) if isinstance(cap, str) else cap for cap in (device, host)]
    return _sluice.plan(model, machine, *caps, seq_len=seq_len, tokens_per_step=tokens_per_step, compute=compute, gradients=gradients,
                        state=state, master_weights=master_weights, stochastic=stochastic, deferred_updates=deferred_updates,
                        optimizer=optimizer, hyperparameters=dict(hyperparameters or {}), clip_norm=clip_norm, seed=seed, packed=packed,
                        evaluate=evaluate, generate_window=generate_window, progress=progress)


class Memory(NamedTuple):
    """What a memory holds over one step: at `seconds[i]`, until the next, `bytes[kind][i]` of each kind."""

    seconds: _np.ndarray
    bytes: dict[str, _np.ndarray]


def _memory(self: Plan, tier: str = "device") -> Memory:
    """What a memory, "device" or "host", holds over the step."""
    of = self.data["memory"]
    if tier not in of:
        raise ValueError(f"tier = {tier}: allowed are {', '.join(of)}")
    # Each number is the difference to the one before.
    return Memory(_np.cumsum(of[tier]["ns"]) / 1e9, {kind: _np.cumsum(held, dtype=_np.int64) for kind, held in of[tier]["kinds"].items()})


def _repr_html_(self: Plan) -> str:
    return f'<iframe srcdoc="{_html.escape(self.html())}" style="width: 100%; height: 800px; border: 0"></iframe>'


def diff(before: Plan | str | _os.PathLike, after: Plan | str | _os.PathLike) -> str:
    """What changed between two plans, in words. A plan that is saved is named by its plan.json."""
    def text(of: Plan | str | _os.PathLike) -> str:
        if isinstance(of, Plan):
            return of.json()
        with open(of, encoding="utf-8") as file:
            return file.read()

    return _sluice.diff(text(before), text(after))


Plan.data = property(lambda self: _json.loads(self.json()), doc="The plan in numbers, as json() has it.")
Plan.memory = _memory
Plan._repr_html_ = _repr_html_
