# SPDX-License-Identifier: Apache-2.0
"""Plans training of language models under hard caps on device and host memory, and runs it.

    import sluice
    plan = sluice.plan("llama3-8b", "rtx4090", device="22GiB", host="110GiB", seq_len=8192, tokens_per_step=131072)
    print(plan)
"""
from __future__ import annotations

import os as _os
from typing import Callable, Mapping, Unpack

from . import _options, _sluice, losses
from ._errors import Error
from ._names import named
from ._options import Adapter
from ._session import Queued, Session
from ._sluice import Adoption, Dataset, ExpertLoad, LayerLoad, Machine, Model, Plan, Sample, Step, parse_bytes
from ._tables import Records, compare, estimate, sweep
from ._trainer import Run, Trainer
from ._views import Lane, Memory

__all__ = ["Adapter", "Dataset", "Error", "ExpertLoad", "Lane", "LayerLoad", "Machine", "Memory", "Model", "Plan", "Queued", "Records", "Run", "Sample",
           "Session", "Step", "Trainer", "compare", "diff", "estimate", "losses", "parse_bytes", "plan", "sweep"]
__version__: str = _sluice.version()


@named
@_options.documented(_options.STEP)
def plan(model: Model | str, machine: Machine | str | None = None, *, device: int | str | None = None, host: int | str | None = None,
         seq_len: int = 1024, tokens_per_step: int = 16384, adapter: Adapter | None = None, hyperparameters: Mapping[str, float] | None = None,
         packed: bool = False, weighted: bool = False, log_probabilities: bool = False, round_losses: bool = False, top_tokens: int = 0,
         evaluate: bool = True, sample_window: int = 0, sample_rows: int = 1, progress: Callable[[str, int, int], None] | None = None, **options: Unpack[_options.StepOptions]) -> Plan:
    """Searches for the fastest training step that stays under the caps.

    model             a Model, or the name of a preset
    machine           a Machine, the name of a preset, or a machine file; None: this machine
    device, host      most bytes that may be in use: 24 * 2**30, "24GiB"; None: what a preset's card has, and no cap elsewhere
    adapter           Adapter(rank=16): low-rank adapters are trained in place of the weights
    hyperparameters   of the optimizer, by name, as the keywords beta1 and so on
    packed            several documents side by side in a sequence
    weighted          batches have weights, or losses of one's own
    log_probabilities   steps tell those of their targets (Queued)
    round_losses      losses of one's own are called while a step runs (Session.forward_backward(loss_over="round"))
    top_tokens        other tokens beside each target, whose log-probabilities such losses see, too
    evaluate          Session.forward() and evaluate() will be called; losses of one's own call forward()
    sample_window     tokens that Session.sample() looks back at most; 0: it is not called
    sample_rows       texts that Session.sample() makes at once, each with a cache of sample_window tokens
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
    if not isinstance(adapter, Adapter | None):
        raise TypeError(f"adapter is {type(adapter).__name__}; allowed are sluice.Adapter, and None")
    settings = _options.settings(_options.STEP, {"seq_len": seq_len, "tokens_per_step": tokens_per_step, **options}, "plan")
    return _sluice.plan(model, machine, *caps, settings=settings + (adapter.settings if adapter else []), hyperparameters=dict(hyperparameters or {}),
                        packed=packed, weighted=weighted, log_probabilities=log_probabilities, round_losses=round_losses,
                        top_tokens=top_tokens, evaluate=evaluate, sample_window=sample_window, sample_rows=sample_rows, progress=progress)


@named
def diff(before: Plan | str | _os.PathLike[str], after: Plan | str | _os.PathLike[str]) -> str:
    """What changed between two plans, in words. A plan that is saved is named by its plan.json."""
    def text(of: Plan | str | _os.PathLike[str]) -> str:
        if isinstance(of, Plan):
            return of.json()
        with open(_os.fspath(of), encoding="utf-8") as file:  # a number would be an open file, which this would close
            return file.read()

    return _sluice.diff(text(before), text(after))


# Calls of the library refuse an argument with all signatures that there are, and name none.
for _owner in (Dataset, Machine, Model, Plan):
    for _name, _call in list(vars(_owner).items()):
        if not _name.startswith("_") and hasattr(_call, "__nb_signature__"):
            setattr(_owner, _name, staticmethod(named(_call)) if "(self" not in _call.__nb_signature__[0][0] else named(_call))
