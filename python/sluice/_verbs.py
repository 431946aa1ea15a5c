# SPDX-License-Identifier: Apache-2.0
"""What the verbs of sluice.serve do: models, of which one is in memory at a time, and folders of those that were saved."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import time
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from . import _options, _sluice
from ._session import Session

Floats = npt.NDArray[np.float32]


class Refused(Exception):
    """A client asked for what is not followed, or what cannot be."""


class Datum(NamedTuple):
    tokens: npt.NDArray[np.int32]
    inputs: Mapping[str, npt.NDArray[Any]]


class Answer(NamedTuple):
    log_probabilities: list[Floats]
    loss: float


# The inputs of each loss beside target_tokens, and its settings with their values where a client names none; None: it has to.
_POLICY = ("logprobs", "advantages")
LOSSES: dict[str, tuple[tuple[str, ...], dict[str, float | None]]] = {
    "cross_entropy": (("weights",), {}), "importance_sampling": (_POLICY, {}),
    "ppo": (_POLICY, {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
    "cispo": (_POLICY, {"clip_low_threshold": None, "clip_high_threshold": None}), "dro": (_POLICY, {"beta": None})}


def check_loss(name: str, config: Mapping[str, Any], data: Sequence[Datum]) -> dict[str, float]:
    """Its settings."""
    if name not in LOSSES:
        raise Refused(f"loss_fn = {name}: allowed are {', '.join(LOSSES)}; losses of your own run in the client (forward_backward_custom)")
    inputs, settings = LOSSES[name]
    values: dict[str, float] = {}
    for key, usual in settings.items():
        value = config.get(key, usual)
        if value is None:
            raise Refused(f"loss_fn_config.{key}: {name} needs it")
        if isinstance(value, str):
            raise Refused(f"loss_fn_config.{key} = {value}: allowed are numbers")
        values[key] = float(value)
    for key in config:
        if key not in settings:
            raise Refused(f"loss_fn_config.{key}: {name} has {', '.join(settings) or 'no settings'}")
    for number, datum in enumerate(data):
        wanted = ("target_tokens", *inputs)
        for key, values_of in datum.inputs.items():
            if key not in wanted:
                raise Refused(f"data[{number}].loss_fn_inputs.{key}: {name} has {', '.join(wanted)}")
            if values_of.shape != datum.tokens.shape:
                raise Refused(f"data[{number}].loss_fn_inputs.{key}: its shape is {list(values_of.shape)}, and model_input has "
                              f"{len(datum.tokens)} tokens; several targets of a token are not followed")
        for key in wanted:
            if key not in datum.inputs and key != "weights":
                raise Refused(f"data[{number}].loss_fn_inputs.{key}: {name} needs it")
    return values


def judge(name: str, settings: Mapping[str, float], log_probabilities: Floats, datum: Datum) -> tuple[float, Floats]:
    """A loss, which is a sum over tokens, and its derivative with respect to each log-probability."""
    now = log_probabilities.astype(np.float64)
    if name == "cross_entropy":
        weights = np.asarray(datum.inputs.get("weights", np.ones_like(now)), np.float64)
        return -float((weights * now).sum()), (-weights).astype(np.float32)
    before, advantages = (np.asarray(datum.inputs[key], np.float64) for key in _POLICY)
    if name == "dro":
        apart = now - before
        value = -(now * advantages - settings["beta"] / 2 * apart**2)
        slope = -(advantages - settings["beta"] * apart)
    else:
        # Where nothing is learnt, such as in a prompt, the two are of different tokens.
        ratio = np.exp(np.where(advantages == 0, 0, now - before))
        value = slope = -ratio * advantages
        if name != "importance_sampling":
            clipped = -np.clip(ratio, settings["clip_low_threshold"], settings["clip_high_threshold"]) * advantages
            if name == "ppo":
                slope = np.where(value >= clipped, slope, 0)
                value = np.maximum(value, clipped)
            else:
                value, slope = clipped * now, clipped
    return float(value.sum()), slope.astype(np.float32)


def rows_of(lengths: Sequence[int], seq_len: int) -> list[list[int]]:
    """Documents side by side: the numbers of those of each sequence. The first sequence with room takes one."""
    rows: list[list[int]] = []
    room: list[int] = []
    for number, length in enumerate(lengths):
        place = next((i for i, free in enumerate(room) if free >= length), len(rows))
        if place == len(rows):
            rows.append([])
            room.append(seq_len)
        rows[place].append(number)
        room[place] -= length
    return rows


class Batch:
    """Documents in whole sequences: each begins at position 0, and what is behind the last is another."""

    def __init__(self, data: Sequence[Datum], seq_len: int):
        rows = rows_of([len(datum.tokens) for datum in data], seq_len)
        shape = (len(rows), seq_len)
        self.tokens, self.targets, self.positions = np.zeros(shape, np.int32), np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
        self.places: list[tuple[int, slice]] = [(0, slice(0))] * len(data)
        for row, numbers in enumerate(rows):
            begin = 0
            for number in numbers:
                end = begin + len(data[number].tokens)
                self.tokens[row, begin:end] = data[number].tokens
                self.targets[row, begin:end] = data[number].inputs["target_tokens"]
                self.positions[row, begin:end] = np.arange(end - begin)
                self.places[number] = (row, slice(begin, end))
                begin = end
            self.positions[row, begin:] = np.arange(seq_len - begin)
        self.seeds = np.zeros(shape, np.float32)


@dataclasses.dataclass
class Weights:
    """A model, as a Session of it can be opened.

    name      what messages call it
    keys      of the configuration, and their values; without adapter.rank all weights are trained
    source    the folder that its weights come from; None: that of the base
    start     the folder of a state that its adapters come from, without the optimizer's
    state     the folder of its last state
    steps     since its weights were those of the base
    """

    name: str
    keys: dict[str, Any]
    source: pathlib.Path | None = None
    start: pathlib.Path | None = None
    state: pathlib.Path | None = None
    steps: int = 0
    trained: bool = False                   # here
    saved: int = 0                          # the steps of the last checkpoint
    lost: str = ""                          # why it is no more
    waiting: list[Batch] = dataclasses.field(default_factory=list)
    broken: str = ""                        # why the step that its rows are for cannot be made


@dataclasses.dataclass
class Base:
    """What all models begin from, and how they are planned."""

    name: str
    folder: pathlib.Path | None             # None: a preset of random weights
    preset: str
    machine: dict[str, Any]
    device: int | None
    host: int | None
    settings: dict[str, str]                # keys of a step, and their values as --set takes them
    sample_rows: int

    def model(self) -> _sluice.Model:
        return _sluice.Model.preset(self.preset) if self.folder is None else _sluice.Model.from_pretrained(self.folder)

    @property
    def seq_len(self) -> int:
        return _whole(self.settings["train.seq_len"])

    def ends(self) -> list[int]:
        """The tokens that end a text where a client names none."""
        for name in ("generation_config.json", "config.json"):
            file = self.folder / name if self.folder else None
            if file and file.exists():
                ends = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
                if ends is not None:
                    return [ends] if isinstance(ends, int) else list(ends)
        return []


class Memory:
    """The one session that is in memory. Another model's call writes its state to a folder and takes its place."""

    def __init__(self, base: Base, scratch: pathlib.Path):
        self.base, self._scratch = base, scratch
        self._machine: _sluice.Machine | None = None
        self._plans: dict[str, _sluice.Plan] = {}
        self._of: Weights | None = None
        self._session: Session | None = None
        self._stored = 0
        self.seq_len, self.tokens_per_step = 0, 0

    def _plan(self, weights: Weights) -> _sluice.Plan:
        key = json.dumps([str(weights.source), weights.keys], sort_keys=True)
        if key not in self._plans:
            if self._machine is None:
                self._machine = _sluice.Machine.here(**self.base.machine, cache=self._scratch.parent / "cache")
            model = self.base.model() if weights.source is None else _sluice.Model.from_pretrained(weights.source)
            keys = {**{name: _options.toml(value) for name, value in weights.keys.items()}, **self.base.settings}
            if "adapter.rank" not in keys:
                keys = {name: value for name, value in keys.items() if not name.startswith("adapter.")}
            self._plans[key] = _sluice.plan(model, self._machine, self.base.device, self.base.host,
                                            settings=[f"{name}={value}" for name, value in keys.items()], hyperparameters={}, packed=True,
                                            weighted=True, log_probabilities=False, round_losses=False, top_tokens=0, evaluate=True,
                                            sample_window=self.base.seq_len, sample_rows=self.base.sample_rows, progress=None)
        return self._plans[key]

    def session(self, weights: Weights) -> Session:
        if weights.lost:
            raise Refused(f"{weights.name}: {weights.lost}; go on from a checkpoint of it")
        if self._of is weights and self._session is not None:
            return self._session
        self.leave()
        plan = self._plan(weights)
        adapters = {}
        if weights.state is None and weights.start is not None:
            with Session(plan) as session:
                session.load_state(weights.start)
                adapters = {name: session.weight(name) for name in session.weights if session.state(name)}
        session = Session(plan)
        try:
            if weights.state is not None:
                session.load_state(weights.state)
            for name, values in adapters.items():
                session.set_weight(name, values)
        except BaseException:
            session.close()
            raise
        self._of, self._session = weights, session
        self.seq_len, self.tokens_per_step = plan.seq_len, plan.tokens_per_step
        return session

    def leave(self) -> None:
        """Closes the session; what was trained in it lies in a folder from then on."""
        weights, session = self._of, self._session
        if weights is None or session is None:
            return
        try:
            if weights.trained and weights.state is None:
                self._scratch.mkdir(parents=True, exist_ok=True)
                self._stored += 1
                state = self._scratch / str(self._stored)
                session.save_state(state)
                weights.state = state
        except BaseException as error:
            weights.lost = f"its state could not be written when another model took its place: {error}"
            raise
        finally:
            self._of = self._session = None
            session.close()

    def stepped(self, weights: Weights) -> None:
        """Its last state is that of the session."""
        self._drop(weights)
        weights.steps += 1
        weights.trained = True

    def forget(self, weights: Weights) -> None:
        weights.waiting.clear()
        if self._of is weights and self._session is not None:
            self._of, session, self._session = None, self._session, None
            session.close()
        self._drop(weights)

    def _drop(self, weights: Weights) -> None:
        if weights.state is not None and weights.state.parent == self._scratch:
            shutil.rmtree(weights.state, ignore_errors=True)
        weights.state = None

    # The verbs.

    def forward_backward(self, weights: Weights, data: Sequence[Datum], name: str, config: Mapping[str, Any], forward_only: bool) -> Answer:
        try:
            settings = check_loss(name, config, data)
            session = self.session(weights)
            for number, datum in enumerate(data):
                if len(datum.tokens) > self.seq_len:
                    raise Refused(f"data[{number}]: it has {len(datum.tokens)} tokens, and train.seq_len = {self.seq_len} holds no more")
                if not len(datum.tokens):
                    raise Refused(f"data[{number}]: it has no tokens")
            batch = Batch(data, self.seq_len)
            rows = sum(len(waiting.tokens) for waiting in weights.waiting) + len(batch.tokens)
            if not forward_only and rows * self.seq_len > self.tokens_per_step:
                raise Refused(f"forward_backward: the step's data take {rows} sequences of {self.seq_len} tokens; train.tokens_per_step = "
                              f"{self.tokens_per_step} has room for {self.tokens_per_step // self.seq_len}; start the server with more")
            found = session.forward(batch.tokens, batch.targets, positions=batch.positions)
            each = [found[row, where] for row, where in batch.places]
            total = 0.0
            for now, datum, (row, where) in zip(each, data, batch.places, strict=True):
                value, batch.seeds[row, where] = judge(name, settings, now, datum)
                total += value
            if not np.isfinite(total) or not np.isfinite(batch.seeds).all():
                raise Refused(f"forward_backward: {name} is not finite")
        except Exception as error:
            if not forward_only:
                weights.broken = weights.broken or str(error)
            raise
        if not forward_only:
            weights.waiting.append(batch)
        return Answer(each, total)

    def optim_step(self, weights: Weights, learning_rate: float, hyperparameters: Mapping[str, float]) -> dict[str, float]:
        waiting, broken = list(weights.waiting), weights.broken
        weights.waiting.clear()
        weights.broken = ""
        if broken:
            raise Refused(f"optim_step: no step was made, as a forward_backward before it failed: {broken}")
        if not waiting:
            raise Refused("optim_step: no forward_backward came before it")
        session = self.session(weights)
        for batch in waiting:
            session.forward_backward(batch.tokens, batch.targets, positions=batch.positions, seeds=batch.seeds)
        try:
            step = session.optim_step(learning_rate, **hyperparameters)
        except BaseException as error:
            weights.lost = f"a step of it failed: {error}"
            self.forget(weights)
            raise
        self.stepped(weights)
        if step.skipped:
            raise Refused(f"optim_step: no update was made: {step.skipped}")
        return {"gradient_norm": step.gradient_norm, "learning_rate": learning_rate, "seconds": step.seconds}

    def sample(self, weights: Weights, prompts: Sequence[Sequence[int]], samples: int, options: Mapping[str, Any]) -> list[list[_sluice.Sample]]:
        found: list[list[_sluice.Sample]] = self.session(weights).sample(prompts, samples, **options)
        return found

    def prompt_log_probabilities(self, weights: Weights, prompt: Sequence[int], last: int | None) -> Floats:
        """Of each token of a prompt; the first has none, nor have those before the last `last`."""
        session = self.session(weights)
        out = np.full(len(prompt), np.nan, np.float32)
        if len(prompt) > 1:
            tokens = np.asarray(prompt, np.int32)
            datum = Datum(tokens[:-1], {"target_tokens": tokens[1:]})
            batch = Batch([datum], self.seq_len)
            out[1:] = session.forward(batch.tokens, batch.targets, positions=batch.positions)[0, :len(prompt) - 1]
        if last is not None:
            out[:-last] = np.nan
        return out


def _whole(text: str) -> int:
    found = re.fullmatch(r"(\d+)(k?)", text.strip().strip('"').replace("_", ""))
    if found is None:
        raise Refused(f"train.seq_len = {text}: allowed are whole numbers; 8k is 8192")
    return int(found[1]) * (1024 if found[2] else 1)


class Stored(NamedTuple):
    folder: pathlib.Path
    about: dict[str, Any]


class Store:
    """Folders of checkpoints, by the names that a client has for them, each with a file that says what it is."""

    _PATH = re.compile(r"tinker://([A-Za-z0-9:_-]+)/(weights|sampler_weights)/([A-Za-z0-9_][A-Za-z0-9._-]*)")

    def __init__(self, directory: pathlib.Path):
        self.directory = directory

    def _folder(self, path: str) -> pathlib.Path:
        found = self._PATH.fullmatch(path)
        if found is None:
            raise Refused(f"path = {path}: allowed are tinker://MODEL/weights/NAME and tinker://MODEL/sampler_weights/NAME; "
                          "a name has letters, digits, '.', '_' and '-'")
        return self.directory.joinpath(*found.groups())

    def find(self, path: str) -> Stored:
        self.sweep()
        folder = self._folder(path)
        file = folder.with_name(folder.name + ".json")
        if not file.exists() or not folder.exists():
            raise Refused(f"path = {path}: there is no such checkpoint in {self.directory}")
        return Stored(folder, json.loads(file.read_text(encoding="utf-8")))

    def save(self, path: str, about: Mapping[str, Any], overwrite: bool, write: Any) -> pathlib.Path:
        self.sweep()
        folder = self._folder(path)
        file = folder.with_name(folder.name + ".json")
        if folder.exists() and not overwrite:
            raise Refused(f"path = {path}: there is a checkpoint of that name; overwrite=True replaces it")
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        write(fresh)
        file.write_text(json.dumps({**about, "time": time.time()}), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
        return folder

    def sweep(self) -> None:
        """Removes what its client gave a time to live that is over."""
        for file in self.directory.glob("*/*weights/*.json"):
            expires = json.loads(file.read_text(encoding="utf-8")).get("expires")
            if expires is not None and expires < time.time():
                shutil.rmtree(file.with_suffix(""), ignore_errors=True)
                file.unlink()
