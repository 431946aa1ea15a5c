#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice serve --verbs, over HTTP: PYTHONPATH=build/cpu/python verbs_test.py"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import numpy as np
import sluice
import sluice.serve
from sluice import _verbs, _wire

SEQ_LEN = 32
CONFIG = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": False}
SMALL = {"train.seq_len": SEQ_LEN, "train.tokens_per_step": 128, "train.compute": "f32", "memory.host": "1GiB",
         "memory.device": "64MiB", "run.backend": "cpu", "run.threads": 1}
ADAM = {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 0.0}
LORA = {"rank": 4, "train_unembed": False, "train_mlp": True, "train_attn": True}


def tensor(values):
    array = np.asarray(values)
    whole = array.dtype.kind == "i"
    return {"dense": array.astype("<i8" if whole else "<f4").tobytes(), "dtype": 2 if whole else 1, "shape": list(array.shape)}


def datum(tokens, targets, **inputs):
    fields = {"target_tokens": np.asarray(targets, np.int64), **{name: np.asarray(values, np.float32) for name, values in inputs.items()}}
    return {"model_input": [{"encoded_text": {"tokens": np.asarray(tokens, "<i4").tobytes()}}],
            "loss_fn_inputs": [{"key": name, "value": tensor(values)} for name, values in fields.items()]}


def text(seed, length):
    ids = np.random.default_rng(seed).integers(0, 64, length + 1)
    return ids[:-1], ids[1:]


def plan(model, **more):
    return sluice.plan(model, sluice.Machine.here(backend="cpu", threads=1), device="64MiB", host="1GiB", seq_len=SEQ_LEN, tokens_per_step=128,
                       compute="f32", packed=True, weighted=True, **more)


def setUpModule():
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    SMALL["model.path"] = str(pathlib.Path(folder.name) / "model")
    with sluice.Session(plan(sluice.Model.config(json.dumps(CONFIG)))) as session:
        session.save_weights(SMALL["model.path"])


class Failed(Exception):
    pass


class Client:
    """A session, as Tinker's client has one."""

    def __init__(self, server):
        self.server, self.numbers = server, {}
        self.session = self.post("create_session", tags=[], user_metadata={}, sdk_version="0.38.0")["session_id"]

    def send(self, verb, body, key=None):
        request = urllib.request.Request(f"{self.server.address}/api/v1/{verb}", body, {"X-API-Key": key or self.server.key})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise Failed(f"{error.code} {error.read().decode()}") from None

    def post(self, verb, **body):
        return json.loads(self.send(verb, json.dumps(body).encode()))

    def result(self, promise, message=None):
        body = self.send("retrieve_future", json.dumps({"request_id": promise["request_id"]}).encode())
        if message is not None and not body.startswith(b'{"error"'):
            return _wire.read(body, message)
        said = json.loads(body)
        if "error" in said:
            raise Failed(said["error"])
        return said

    def next(self, name):
        self.numbers[name] = self.numbers.get(name, 0) + 1
        return self.numbers[name]

    def create(self, number=0, lora=LORA):
        return self.result(self.post("create_model", session_id=self.session, model_seq_id=number, base_model="small", lora_config=lora))["model_id"]

    def call(self, verb, model, **body):
        return self.result(self.post(verb, model_id=model, seq_id=self.next(model), **body))

    def learn(self, model, data, loss="cross_entropy", forward_only=False, **config):
        body = _wire.write({"model_id": model, "seq_id": self.next(model), "data": data, "loss_fn": loss, "forward_only": forward_only,
                            "loss_fn_config_v2": [{"key": name, "value": {"number": value}} for name, value in config.items()]},
                           sluice.serve._FORWARD_BACKWARD)
        said = self.result(json.loads(self.send("forward_backward", body)), sluice.serve._OUTPUT)
        field = said["loss_fn_outputs"][0]["fields"][0]["value"]
        places = np.frombuffer(field["offsets"], "<i8") // 4
        values = np.frombuffer(field["data"], "<f4")
        return said["metrics"][0]["value"], [values[a:b] for a, b in zip(places, places[1:])]

    def step(self, model, **changed):
        return self.call("optim_step", model, adam_params={**ADAM, **changed})["metrics"]

    def sample(self, sampler, prompt, samples=1, **more):
        params = {"max_tokens": 4, "seed": 7, "temperature": 1.0, "top_k": -1, "top_p": 1, **more.pop("params", {})}
        said = self.result(self.post("asample", sampling_session_id=sampler, seq_id=self.next(sampler), num_samples=samples, sampling_params=params,
                                     prompt={"chunks": [{"type": "encoded_text", "tokens": [int(token) for token in prompt]}]}, **more),
                           sluice.serve._SAMPLES)
        return said

    def sampler(self, **of):
        return self.post("create_sampling_session", session_id=self.session, sampling_session_seq_id=self.next("samplers") + 1000,
                         **of)["sampling_session_id"]


class Losses(unittest.TestCase):
    def test_have_the_derivatives_of_their_values(self):
        rng = np.random.default_rng(0)
        now = -rng.random(16).astype(np.float32)
        inputs = {"logprobs": now + rng.normal(0, 0.4, 16), "advantages": rng.normal(0, 1, 16), "weights": rng.random(16)}
        settings = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2, "beta": 0.3}
        for name in _verbs.LOSSES:
            of = _verbs.Datum(np.zeros(16, np.int32), inputs)
            slopes = _verbs.judge(name, settings, now, of)[1]
            for place in range(16):
                values = []
                for change in (-1, 1):
                    other = now.astype(np.float64)
                    other[place] += change * 1e-4
                    if name == "cispo":    # its weights are constants
                        ratio = np.clip(np.exp(now - inputs["logprobs"]), 0.8, 1.2)
                        values.append(-float((ratio * other * inputs["advantages"]).sum()))
                    else:
                        values.append(_verbs.judge(name, settings, other, of)[0])
                self.assertAlmostEqual((values[1] - values[0]) / 2e-4, slopes[place], 3, name)

    def test_documents_share_sequences(self):
        self.assertEqual(_verbs.rows_of([5, 4, 3, 2, 8], 8), [[0, 2], [1, 3], [4]])


class Verbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = sluice.serve.Server(sluice.serve.make(SMALL, name="small", sample_rows=4), pathlib.Path(cls.folder.name), idle=60)
        cls.server.start()
        cls.runs = threading.Thread(target=cls.server.run)
        cls.runs.start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.runs.join()
        cls.folder.cleanup()

    def test_a_step_is_that_of_a_session(self):
        data = [text(1, 20), text(2, 10), text(3, 32)]
        client = Client(self.server)
        model = client.create()
        losses = []
        for _ in range(3):
            value, log_probabilities = client.learn(model, [datum(*of, weights=np.full(len(of[0]), 0.5)) for of in data])
            losses.append(value)
            client.step(model)
        self.assertLess(losses[2], losses[0])

        tokens, targets, positions = np.zeros((2, SEQ_LEN), np.int32), np.full((2, SEQ_LEN), -1), np.zeros((2, SEQ_LEN), np.int32)
        for row, where, (inputs, wanted) in zip((0, 0, 1), (slice(0, 20), slice(20, 30), slice(0, 32)), data):
            tokens[row, where], targets[row, where], positions[row, where] = inputs, wanted, np.arange(len(inputs))
        positions[0, 30:] = np.arange(2)
        model = sluice.Model.from_pretrained(SMALL["model.path"])
        with sluice.Session(plan(model, adapter=sluice.Adapter(rank=4, alpha=32, decay=True))) as session:
            for _ in range(2):
                session.forward_backward(tokens, targets, positions=positions, seeds=np.full(tokens.shape, -0.5, np.float32))
                session.optim_step(0.001, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0, clip_norm=0)
            expected = session.forward(tokens, targets, positions=positions)
        for (row, where), of in zip(((0, slice(0, 20)), (0, slice(20, 30)), (1, slice(0, 32))), log_probabilities, strict=True):
            self.assertTrue(np.array_equal(expected[row, where], of))

    def test_all_weights_are_trained_at_rank_0(self):
        client = Client(self.server)
        model = client.create(lora={"rank": 0})
        info = client.post("get_info", model_id=model)
        self.assertEqual((info["is_lora"], info["lora_rank"], info["model_data"]["model_name"]), (False, None, "small"))
        before = client.learn(model, [datum(*text(1, 20))])[0]
        self.assertGreater(client.step(model)["gradient_norm"], 0)
        self.assertLess(client.learn(model, [datum(*text(1, 20))], forward_only=True)[0], before)

    def test_policy_losses_learn_from_samples(self):
        client = Client(self.server)
        model = client.create()
        sampler = client.call("save_weights_for_sampler", model, sampling_session_seq_id=0)["sampling_session_id"]
        prompt = text(4, 6)[0]
        said = client.sample(sampler, prompt, 3, prompt_logprobs=True)
        self.assertEqual([of["stop_reason"] for of in said["sequences"]], [1, 1, 1])
        of_prompt = np.frombuffer(said["prompt_logprobs"], "<f4")
        self.assertTrue(np.isnan(of_prompt[0]) and np.isfinite(of_prompt[1:]).all())
        data = []
        for sequence, advantage in zip(said["sequences"], (1.0, -1.0, 0.5)):
            tokens, before = np.frombuffer(sequence["tokens"], "<i4"), np.frombuffer(sequence["logprobs"], "<f4")
            whole = np.concatenate([prompt, tokens])
            pad = [0.0] * (len(prompt) - 1)
            data.append(datum(whole[:-1], whole[1:], logprobs=[*pad, *before], advantages=[*pad, *[advantage] * len(tokens)]))
        for loss, config in (("importance_sampling", {}), ("ppo", {}), ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}),
                             ("dro", {"beta": 0.05})):
            value, log_probabilities = client.learn(model, data, loss, forward_only=True, **config)
            if loss in ("importance_sampling", "ppo"):
                self.assertAlmostEqual(value, -2.0, 3)      # each ratio is 1
            np.testing.assert_allclose(log_probabilities[0][5:], np.frombuffer(said["sequences"][0]["logprobs"], "<f4"), atol=1e-4)
        for loss in ("importance_sampling", "ppo"):
            client.learn(model, data, loss)
            client.step(model)
        self.assertLess(client.learn(model, data, "importance_sampling", forward_only=True)[0], -2)
        with self.assertRaisesRegex(Failed, "after 0 steps, and that has made 2 by now"):
            client.sample(sampler, prompt)

    def test_a_checkpoint_goes_on_with_the_same_bits(self):
        for lora in (LORA, {"rank": 0}):
            client = Client(self.server)
            model = client.create(lora=lora)
            data = [datum(*text(5, 30))]
            client.learn(model, data)
            client.step(model)
            path = client.call("save_weights", model, path="one", ttl_seconds=3600)["path"]
            with self.assertRaisesRegex(Failed, "overwrite=True replaces it"):
                client.call("save_weights", model, path="one")
            client.call("save_weights", model, path="one", overwrite=True)
            weights = client.call("save_weights_for_sampler", model, path="one")["path"]
            sampler = client.sampler(model_path=weights)
            drawn = client.sample(sampler, [1, 2, 3])
            client.learn(model, data)
            client.step(model)
            after = client.learn(model, data, forward_only=True)
            self.assertEqual(client.sample(sampler, [1, 2, 3]), drawn)     # from the folder by now
            for number, optimizer in ((1, True), (2, False)):
                other = client.result(client.post("load_weights", session_id=client.session, model_seq_id=number, path=path, optimizer=optimizer))["model_id"]
                client.learn(other, data)
                client.step(other)
                same = np.array_equal(client.learn(other, data, forward_only=True)[1], after[1])
                self.assertEqual(same, optimizer)
            if lora["rank"] == 0:
                with self.assertRaisesRegex(Failed, "no optimizer state"):
                    client.result(client.post("load_weights", session_id=client.session, model_seq_id=3, path=weights, optimizer=True))
            client.post(f"sessions/{client.session}/finish", reason={"type": "success"}, detail=None)

    def test_two_clients_take_turns(self):
        clients = [Client(self.server) for _ in range(2)]
        models = [client.create() for client in clients]
        data = [[datum(*text(seed, 30))] for seed in (6, 7)]
        found = [[], []]

        def train(which):
            for _ in range(2):
                found[which].append(clients[which].learn(models[which], data[which])[0])
                clients[which].step(models[which])

        threads = [threading.Thread(target=train, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = clients[0].create(1)
        for value in found[0]:
            self.assertEqual(clients[0].learn(alone, data[0])[0], value)
            clients[0].step(alone)

    def test_what_is_not_followed_is_refused_by_name(self):
        client = Client(self.server)
        for lora, said in (({**LORA, "train_unembed": True}, "--allow train_unembed"), ({**LORA, "dropout": 1}, "lora_config.dropout: it is not known"),
                           ({"rank": 4.5}, "lora_config.rank = 4.5: a whole number is needed"), ({}, "lora_config.rank: it is needed"),
                           ({**LORA, "train_mlp": False, "train_attn": False}, "leave nothing to train"), ({**LORA, "rank": 100000}, "adapter.rank = 100000")):
            with self.assertRaisesRegex(Failed, said):
                client.create(client.next("models") + 10, lora)
        for body, said in (({"base_model": "other"}, "base_model = other: this server has small"), ({"extra": 1}, "create_model.extra: it is not known"),
                           ({"optimizer_config": {"type": "dimuon", "version": 1}}, "allowed is"), ({"session_id": "gone"}, "no such session")):
            with self.assertRaisesRegex(Failed, said):
                client.post("create_model", **{"session_id": client.session, "model_seq_id": 99, "base_model": "small", "lora_config": LORA, **body})
        model = client.create(1000)
        tokens, targets = text(8, 20)
        several = datum(tokens, targets)
        several["loss_fn_inputs"][0]["value"] = tensor(np.zeros((20, 2), np.int64))
        image = {**datum(tokens, targets), "model_input": [{"image": b"..."}]}
        spans = {**datum(tokens, targets), "model_input_spans": [b""]}
        for data, loss, said in (([datum(tokens, targets)], "gspo", "loss_fn = gspo: allowed are cross_entropy"),
                                 ([datum(tokens, targets, mask=np.ones(20))], "cross_entropy", r"data\[0\].loss_fn_inputs.mask"),
                                 ([datum(tokens, targets)], "ppo", "loss_fn_inputs.logprobs: ppo needs it"),
                                 ([datum(tokens, targets[:-1])], "cross_entropy", r"its shape is \[19\]"),
                                 ([several], "cross_entropy", "several targets"), ([image], "cross_entropy", "image; allowed is encoded_text"),
                                 ([spans], "cross_entropy", "provenance"), ([datum(*text(1, 33))], "cross_entropy", "33 tokens, and train.seq_len = 32"),
                                 ([datum(*text(1, 30))] * 5, "cross_entropy", "5 sequences of 32 tokens; train.tokens_per_step = 128 has room for 4"),
                                 ([datum(tokens + 1000, targets)], "cross_entropy", "1")):
            with self.assertRaisesRegex(Failed, said):
                client.learn(model, data, loss)
        with self.assertRaisesRegex(Failed, "no step was made, as a forward_backward before it failed: "):
            client.step(model)
        with self.assertRaisesRegex(Failed, "no forward_backward came before it"):
            client.step(model)
        with self.assertRaisesRegex(Failed, "loss_fn_config.clip: ppo has clip_low_threshold, clip_high_threshold"):
            client.learn(model, [datum(tokens, targets)], "ppo", clip=0.2)
        with self.assertRaisesRegex(Failed, "adam_params.momentum"):
            client.step(model, momentum=0.9)
        sampler = client.sampler(base_model="small")
        for more, said in (({"params": {"top_k": 5}}, "top_k = 5"), ({"params": {"min_p": 0.1}}, "min_p"), ({"topk_sample_logprobs": 2}, "topk_sample_logprobs"),
                           ({"params": {"max_tokens": 40}}, "max_tokens = 40: the prompt has 3 tokens"), ({"record_stability_info": True}, "record_stability")):
            with self.assertRaisesRegex(Failed, said):
                client.sample(sampler, [1, 2, 3], **more)
        self.assertEqual(len(client.sample(sampler, [1, 2, 3])["sequences"]), 1)
        for verb, said in (("save_weights_external", "404 .*does not have it"), ("optim_step?", "422 ")):
            with self.assertRaisesRegex(Failed, said):
                client.post(verb, model_id=model)
        with self.assertRaisesRegex(Failed, "project_id: there are no projects"):
            client.post("create_session", tags=[], user_metadata={}, sdk_version="0.38.0", project_id="p")
        with self.assertRaisesRegex(Failed, "401 .*TINKER_API_KEY"):
            client.send("create_session", b"{}", "tml-other")
        with self.assertRaisesRegex(Failed, "ForwardBackwardRequest: field 15 is not known"):
            client.send("forward_backward", b"\x78\x01")
        for path in ("../../etc", "tinker://a/weights/..", "tinker://none/weights/one"):
            with self.assertRaisesRegex(Failed, "path = "):
                client.sampler(model_path=path)

    def test_a_client_that_is_gone_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            server = sluice.serve.Server(self.server.base, pathlib.Path(folder), idle=1)
            server.start()
            runs = threading.Thread(target=server.run)
            runs.start()
            try:
                client = Client(server)
                model = client.create()
                client.learn(model, [datum(*text(1, 20))])
                client.step(model)
                end = time.monotonic() + 20
                while (server._clients or server.memory._of) and time.monotonic() < end:
                    time.sleep(0.05)
                self.assertEqual((server._clients, server._promises, server.memory._of, list(pathlib.Path(folder).glob(".memory*"))), ({}, {}, None, []))
                with self.assertRaisesRegex(Failed, "410 .*a heartbeat"):
                    client.post("session_heartbeat", session_id=client.session)
            finally:
                server.stop()
                runs.join()


class Program(unittest.TestCase):
    def test_says_what_it_refuses_and_stops_cleanly(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = [word for key, value in {**SMALL, "run.dir": folder}.items() for word in ("--set", f"{key}={value}")]
            environment = {**os.environ, "TINKER_API_KEY": "tml-chosen", "PYTHONPATH": str(pathlib.Path(sluice.__file__).parents[1])}
            command = [sys.executable, "-B", "-m", "sluice.serve", "--verbs", "--name", "small", "--allow", "train_unembed", *settings]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
                lines = []
                while "passed over" not in (lines or [""])[-1]:
                    lines.append(process.stdout.readline())
                    self.assertTrue(lines[-1], process.stderr.read() if not lines[-1] else "")
                try:
                    for refused in sluice.serve.REFUSED:
                        self.assertIn(f"    - {refused}\n", lines)
                    self.address = next(line.split("=")[1].split()[0] for line in lines if "TINKER_BASE_URL" in line)
                    self.key = "tml-chosen"
                    Client(self).create(lora={"rank": 4, "train_unembed": True})
                    process.send_signal(signal.SIGTERM)
                    self.assertEqual(process.wait(20), 130)
                finally:
                    process.kill()
                self.assertEqual((process.stderr.read(), os.listdir(folder)), ("", ["cache"]))

    def test_refuses_other_keys(self):
        for setting, said in (("train.steps=3", "train.steps: allowed are model.path"), ("adapter.rank=3", "the client says it"),
                              ("train.seqlen=3", "train.seqlen"), ("model.path=/nowhere", "/nowhere")):
            process = subprocess.run([sys.executable, "-B", "-m", "sluice.serve", "--verbs", "--set", setting], capture_output=True, text=True,
                                     env={**os.environ, "PYTHONPATH": str(pathlib.Path(sluice.__file__).parents[1])})
            self.assertEqual(process.returncode, 1)
            self.assertIn(said, process.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
