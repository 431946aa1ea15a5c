# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Literal, Sequence

import numpy as np
import numpy.typing as npt

from . import _sluice, losses
from ._arrays import Array, floats_of, ids_of
from ._names import named

Path = str | os.PathLike[str]


class Queued:
    """Rows that wait for an optimizer step, and what it will find of them.

    tokens   how many there are
    loss     what the callable said of them, over all rounds; None: there was none, or it has not been called
    """

    def __init__(self, waiting: _sluice.Queued, loss: float | None = None):
        self._waiting = waiting
        self.loss = loss

    @property
    def tokens(self) -> int:
        return self._waiting.tokens

    def log_probabilities(self) -> npt.NDArray[np.float32]:
        """log p of each target before the update, 0 where none counts. After optim_step(); of plans with log_probabilities or round_losses."""
        return self._waiting.log_probabilities()


class Session:
    """A model in memory: trained, evaluated, asked, saved. Under the plan's caps until close(), or the end of `with`.

    A step is any number of forward_backward(), then one optim_step(). Rows wait on the host until then, and all of them run as the
    one step that was planned: results do not depend on how they are split into calls.

    Batches are whole sequences one after another, of any shape: token ids, and the target that each should predict (-1: does not
    count). Positions begin at 0 with each document; None: with each sequence. A session is for one thread at a time.
    """

    @named
    def __init__(self, plan: _sluice.Plan):
        self._of = _sluice.Session(plan)
        self._seq_len = plan.seq_len

    @named
    def forward(self, tokens: Array, targets: Array, *, positions: Array | None = None) -> npt.NDArray[np.float32]:
        """log p of each target, in the shape of `tokens`; 0 where none counts."""
        return self._of.forward(ids_of(tokens, "tokens"), ids_of(targets, "targets"), ids_of(positions, "positions"))

    @named
    def evaluate(self, tokens: Array, targets: Array, *, positions: Array | None = None) -> float:
        """Mean of -log p over the targets."""
        return self._of.evaluate(ids_of(tokens, "tokens"), ids_of(targets, "targets"), ids_of(positions, "positions"))

    @named
    def forward_backward(self, tokens: Array, targets: Array, *, weights: Array | None = None, loss: losses.Loss | None = None,
                         loss_over: Literal["call", "round"] = "call", seeds: Array | None = None,
                         positions: Array | None = None, top_tokens: Array | None = None) -> Queued:
        """Queues rows for the next optim_step().

        weights   how many times each target's -log p counts in the step's mean loss
        loss      a loss of one's own (see sluice.losses)
        loss_over   "call": it sees all rows of the call; it is called now, after a forward pass. "round": it is a sum over
                  sequences, and sees those that the step computes at once, with a third argument: the slice of the call's sequences
                  that they are. It is called by optim_step(), in the middle of the step; that costs little. What it raises comes
                  out of that, and no step was made
        seeds     what such a loss would return: its derivative with respect to each log-probability
        top_tokens   for a loss over rounds, other tokens in each target's place, as many as the plan's top_tokens; -1: none. Its
                  log-probabilities have a last dimension then: the target's, and those of the others

        At most one of weights, loss and seeds, and for them the plan is made with weighted=True; with round_losses=True for
        losses over rounds.
        """
        if loss_over not in ("call", "round"):
            raise ValueError(f"loss_over = {loss_over}: allowed are call, round")
        if sum(one is not None for one in (weights, loss, seeds)) > 1:
            raise ValueError("forward_backward: weights, loss and seeds exclude each other")
        ids, wanted, where = ids_of(tokens, "tokens"), ids_of(targets, "targets"), ids_of(positions, "positions")
        if top_tokens is not None and (loss is None or loss_over != "round"):
            raise ValueError("forward_backward: top_tokens go with a loss over rounds")
        if loss is not None and loss_over == "round":
            return self._ask_later(loss, ids, wanted, where, ids_of(top_tokens, "top_tokens"))
        value = None
        if loss is not None:
            value, seeds = losses.differentiate(loss, self._of.forward(ids, wanted, where), wanted.reshape(ids.shape))
        waiting = self._of.forward_backward(ids, wanted, where, floats_of(weights, "weights"), floats_of(seeds, "seeds"), None, None)
        return Queued(waiting, value)

    def _ask_later(self, loss: losses.Loss, ids: Any, targets: Any, positions: Any, top_tokens: Any) -> Queued:
        said: dict[int, float] = {}
        queued: list[Queued] = []

        def ask(log_probabilities: npt.NDArray[np.float32], targets: npt.NDArray[np.int32],
                first: int) -> npt.NDArray[np.float32]:
            begin = first // self._seq_len
            shape = (-1, self._seq_len)
            rows = slice(begin, begin + len(targets) // self._seq_len)
            said[first], seeds = losses.differentiate(loss, log_probabilities.reshape(*shape, *log_probabilities.shape[1:]),
                                                      targets.reshape(shape), rows)
            queued[0].loss = sum(said.values())
            return np.ascontiguousarray(seeds.reshape(-1), np.float32)

        queued.append(Queued(self._of.forward_backward(ids, targets, positions, None, None, top_tokens, ask)))
        return queued[0]

    def optim_step(self, learning_rate: float, **hyperparameters: float) -> _sluice.Step:
        """One step of the optimizer on what waits.

        Hyperparameters of the optimizer (beta1, beta2, eps and weight_decay of adamw), and clip_norm, that are named hold for
        this step; the others are those of the plan.
        """
        return self._of.optim_step(learning_rate, hyperparameters)

    def adopt(self, plan: _sluice.Plan) -> _sluice.Adoption:
        """Goes on under another plan of the same model and options for this machine: between two steps, with what waits.

        No bit of any result depends on it. What outlives a step moves to where that plan has it, within the memory that the session
        holds, which grows first where the plan needs more. The caps stay those that the session was opened with.
        """
        return self._of.adopt(plan)

    def replan(self, steps: int) -> None:
        """Asks once for a plan by what ops and links take now.

        The next step is timed, and the search goes on beside those behind it, on cores that are idle. The optim_step() after its end
        goes on under the plan if the rest of `steps` gains more than moving takes. No bit of any result depends on it.
        """
        self._of.replan(steps)

    def discard(self) -> None:
        """As if the rows that wait had not come."""
        self._of.discard()

    @property
    def queued_tokens(self) -> int:
        """Of the rows that wait."""
        return self._of.queued_tokens

    @named
    def sample(self, prompt: Sequence[int] | Sequence[Sequence[int]], n: int | None = None, *, tokens: int = 64, max_tokens: int | None = None,
               temperature: float = 0.0, seed: int = 1, stop_tokens: Sequence[int] = (), stop: Sequence[str] = (), text: bool = False) -> Any:
        """Continues a prompt of one or more token ids, with the weights as they are. The plan has a sample_window. Ctrl-C ends it.

        With n, `prompt` is a list of prompts, and a list of n samples of each comes back; the plan's sample_rows of them are made at once.
        A sample depends on its prompt, the prompt's number and its own, and the seed: not on rows and caps. It has tokens, logprobs (of the
        model, at temperature 1), drawn_logprobs (of what it was drawn from), finish and, with text=True, text.

        tokens, max_tokens   of each, at most: a sample that is cut there has finish "length", others "stop"
        temperature          0: the most likely token
        stop_tokens, stop    with n: tokens, which are part of the sample, and strings, which are not part of its text, that end it
        """
        most = tokens if max_tokens is None else max_tokens
        if n is None:
            if len(stop_tokens) > 0 or len(stop) > 0 or text:
                raise TypeError("stop_tokens, stop and text are of samples of several prompts: say n, too")
            return self._of.sample(ids_of(prompt, "prompt").reshape(-1).tolist(), most, temperature, seed)
        prompts = [ids_of(one, f"prompts[{i}]").reshape(-1).tolist() for i, one in enumerate(prompt)]
        ends = ids_of(stop_tokens, "stop_tokens").reshape(-1).tolist()
        return self._of.sample_many(prompts, n, most, temperature, seed, ends, [stop] if isinstance(stop, str) else list(stop), text)

    def save_state(self, directory: Path) -> None:
        """A folder with weights (transformers loads it), optimizer state and what the run is. It appears whole."""
        self._of.save_state(os.fspath(directory))

    def load_state(self, directory: Path) -> None:
        """Goes on from what save_state() wrote, with the same bits. What waits is discarded."""
        self._of.load_state(os.fspath(directory))

    def save_weights(self, directory: Path) -> None:
        """The same folder without optimizer state."""
        self._of.save_weights(os.fspath(directory))

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the model's tensors, by name."""
        return {name: tuple(shape) for name, shape in self._of.weights.items()}

    def weight(self, name: str) -> npt.NDArray[np.float32]:
        """A copy of a tensor, in f32 whatever it is held in."""
        return self._of.weight(name)

    def set_weight(self, name: str, values: Array) -> None:
        """Replaces a tensor; the optimizer's state stays."""
        self._of.set_weight(name, floats_of(values, "values"))

    def gradient(self, name: str) -> npt.NDArray[np.float32]:
        """A copy of the gradient of a tensor: of what waits, as optim_step() finds it before it clips.

        The first call runs the passes of what waits; nothing more can wait then until optim_step() or discard(). The plan is made
        with deferred_updates=True: an update within the step leaves no gradients.
        """
        return self._of.gradient(name)

    def set_gradient(self, name: str, values: Array) -> None:
        """Replaces a gradient before optim_step()."""
        self._of.set_gradient(name, floats_of(values, "values"))

    def state(self, name: str) -> dict[str, npt.NDArray[np.float32]]:
        """Copies of what the optimizer keeps of a tensor: "m" and "v" of adamw; "master" where there are master weights, also those of 24 bits."""
        return {slot: self._of.state(slot, name) for slot in self._of.state_slots_of(name)}

    def set_state(self, name: str, slot: str, values: Array) -> None:
        """Replaces a part of what the optimizer keeps of a tensor; master weights are set with the weight."""
        self._of.set_state(slot, name, floats_of(values, "values"))

    @property
    def steps_done(self) -> int:
        return self._of.steps_done

    def close(self) -> None:
        self._of.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
