# SPDX-License-Identifier: Apache-2.0
"""The verbs of Tinker's client over loopback: python -m sluice.serve --verbs CONFIG

A client's requests wait in one queue and are done one after another, on the main thread. docs/verbs.md says what is followed.
"""
from __future__ import annotations

import argparse
import collections
import dataclasses
import hmac
import http.server
import json
import math
import os
import pathlib
import re
import secrets
import shutil
import signal
import sys
import threading
import time
import tomllib
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from . import _options, _sluice
from ._errors import Error
from ._trainer import _flat
from ._verbs import LOSSES, Answer, Base, Datum, Memory, Refused, Store, Weights
from ._wire import Field, Message, read, table, write

_TENSOR = Message("Tensor", {
    1: Field("dense", "bytes"),
    2: Field("sparse_csr", Message("SparseCsr", {1: Field("values", "bytes"), 2: Field("crow_indices", "bytes"), 3: Field("col_indices", "bytes")})),
    3: Field("dtype", "whole"), 4: Field("shape", "whole", repeated=True)})
_CHUNK = Message("Chunk", {1: Field("encoded_text", Message("EncodedTextChunk", {1: Field("tokens", "bytes")})),
                           2: Field("image", "bytes"), 3: Field("dmel", "bytes")})
_DATUM = Message("Datum", {
    1: Field("model_input", _CHUNK, repeated=True), 2: Field("loss_fn_inputs", table("loss_fn_inputs", _TENSOR), repeated=True),
    3: Field("model_input_spans", "bytes", repeated=True), 4: Field("loss_fn_input_spans", "bytes", repeated=True)})
_FORWARD_BACKWARD = Message("ForwardBackwardRequest", {
    1: Field("model_id", "text"), 2: Field("seq_id", "whole"), 3: Field("data", _DATUM, repeated=True), 4: Field("loss_fn", "text"),
    5: Field("loss_fn_config", table("loss_fn_config", "number"), repeated=True), 6: Field("forward_only", "flag"),
    7: Field("loss_fn_config_v2", table("loss_fn_config_v2", Message("LossConfigValue", {1: Field("number", "number"), 2: Field("text", "text")})),
             repeated=True)})
_ARRAYS = Message("ArrayRecord", {
    1: Field("type_tag", "text"),
    2: Field("fields", table("fields", Message("BatchedTensor", {
        1: Field("data", "bytes"), 2: Field("offsets", "bytes"), 3: Field("dtype", "whole")})), repeated=True),
    3: Field("num_datums", "whole")})
_OUTPUT = Message("ForwardBackwardOutput", {
    1: Field("loss_fn_output_type", "text"), 2: Field("loss_fn_outputs", _ARRAYS, repeated=True),
    3: Field("metrics", table("metrics", "number"), repeated=True)})
_SAMPLES = Message("SampleResponse", {
    1: Field("sequences", Message("SampledSequence", {1: Field("stop_reason", "whole"), 2: Field("tokens", "bytes"), 3: Field("logprobs", "bytes")}),
             repeated=True),
    2: Field("prompt_logprobs", "bytes")})
_FLOAT32, _INT64 = 1, 2
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"

# Said at the start: a client may ask for these, and does not get them.
REFUSED = (
    f"losses: all but {', '.join(LOSSES)}; cispo and dro without their settings",
    "several targets of a token, images and sound, provenance of tokens",
    "sampling: top_k, top_p, top-k and target log-probabilities, prompt_alt_tokens_k, record_stability_info",
    "optimizers: all but AdamW",
    "lora_config.train_unembed: adapters have no head (--allow train_unembed passes over it)",
    "a sampler of a model that has made a step since; one of a saved checkpoint goes on. kind = inflight",
    "save_weights_external, weights_access_token, copies, lists, links and deletion of checkpoints, projects, billing",
)
ALLOWED = ("train_unembed",)
_IDLE = 120.0      # seconds without a heartbeat after which a client is gone
_GATHER = 0.05     # seconds in which requests for samples come together, which share passes
_POLL = 20.0       # seconds that a client waits for an answer before it asks again
_KEPT = 256        # answers that were fetched, and may be asked for again
_MOST = 64 << 20   # bytes of a request

_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"), "whole": ((int,), "a whole number"), "number": ((int, float), "a number"), "flag": ((bool,), "true or false"),
    "object": ((dict,), "an object"), "list": ((list,), "a list")}


def take(given: Any, where: str, **wanted: str) -> dict[str, Any]:
    """The fields of an object, of which each is wanted as what _TYPES has; with a question mark it may be missing, or null."""
    if not isinstance(given, dict):
        raise Refused(f"{where}: an object is needed")
    for name in given:
        if name not in wanted:
            raise Refused(f"{where}.{name}: it is not known; allowed are {', '.join(wanted)}")
    out = {}
    for name, kind in wanted.items():
        value, (types, words) = given.get(name), _TYPES[kind.rstrip("?")]
        if value is None:
            if not kind.endswith("?"):
                raise Refused(f"{where}.{name}: it is needed")
        elif not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise Refused(f"{where}.{name} = {str(value)[:80]}: {words} is needed")
        out[name] = value
    return out


@dataclasses.dataclass
class Promise:
    """The answer to a request, once it is there."""

    id: str
    session: str
    done: threading.Event = dataclasses.field(default_factory=threading.Event)
    body: bytes = b""
    kind: str = _JSON
    dropped: bool = False

    def keep(self, body: bytes | Mapping[str, Any], kind: str = _JSON) -> None:
        self.body, self.kind = body if isinstance(body, bytes) else json.dumps(body).encode(), kind
        self.done.set()


class Ask(NamedTuple):
    """Samples of a prompt. Those that are alike are made at once."""

    sampler: str
    prompt: list[int]
    samples: int
    options: dict[str, Any]
    prompt_logprobs: bool
    last: int | None


class Job(NamedTuple):
    promise: Promise
    work: Callable[[], None] | None
    ask: Ask | None = None


@dataclasses.dataclass
class Sampler:
    """weights   the model that it is of, which may be gone, or have made more steps than `steps` by now
    path      the checkpoint that has its weights then; "": the base; None: there is none"""

    session: str
    weights: Weights | None
    steps: int
    path: str | None


@dataclasses.dataclass
class Client:
    seen: float
    models: dict[str, Weights] = dataclasses.field(default_factory=dict)
    asked: dict[str, int] = dataclasses.field(default_factory=dict)     # the last number of a request, by model or sampler


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass    # a client that hung up


class Server:
    """Answers clients on a port of 127.0.0.1, from start() on; run() does what they ask for, until it is interrupted."""

    def __init__(self, base: Base, directory: pathlib.Path, *, port: int = 0, key: str = "", allow: Sequence[str] = (), idle: float = _IDLE):
        for name in allow:
            if name not in ALLOWED:
                raise Refused(f"--allow {name}: allowed are {', '.join(ALLOWED)}")
        self.base, self.allow, self.key = base, tuple(allow), key or f"tml-{secrets.token_urlsafe(24)}"
        self.store = Store(directory)
        self._scratch = directory / f".memory.{os.getpid()}"
        for left in directory.glob(".memory.*"):    # of servers that were killed
            if not pathlib.Path("/proc", left.suffix[1:]).exists():
                shutil.rmtree(left, ignore_errors=True)
        self.memory = Memory(base, self._scratch)
        self._idle = idle
        self._lock = threading.Condition()
        self._queue: collections.deque[Job] = collections.deque()
        self._promises: dict[str, Promise] = {}
        self._fetched: collections.deque[str] = collections.deque()
        self._clients: dict[str, Client] = {}
        self._samplers: dict[str, Sampler] = {}
        self._checkpoints: dict[str, Weights] = {}    # that samplers have
        self._seed = 0
        self.http = _Http(("127.0.0.1", port), self._handler())
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"

        self._stopped = False

    # The queue.

    def stop(self) -> None:
        """run() returns when what it does now is done."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()

    def start(self) -> None:
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def run(self) -> None:
        try:
            while not self._stopped:
                self._sweep()
                jobs = self._next()
                if jobs and jobs[0].ask is not None:
                    self._sample(jobs)
                elif jobs:
                    self._do(jobs[0])
        finally:
            self.http.shutdown()
            self.http.server_close()
            for promise in list(self._promises.values()):
                if not promise.done.is_set():
                    promise.keep({"error": "the server was stopped", "category": "server"})
            for client in list(self._clients.values()):
                for model in client.models.values():
                    if model.steps > model.saved:
                        print(f"sluice serve: {model.name}: its last {model.steps - model.saved} steps are in no checkpoint", file=sys.stderr)
                    self.memory.forget(model)
            self.memory.leave()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _next(self) -> list[Job]:
        with self._lock:
            if not self._queue and not self._stopped:
                self._lock.wait(min(1.0, self._idle / 4))
            if not self._queue:
                return []
            if self._queue[0].ask is not None and self._queue[0].ask.options.get("seed") is None:
                self._lock.wait_for(lambda: False, _GATHER)
            jobs = [self._queue.popleft()] if self._queue else []
            first = jobs[0].ask if jobs else None
            while first is not None and first.options.get("seed") is None and self._queue:
                ask = self._queue[0].ask
                if ask is None or (ask.sampler, ask.samples, ask.options) != (first.sampler, first.samples, first.options):
                    break
                jobs.append(self._queue.popleft())
        return [job for job in jobs if not job.promise.dropped]

    def _do(self, job: Job) -> None:
        try:
            if job.work is not None:
                job.work()
        except Exception as error:
            self._fail(job.promise, error)
        self._heard(job.promise.session)

    def _heard(self, session: str) -> None:
        if (client := self._clients.get(session)) is not None:
            client.seen = time.monotonic()

    def _fail(self, promise: Promise, error: Exception) -> None:
        user = isinstance(error, (Refused, Error, ValueError, TypeError))
        promise.keep({"error": str(error) if user else f"{type(error).__name__}: {error}", "category": "user" if user else "server"})

    def _promise(self, session: str, name: str, work: Callable[[Promise], None] | None, ask: Ask | None = None) -> dict[str, Any]:
        """A request that comes again, as after a connection that broke, has the promise that it had."""
        with self._lock:
            if name not in self._promises:
                promise = self._promises[name] = Promise(name, session)
                self._queue.append(Job(promise, None if work is None else lambda: work(promise), ask))
                self._lock.notify_all()
        return {"request_id": name}

    def _sweep(self) -> None:
        """Forgets clients that are gone."""
        with self._lock:
            gone = [name for name, client in self._clients.items() if client.seen + self._idle < time.monotonic()]
        for name in gone:
            self._end(name)

    def _end(self, session: str) -> None:
        with self._lock:
            client = self._clients.pop(session, None)
            self._queue = collections.deque(job for job in self._queue if job.promise.session != session)
            self._promises = {name: promise for name, promise in self._promises.items() if promise.session != session}
            self._samplers = {name: sampler for name, sampler in self._samplers.items() if sampler.session != session}
        for model in client.models.values() if client else ():
            self.memory.forget(model)

    def _client(self, session: str) -> Client:
        client = self._clients.get(session)
        if client is None:
            raise Refused(f"session_id = {session}: there is no such session; one without a heartbeat for {self._idle:g} s is over")
        client.seen = time.monotonic()
        return client

    def _model(self, name: str) -> tuple[str, Weights]:
        session = name.partition(":")[0]
        model = self._client(session).models.get(name)
        if model is None:
            raise Refused(f"model_id = {name}: there is no such model")
        return session, model

    # Requests. Each returns its answer at once, or a promise.

    def client_config(self, body: Any) -> dict[str, Any]:
        return {"pjwt_auth_enabled": False, "parallel_fwdbwd_chunks": False, "proto_compress_fwdbwd": False, "use_pyqwest_transport": False,
                "sample_use_retrieve_futures": False, "custom_loss_server_side": False, "sample_join_sampling_session": False,
                "sample_enable_stuck_detection": False}

    def client_dynamic_config(self, body: Any) -> dict[str, Any]:
        return {"sample_cancel_enabled": True}

    def healthz(self, body: Any) -> dict[str, Any]:
        return {"status": "ok"}

    def get_server_capabilities(self, body: Any) -> dict[str, Any]:
        return {"supported_models": [{"model_name": self.base.name, "max_context_length": self.base.seq_len, "trainable": True, "sampleable": True}]}

    def telemetry(self, body: Any) -> dict[str, Any]:
        return {"status": "accepted"}

    def create_session(self, body: Any) -> dict[str, Any]:
        given = take(body, "create_session", tags="list", user_metadata="object?", sdk_version="text", project_id="text?", display_name="text?", type="text?")
        if given["project_id"] is not None:
            raise Refused("create_session.project_id: there are no projects here")
        name = secrets.token_hex(8)
        with self._lock:
            self._clients[name] = Client(time.monotonic())
        warning = "; ".join(f"{name} is passed over" for name in self.allow)
        return {"type": "create_session", "session_id": name, "warning_message": warning or None}

    def session_heartbeat(self, body: Any) -> dict[str, Any]:
        given = take(body, "session_heartbeat", session_id="text", type="text?")
        self._client(given["session_id"])
        return {"type": "session_heartbeat"}

    def finish(self, session: str) -> dict[str, Any]:
        self._client(session)
        self._promise(session, f"{session}:finish", lambda _: self._end(session))
        return {}

    def _base_name(self, where: str, name: str | None) -> None:
        if name is not None and name != self.base.name:
            raise Refused(f"{where}.base_model = {name}: this server has {self.base.name}")

    def _optimizer(self, where: str, config: Mapping[str, Any] | None) -> None:
        if config is not None and config != {"type": "adamw"}:
            raise Refused(f"{where}.optimizer_config = {json.dumps(config)}: allowed is {{\"type\": \"adamw\"}}")

    def _adapter(self, config: Any) -> dict[str, Any]:
        """The keys that they are."""
        where = "create_model.lora_config"
        given = take(config, where, rank="whole", seed="whole?", train_unembed="flag?", train_mlp="flag?", train_attn="flag?")
        keys: dict[str, Any] = {} if given["seed"] is None else {"train.seed": given["seed"]}
        if given["rank"] == 0:
            return keys
        if given["train_unembed"] is not False and "train_unembed" not in self.allow:
            raise Refused(f"{where}.train_unembed = true: adapters have no head. Say train_unembed=False, or start the server with "
                          "--allow train_unembed, which passes over it")
        keys |= {"adapter.rank": given["rank"], "adapter.alpha": 32, "adapter.decay": True}
        parts = {"train_mlp": {"adapter.exclude": ["mlp"]}, "train_attn": {"adapter.targets": ["mlp"]}}
        left_out = [name for name in parts if given[name] is False]
        if len(left_out) == 2:
            raise Refused(f"{where}: train_mlp = false and train_attn = false leave nothing to train")
        for name in left_out:
            if any(key in self.base.settings for key in ("adapter.targets", "adapter.exclude")):
                raise Refused(f"{where}.{name} = false: the server says adapter.targets or adapter.exclude")
            keys |= parts[name]
        return keys

    def create_model(self, body: Any) -> dict[str, Any]:
        given = take(body, "create_model", session_id="text", model_seq_id="whole", base_model="text", user_metadata="object?", lora_config="object?",
                     optimizer_config="object?", type="text?")
        self._base_name("create_model", given["base_model"])
        self._optimizer("create_model", given["optimizer_config"])
        keys = {} if given["lora_config"] is None else self._adapter(given["lora_config"])
        return self._begin(given["session_id"], given["model_seq_id"], lambda name: Weights(name, keys),
                           lambda name: {"model_id": name, "type": "create_model"})

    def _begin(self, session: str, number: int, make: Callable[[str], Weights], say: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        client, name = self._client(session), f"{session}:train:{number}"

        def work(promise: Promise) -> None:
            weights = make(name)
            self.memory.session(weights)
            client.models[name] = weights
            promise.keep(say(name))

        return {**self._promise(session, f"{name}:0", work), "model_id": name}

    def load_weights(self, body: Any) -> dict[str, Any]:
        given = take(body, "load_weights", model_id="text?", seq_id="whole?", session_id="text?", model_seq_id="whole?", base_model="text?",
                     user_metadata="object?", path="text", optimizer="flag", optimizer_config="object?", weights_access_token="text?", type="text?")
        if given["weights_access_token"] is not None:
            raise Refused("load_weights.weights_access_token: checkpoints have no tokens here")
        if given["session_id"] is None or given["model_seq_id"] is None:
            raise Refused("load_weights: session_id and model_seq_id are needed; a model that is there already takes no other weights "
                          "(create_training_client_from_state)")
        self._base_name("load_weights", given["base_model"])
        self._optimizer("load_weights", given["optimizer_config"])
        path = given["path"]

        def make(name: str) -> Weights:
            found = self.store.find(path)
            if found.about["base"] != self.base.name:
                raise Refused(f"path = {path}: it is of {found.about['base']}, and this server has {self.base.name}")
            steps = found.about["steps"]
            if not given["optimizer"]:
                return _of_folder(name, found.about, found.folder)
            if not found.about["state"]:
                raise Refused(f"path = {path}: it has no optimizer state; save_state() writes that")
            return Weights(name, found.about["keys"], state=found.folder, steps=steps, saved=steps)

        return self._begin(given["session_id"], given["model_seq_id"], make,
                           lambda name: {"path": path, "model_id": name, "type": "load_weights"})

    def get_info(self, body: Any) -> dict[str, Any]:
        name = take(body, "get_info", model_id="text", type="text?")["model_id"]
        rank = self._model(name)[1].keys.get("adapter.rank")
        return {"type": "get_info", "model_id": name, "model_name": self.base.name, "is_lora": rank is not None, "lora_rank": rank,
                "model_data": {"model_name": self.base.name, "tokenizer_id": str(self.base.folder) if self.base.folder else None}}

    def _train(self, model: str, number: int | None, work: Callable[[Promise, Weights], None]) -> dict[str, Any]:
        """A request to a model. They come in order, and each has a number."""
        session, weights = self._model(model)
        client = self._clients[session]
        if number is None:
            raise Refused("seq_id: it is needed")
        name = f"{model}:{number}"
        if number <= client.asked.get(model, 0) and name not in self._promises:
            raise Refused(f"seq_id = {number}: {client.asked[model]} came before it")
        client.asked[model] = max(number, client.asked.get(model, 0))
        return {**self._promise(session, name, lambda promise: work(promise, weights)), "model_id": model}

    def forward_backward(self, body: bytes) -> dict[str, Any]:
        given = read(body, _FORWARD_BACKWARD)
        data = [_datum(datum, f"data[{number}]") for number, datum in enumerate(given["data"])]
        # A value that is 0 may be left out of an entry.
        config = {entry.get("key", ""): entry.get("value", 0.0) for entry in given["loss_fn_config"]}
        config |= {entry.get("key", ""): next(iter(entry.get("value", {}).values()), 0.0) for entry in given["loss_fn_config_v2"]}
        name, forward_only = given.get("loss_fn", ""), given.get("forward_only", False)
        if not data:
            raise Refused("forward_backward: there are no data")

        def work(promise: Promise, weights: Weights) -> None:
            promise.keep(_output(self.memory.forward_backward(weights, data, name, config, forward_only)), _PROTOBUF)

        return self._train(given.get("model_id", ""), given.get("seq_id"), work)

    def optim_step(self, body: Any) -> dict[str, Any]:
        given = take(body, "optim_step", adam_params="object?", optimizer_params="object?", model_id="text", seq_id="whole?", type="text?")
        if given["adam_params"] is None or given["optimizer_params"] is not None:
            raise Refused("optim_step.optimizer_params: allowed are adam_params")
        params = take(given["adam_params"], "optim_step.adam_params", learning_rate="number", beta1="number", beta2="number", eps="number",
                      weight_decay="number?", grad_clip_norm="number?")
        hyper = {"beta1": params["beta1"], "beta2": params["beta2"], "eps": params["eps"], "weight_decay": params["weight_decay"] or 0,
                 "clip_norm": params["grad_clip_norm"] or 0}

        def work(promise: Promise, weights: Weights) -> None:
            metrics = self.memory.optim_step(weights, params["learning_rate"], hyper)
            promise.keep({"metrics": metrics, "type": "optim_step"})

        return self._train(given["model_id"], given["seq_id"], work)

    def _save(self, weights: Weights, kind: str, given: Mapping[str, Any]) -> str:
        # A sampler of adapters reads a whole state, which is as small as they are.
        state = kind == "weights" or "adapter.rank" in weights.keys
        path = f"tinker://{weights.name}/{kind}/{given['path']}"
        expires = None if given["ttl_seconds"] is None else time.time() + given["ttl_seconds"]
        about = {"base": self.base.name, "keys": weights.keys, "state": state, "steps": weights.steps, "model": weights.name, "expires": expires,
                 "user_metadata": given["user_metadata"]}
        session = self.memory.session(weights)
        self.store.save(path, about, bool(given.get("overwrite")), session.save_state if state else session.save_weights)
        weights.saved = weights.steps
        return path

    def save_weights(self, body: Any) -> dict[str, Any]:
        given = take(body, "save_weights", model_id="text", path="text", seq_id="whole?", ttl_seconds="whole?", overwrite="flag?",
                     user_metadata="object?", type="text?")

        def work(promise: Promise, weights: Weights) -> None:
            promise.keep({"path": self._save(weights, "weights", given), "type": "save_weights"})

        return self._train(given["model_id"], given["seq_id"], work)

    def save_weights_for_sampler(self, body: Any) -> dict[str, Any]:
        given = take(body, "save_weights_for_sampler", model_id="text", path="text?", sampling_session_seq_id="whole?", kind="text?", seq_id="whole?",
                     ttl_seconds="whole?", user_metadata="object?", type="text?")
        if given["kind"] not in (None, "snapshot"):
            raise Refused(f"save_weights_for_sampler.kind = {given['kind']}: allowed is snapshot")
        session = given["model_id"].partition(":")[0]
        if given["path"] is None and given["sampling_session_seq_id"] is None:
            raise Refused("save_weights_for_sampler: path or sampling_session_seq_id is needed")

        def work(promise: Promise, weights: Weights) -> None:
            if given["path"] is not None:
                promise.keep({"path": self._save(weights, "sampler_weights", given), "type": "save_weights_for_sampler"})
                return
            name = f"{session}:sample:{given['sampling_session_seq_id']}"
            self._samplers[name] = Sampler(session, weights, weights.steps, None)
            promise.keep({"sampling_session_id": name, "type": "save_weights_for_sampler"})

        return self._train(given["model_id"], given["seq_id"], work)

    def create_sampling_session(self, body: Any) -> dict[str, Any]:
        given = take(body, "create_sampling_session", session_id="text", sampling_session_seq_id="whole", base_model="text?", model_path="text?",
                     type="text?")
        client = self._client(given["session_id"])
        self._base_name("create_sampling_session", given["base_model"])
        name = f"{given['session_id']}:sample:{given['sampling_session_seq_id']}"
        path = given["model_path"]
        if path is not None:
            about = self.store.find(path).about
            sampler = Sampler(given["session_id"], client.models.get(about["model"]), about["steps"], path)
        elif given["base_model"] is not None:
            sampler = Sampler(given["session_id"], None, 0, "")
        else:
            raise Refused("create_sampling_session: model_path or base_model is needed")
        self._samplers[name] = sampler
        return {"type": "create_sampling_session", "sampling_session_id": name}

    def _weights_of(self, name: str) -> Weights:
        sampler = self._samplers[name]
        model, path = sampler.weights, sampler.path
        if model is not None and not model.lost and model.steps == sampler.steps:
            return model
        if path is None:
            made = "is gone" if model is None or model.lost else f"has made {model.steps} by now"
            raise Refused(f"sampler {name}: it has the weights that its model had after {sampler.steps} steps, and that {made}; weights that are "
                          "saved by a name can be sampled from later")
        if path not in self._checkpoints:
            found = self.store.find(path) if path else None
            weights = _of_folder(path, found.about, found.folder) if found else Weights(self.base.name, {})
            # Nothing of it is trained: adapters that stay 0 change nothing, and take the least.
            if "adapter.rank" not in weights.keys:
                weights.keys = {"adapter.rank": 1}
            self._checkpoints[path] = weights
        return self._checkpoints[path]

    def sampler(self, name: str) -> dict[str, Any]:
        if name not in self._samplers:
            raise Refused(f"samplers/{name}: there is no such sampler")
        return {"sampler_id": name, "base_model": self.base.name}

    def asample(self, body: Any) -> dict[str, Any]:
        given = take(body, "asample", num_samples="whole?", prompt="object", sampling_params="object", base_model="text?", model_path="text?",
                     sampling_session_id="text?", seq_id="whole?", prompt_logprobs="flag?", topk_prompt_logprobs="whole?",
                     topk_sample_logprobs="whole?", target_prompt_logprobs="object?", prompt_alt_tokens_k="whole?", prompt_logprobs_last_n="whole?",
                     record_stability_info="flag?", type="text?")
        for key in ("topk_prompt_logprobs", "topk_sample_logprobs", "target_prompt_logprobs", "prompt_alt_tokens_k", "record_stability_info",
                    "base_model", "model_path"):
            if given[key]:
                raise Refused(f"asample.{key}: it is not followed")
        name, number = given["sampling_session_id"], given["seq_id"]
        if name is None or number is None:
            raise Refused("asample: sampling_session_id and seq_id are needed")
        sampler = self._samplers.get(name)
        if sampler is None:
            raise Refused(f"sampling_session_id = {name}: there is no such sampler")
        self._client(sampler.session)
        prompt = _prompt(given["prompt"], "asample.prompt")
        options = self._sampling(given["sampling_params"], len(prompt))
        last = given["prompt_logprobs_last_n"]
        if last is not None and not 1 <= last < len(prompt):
            raise Refused(f"asample.prompt_logprobs_last_n = {last}: allowed are 1 to {len(prompt) - 1}")
        samples = 1 if given["num_samples"] is None else given["num_samples"]
        ask = Ask(name, prompt, samples, options, bool(given["prompt_logprobs"]), last)
        request = f"{name}:{number}"
        return {**self._promise(sampler.session, request, None, ask), "sample_sequence_ids": [f"{request}:{i}" for i in range(samples)]}

    def _sampling(self, params: Any, prompt: int) -> dict[str, Any]:
        given = take(params, "sampling_params", max_tokens="whole?", seed="whole?", temperature="number?", top_k="whole?", top_p="number?",
                     **({"stop": "text?"} if isinstance(params.get("stop"), str) else {"stop": "list?"}))
        if given["top_k"] not in (None, -1) or given["top_p"] not in (None, 1):
            raise Refused(f"sampling_params: top_k = {given['top_k']}, top_p = {given['top_p']}: allowed are -1 and 1, as samples are drawn from "
                          "all tokens")
        room = self.base.seq_len - prompt
        tokens = room if given["max_tokens"] is None else given["max_tokens"]
        if tokens > room:
            raise Refused(f"sampling_params.max_tokens = {tokens}: the prompt has {prompt} tokens, and train.seq_len = {self.base.seq_len} leaves {room}")
        stop = given["stop"]
        ends = self.base.ends() if stop is None else [one for one in stop if isinstance(one, int)] if isinstance(stop, list) else []
        texts = [stop] if isinstance(stop, str) else [one for one in stop or () if isinstance(one, str)]
        if isinstance(stop, list) and len(ends) + len(texts) < len(stop):
            raise Refused("sampling_params.stop: allowed are texts, and ids of tokens")
        return {"max_tokens": tokens, "temperature": 1.0 if given["temperature"] is None else given["temperature"], "seed": given["seed"],
                "stop_tokens": ends, "stop": texts}

    def _sample(self, jobs: Sequence[Job]) -> None:
        """All of one sampler, and alike."""
        try:
            asks = [job.ask for job in jobs if job.ask is not None]
            first, weights = asks[0], self._weights_of(asks[0].sampler)
            options = dict(first.options)
            if options["seed"] is None:
                self._seed += 1
                options["seed"] = self._seed
            found = self.memory.sample(weights, [ask.prompt for ask in asks], first.samples, options)
            for job, ask, samples in zip(jobs, asks, found, strict=True):
                said = None if not ask.prompt_logprobs else self.memory.prompt_log_probabilities(weights, ask.prompt, ask.last)
                job.promise.keep(_samples(samples, said), _PROTOBUF)
                self._heard(job.promise.session)
        except Exception as error:
            if len(jobs) > 1:     # each by itself: what is wrong with one prompt is not with the others
                for job in jobs:
                    self._sample([job])
            else:
                self._fail(jobs[0].promise, error)
                self._heard(jobs[0].promise.session)

    def cancel_future(self, body: Any) -> dict[str, Any]:
        name = take(body, "cancel_future", request_id="text")["request_id"]
        with self._lock:
            promise = self._promises.get(name)
            if promise is not None:
                promise.dropped = True
                promise.keep({"error": "it was cancelled", "category": "user"})
        return {}

    def retrieve_future(self, body: Any) -> Promise | None:
        """None: it is not there yet."""
        name = take(body, "retrieve_future", request_id="text", allow_metadata_only="flag?")["request_id"]
        promise = self._promises.get(name)
        if promise is None:
            raise Refused(f"request_id = {name}: there is no such request")
        self._heard(promise.session)
        if not promise.done.wait(_POLL):
            return None
        with self._lock:
            self._fetched.append(name)
            if len(self._fetched) > _KEPT:
                self._promises.pop(self._fetched.popleft(), None)
        return promise

    def weights_info(self, body: Any) -> dict[str, Any]:
        about = self.store.find(take(body, "weights_info", tinker_path="text")["tinker_path"]).about
        rank = about["keys"].get("adapter.rank")
        return {"base_model": about["base"], "is_lora": rank is not None, "lora_rank": rank}

    # HTTP.

    _POSTED = {"create_session", "session_heartbeat", "create_model", "load_weights", "get_info", "optim_step", "save_weights",
               "save_weights_for_sampler", "create_sampling_session", "asample", "cancel_future", "weights_info", "telemetry"}

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes, str]:
        verb = path.removeprefix("/api/v1/")

        def said(of: Mapping[str, Any]) -> tuple[int, bytes, str]:
            return 200, json.dumps(of).encode(), _JSON

        if method == "GET":
            if verb in ("healthz", "get_server_capabilities"):
                return said(getattr(self, verb)(None))
            if found := re.fullmatch(r"samplers/([^/]+)", verb):
                return said(self.sampler(found[1]))
        elif verb == "forward_backward":
            return said(self.forward_backward(body))
        elif method == "POST":
            given = json.loads(body) if body else {}
            if verb == "retrieve_future":
                promise = self.retrieve_future(given)
                return (200, promise.body, promise.kind) if promise else (408, b'{"type": "try_again", "queue_state": "active"}', _JSON)
            if verb in self._POSTED:
                return said(getattr(self, verb)(given))
            if verb in ("client/config", "client/dynamic_config"):
                return said(getattr(self, verb.replace("/", "_"))(given))
            if found := re.fullmatch(r"sessions/([^/]+)/finish", verb):
                return said(self.finish(found[1]))
        return 404, json.dumps({"error": f"{method} {path}: Sluice does not have it; docs/verbs.md lists what it has"}).encode(), _JSON

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                size = self.headers.get("Content-Length") or "0"
                if not size.isdigit() or int(size) > _MOST or self.headers.get("Transfer-Encoding"):
                    self.close_connection = True
                    return self._send(413, json.dumps({"error": f"a request has at most {_MOST} bytes, and says how many"}).encode(), _JSON)
                body = self.rfile.read(int(size))
                if not hmac.compare_digest((self.headers.get("X-API-Key") or "").encode(), server.key.encode()):
                    return self._send(401, b'{"error": "TINKER_API_KEY is not the one that sluice serve printed"}', _JSON)
                try:
                    if self.headers.get("Content-Encoding"):
                        raise Refused(f"Content-Encoding {self.headers['Content-Encoding']}: it is not followed")
                    answer = server._answer(self.command, self.path.partition("?")[0], body)
                except (Refused, Error, ValueError) as error:
                    # 410 ends the heartbeat of a session that is over.
                    answer = 410 if self.path.endswith("/session_heartbeat") else 422, json.dumps({"error": str(error)}).encode(), _JSON
                except Exception as error:
                    answer = 500, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode(), _JSON
                self._send(*answer)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _handle

            def _send(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _of_folder(name: str, about: Mapping[str, Any], folder: pathlib.Path) -> Weights:
    """The weights of a checkpoint, and nothing of its optimizer."""
    weights = Weights(name, about["keys"], steps=about["steps"], saved=about["steps"])
    if "adapter.rank" in weights.keys:
        weights.start = folder
    else:
        weights.source = folder
    return weights


def _prompt(given: Any, where: str) -> list[int]:
    tokens: list[int] = []
    for number, chunk in enumerate(take(given, where, chunks="list")["chunks"]):
        kind = chunk.get("type", "encoded_text") if isinstance(chunk, dict) else None
        if kind != "encoded_text":
            raise Refused(f"{where}.chunks[{number}]: type = {kind}; allowed is encoded_text")
        some = take(chunk, f"{where}.chunks[{number}]", tokens="list", type="text?")["tokens"]
        if not all(type(token) is int for token in some):
            raise Refused(f"{where}.chunks[{number}].tokens: allowed are whole numbers")
        tokens += some
    if not tokens:
        raise Refused(f"{where}: it has no tokens")
    return tokens


def _datum(given: Mapping[str, Any], where: str) -> Datum:
    for key in ("model_input_spans", "loss_fn_input_spans"):
        if given[key]:
            raise Refused(f"{where}.{key}: the provenance of tokens is not followed")
    chunks = []
    for number, chunk in enumerate(given["model_input"]):
        kind = next(iter(chunk), None)
        if kind != "encoded_text":
            raise Refused(f"{where}.model_input[{number}]: {kind}; allowed is encoded_text")
        chunks.append(np.frombuffer(chunk["encoded_text"].get("tokens", b""), "<i4"))
    inputs = {}
    for entry in given["loss_fn_inputs"]:
        key, tensor = entry.get("key", ""), entry.get("value", {"shape": []})
        name = f"{where}.loss_fn_inputs.{key}"
        if "sparse_csr" in tensor:
            raise Refused(f"{name}: a sparse tensor; several targets of a token are not followed")
        if tensor.get("dtype") not in (_FLOAT32, _INT64):
            raise Refused(f"{name}: dtype {tensor.get('dtype')}; allowed are float32 and int64")
        values = np.frombuffer(tensor.get("dense", b""), "<f4" if tensor["dtype"] == _FLOAT32 else "<i8")
        shape = tensor["shape"] or [values.size]
        if math.prod(shape) != values.size:
            raise Refused(f"{name}: {values.size} values, and shape = {shape}")
        values = values.reshape(shape)
        if key == "target_tokens":
            if values.dtype.kind != "i" or (values.size and (values.min() < 0 or values.max() > 2**31 - 1)):
                raise Refused(f"{name}: allowed are ids of tokens")
            values = values.astype(np.int32)
        inputs[key] = values
    return Datum(np.concatenate(chunks).astype(np.int32) if chunks else np.zeros(0, np.int32), inputs)


def _output(answer: Answer) -> bytes:
    each = [np.ascontiguousarray(one, "<f4") for one in answer.log_probabilities]
    offsets = np.cumsum([0, *(one.nbytes for one in each)], dtype="<i8")
    logprobs = {"data": b"".join(one.tobytes() for one in each), "offsets": offsets.tobytes(), "dtype": _FLOAT32}
    return write({"loss_fn_output_type": "ArrayRecord",
                  "loss_fn_outputs": [{"type_tag": "ArrayRecord", "fields": [{"key": "logprobs", "value": logprobs}], "num_datums": len(each)}],
                  "metrics": [{"key": "loss:sum", "value": answer.loss}]}, _OUTPUT)


def _samples(samples: Sequence[_sluice.Sample], prompt: Any) -> bytes:
    said: dict[str, Any] = {"sequences": [{
        "stop_reason": int(sample.finish == "length"), "tokens": np.asarray(sample.tokens, "<i4").tobytes(),
        "logprobs": np.asarray(sample.logprobs, "<f4").tobytes()} for sample in samples]}
    if prompt is not None:
        said["prompt_logprobs"] = np.asarray(prompt, "<f4").tobytes()
    return write(said, _SAMPLES)


# The command line.

_MACHINE = {"run.backend": "backend", "run.device": "device", "run.devices": "devices", "run.threads": "threads", "run.deterministic": "deterministic"}
_OWN = ("model.path", "model.preset", "memory.device", "memory.host", "run.dir", *_MACHINE)


def _configured(config: pathlib.Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """The keys that are set, with values of TOML as text."""
    keys: dict[str, Any] = {}
    if config is not None:
        for name, value in _flat(tomllib.loads(config.read_text(encoding="utf-8"))).items():
            keys[name] = str(config.parent / value) if name in ("model.path", "run.dir") and not os.path.isabs(value) else value
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise Refused(f"--set {setting}: KEY=VALUE is needed")
        try:
            keys[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            keys[name.strip()] = value.strip()
    known = {key["name"]: key["of"] for key in _sluice.keys()}
    for name in keys:
        if name == "adapter.rank":
            raise Refused("adapter.rank: the client says it")
        if name not in _OWN and known.get(name) != "step":
            raise Refused(f"{name}: allowed are {', '.join(_OWN)}, and keys of a step: train, shape and adapter")
    return keys


def make(keys: Mapping[str, Any], *, name: str | None = None, sample_rows: int = 16) -> Base:
    """What is served, by keys of the configuration."""
    folder = keys.get("model.path")
    preset = str(keys.get("model.preset", "tiny"))
    device, host = (None if keys.get(cap, "none") == "none" else _sluice.parse_bytes(str(keys[cap])) for cap in ("memory.device", "memory.host"))
    step = {key: _options.toml(value) for key, value in {"train.seq_len": 1024, "train.tokens_per_step": 16384, **keys}.items() if key not in _OWN}
    base = Base(name or (str(folder) if folder else preset), pathlib.Path(folder).resolve() if folder else None, preset,
                {_MACHINE[key]: value for key, value in keys.items() if key in _MACHINE}, device, host, step, sample_rows)
    base.model()     # a folder without one is refused now
    return base


def _greeting(server: Server, keys: Mapping[str, Any]) -> str:
    base = server.base
    caps = " and ".join(f"{keys[f'memory.{tier}']} of {tier} memory" for tier in ("device", "host") if keys.get(f"memory.{tier}", "none") != "none")
    lines = [f"sluice serve: {base.name} at {server.address}, {'under caps of ' + caps if caps else 'without caps'}",
             f"  steps of up to {base.settings['train.tokens_per_step']} tokens in sequences of {base.seq_len}; checkpoints in {server.store.directory}",
             "  for clients:", f"    export TINKER_BASE_URL={server.address} TINKER_API_KEY={server.key}", "  refused by name:"]
    lines += [f"    - {one}" for one in REFUSED] + [f"  passed over: {name}" for name in server.allow]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sluice serve", description="Serves the verbs of Tinker's client over loopback.")
    parser.add_argument("config", metavar="CONFIG", nargs="?", type=pathlib.Path, help="configuration file (TOML)")
    parser.add_argument("--verbs", action="store_true", required=True, help="the verbs of Tinker's client")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a key of the configuration")
    parser.add_argument("--name", help="what clients call the model; model.path unless given")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1; 0: one that is free")
    parser.add_argument("--sample-rows", type=int, default=16, help="texts that are sampled at once")
    parser.add_argument("--allow", default="", help=f"what is passed over, with commas between: {', '.join(ALLOWED)}")
    given = parser.parse_args(arguments)

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        keys = _configured(given.config, given.set)
        server = Server(make(keys, name=given.name, sample_rows=given.sample_rows), pathlib.Path(str(keys.get("run.dir", "runs/verbs"))),
                        port=given.port, key=os.environ.get("TINKER_API_KEY", ""), allow=[one for one in given.allow.split(",") if one])
        print(_greeting(server, keys), flush=True)
        server.start()
        server.run()
    except KeyboardInterrupt:
        # Clients that are connected have threads, which end with the process: the interpreter would report what they hold.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    except (Refused, Error, OSError, OverflowError, tomllib.TOMLDecodeError) as error:
        print(f"sluice serve: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
