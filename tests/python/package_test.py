#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package, as it is installed or built: PYTHONPATH=build/cpu/python package_test.py"""
import gc
import inspect
import itertools
import json
import os
import pathlib
import re
import shutil
import tempfile
import signal
import subprocess
import sys
import threading
import time
import tomllib
import unittest
import warnings
import weakref
from unittest import mock

import numpy as np
import sluice

CONFIG = json.dumps({
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False})
SEQ_LEN, TOKENS = 16, 64
PROGRAM = pathlib.Path(os.environ.get("SLUICE_PROGRAM") or pathlib.Path(sluice.__file__).parent / "bin/sluice")


def small_plan(model=CONFIG, **options):
    return sluice.plan(sluice.Model.config(model), sluice.Machine.here(backend="cpu", threads=1), seq_len=SEQ_LEN,
                       tokens_per_step=TOKENS, host="1GiB", **options)


def batch(step):
    tokens = np.random.default_rng(step).integers(0, 64, TOKENS, dtype=np.int32)
    targets = np.roll(tokens, -1)
    targets[SEQ_LEN - 1::SEQ_LEN] = -1
    return tokens, targets


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def step(session, number):
    session.forward_backward(*batch(number))
    return session.optim_step(1e-2)


class Adapters(unittest.TestCase):
    def test_are_what_is_trained(self):
        adapter = sluice.Adapter(rank=4, targets=["q_proj", "mlp"], rank_pattern={"down_proj": 2}, rslora=True)
        with tempfile.TemporaryDirectory() as folder, sluice.Session(small_plan(adapter=adapter)) as session:
            names = [name for name in session.weights if "lora" in name]
            self.assertTrue(names and not [name for name in names if "v_proj" in name], names)
            before = session.weight("model.layers.0.mlp.down_proj.weight")
            step(session, 0)
            self.assertTrue(np.array_equal(session.weight("model.layers.0.mlp.down_proj.weight"), before))
            session.save_weights(pathlib.Path(folder) / "adapter")
            said = json.loads((pathlib.Path(folder) / "adapter/adapter_config.json").read_text())
        self.assertEqual((said["r"], set(said["rank_pattern"].values()), said["use_rslora"]), (4, {2}, True))

    def test_of_other_keywords_are_refused(self):
        with self.assertRaisesRegex(TypeError, r"Adapter\(\) got an unexpected keyword argument 'lora_alpha'; alpha is meant"):
            sluice.Adapter(lora_alpha=16)
        with self.assertRaisesRegex(TypeError, "adapter is int; allowed are sluice.Adapter"):
            small_plan(adapter=16)
        with self.assertRaisesRegex(sluice.Error, "adapter.rank = many"):
            small_plan(adapter=sluice.Adapter(rank="many"))


class Plans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plan = sluice.plan("tiny", "rtx4090", device="1GiB", host="4GiB", tokens_per_step=4096)

    def test_says_what_it_is(self):
        self.assertEqual((self.plan.seq_len, self.plan.tokens_per_step), (1024, 4096))
        self.assertAlmostEqual(self.plan.tokens_per_second, 4096 / self.plan.step_seconds)
        self.assertLess(self.plan.device_bytes, 2**30)
        self.assertIn("tok/s", str(self.plan))

    def test_is_a_page_in_a_notebook(self):
        page = self.plan._repr_html_()
        self.assertTrue(page.startswith('<iframe srcdoc="&lt;!'), page[:40])
        self.assertIn("&lt;/html&gt;", page)

    def test_has_the_keys_of_a_step_as_keywords(self):
        plan = small_plan(compute="bf16", grad="f32", master_weights=True, beta1=0.8, clip_norm=0.5, chunk_tokens=16, deferred_updates=None)
        with tempfile.TemporaryDirectory() as folder:
            plan.save(folder)
            keys = tomllib.loads((pathlib.Path(folder) / "config.toml").read_text())
        self.assertEqual([keys["train"][key] for key in ("compute", "grad", "master", "beta1", "clip_norm")], ["bf16", "f32", "f32", 0.8, 0.5])
        self.assertEqual(keys["shape"]["chunk_tokens"], 16)
        for name, said in [("lr", "the key train.learning_rate of a Trainer is meant"), ("gradient_clipping", "did you mean clip_norm"),
                           ("wandb_project", "no argument wandb_project; allowed"), ("steps", "the key train.steps of a Trainer is meant")]:
            with self.assertRaisesRegex(TypeError, said):
                small_plan(**{name: 1})
        self.assertIn("router_z_loss", sluice.plan.__doc__ or "router_z_loss")
        self.assertIn("router_z_loss", inspect.signature(sluice.plan).parameters)

    def test_memory_is_arrays_under_the_cap(self):
        memory = self.plan.memory("device")
        self.assertEqual({len(held) for held in memory.bytes.values()}, {len(memory.seconds)})
        self.assertTrue((np.diff(memory.seconds) >= 0).all())
        held = sum(memory.bytes.values())
        self.assertEqual(held.max(), self.plan.data["device"]["peak_bytes"])
        with self.assertRaisesRegex(ValueError, "tier = disk: allowed are device, host"):
            self.plan.memory("disk")

    def test_timeline_is_arrays_of_each_lane(self):
        lanes = self.plan.timeline()
        self.assertGreater(len(lanes), 1)
        for name, lane in lanes.items():
            self.assertTrue((lane.end >= lane.begin).all() and (lane.begin[1:] >= lane.end[:-1] - 1e-9).all(), name)
            self.assertEqual(len(lane.names), len(lane.begin))
        self.assertLessEqual(max(lane.end.max(initial=0) for lane in lanes.values()), self.plan.step_seconds * 1.001)

    def test_is_compared_with_one_that_is_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            self.plan.save(pathlib.Path(folder) / "plan")
            other = sluice.plan("tiny", "rtx4090", device="800MiB", host="4GiB", tokens_per_step=4096)
            said = sluice.diff(pathlib.Path(folder) / "plan/plan.json", other)
        self.assertEqual(said, sluice.diff(self.plan, other))
        self.assertTrue(said)
        for number in (0, 1, True):
            with self.assertRaises(TypeError):
                sluice.diff(self.plan, number)
            os.fstat(number)

    def test_names_an_argument_that_there_is_not(self):
        for call, said in [(lambda: sluice.plan("tiny", "rtx4090", sequence_length=1), "plan: there is no argument sequence_length; did you mean seq_len? allowed are model, "),
                           (lambda: sluice.plan("tiny", "rtx4090", batch=1), "plan: there is no argument batch; allowed are model, "),
                           (lambda: sluice.Dataset.text(self.plan, ["a"], held_out=0.1), "Dataset.text: there is no argument held_out; did you mean heldout?"),
                           (lambda: sluice.Machine.here(threds=2), "Machine.here: there is no argument threds; did you mean threads?"),
                           (lambda: self.plan.memory(teir="host"), "Plan.memory: there is no argument teir; did you mean tier?"),
                           (lambda: sluice.Session(self.plan, machine="h100"), "Session: there is no argument machine; allowed are plan"),
                           (lambda: sluice.Trainer({}, dta=[]), "Trainer: there is no argument dta; did you mean data?"),
                           (lambda: sluice.compare("tiny", machine="h100"), "compare: there is no argument machine; did you mean machines?")]:
            with self.assertRaisesRegex(TypeError, re.escape(said)):
                call()

    def test_tells_how_far_it_is(self):
        heard = []
        small_plan(progress=lambda what, done, total: heard.append((what, done, total)))
        self.assertTrue(heard, "costs are measured")
        for what, done, total in heard:
            self.assertIsInstance(what, str)
            self.assertLessEqual(done, total or done)

    def test_what_a_callback_raises_is_raised(self):
        class Stop(Exception):
            pass

        def stop(*_):
            raise Stop

        with self.assertRaises(Stop):
            small_plan(progress=stop)


MIXTURE = json.dumps({
    "model_type": "olmoe", "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64, "num_experts": 8, "num_experts_per_tok": 2, "output_router_logits": True})


class Routers(unittest.TestCase):
    @staticmethod
    def router_of(config, steps=1, **options):
        plan = sluice.plan(sluice.Model.config(config), sluice.Machine.here(backend="cpu", threads=1), seq_len=SEQ_LEN,
                           tokens_per_step=TOKENS, host="1GiB", compute="f32", **options)
        with sluice.Session(plan) as session:
            for number in range(steps):
                found = step(session, number).router
        return found

    def test_say_how_experts_are_loaded(self):
        found = self.router_of(MIXTURE)
        self.assertEqual([of.layer for of in found.layers], [0, 1])
        for of in found.layers:
            choices = np.array(of.loads) * TOKENS * 2 / 8
            np.testing.assert_allclose(choices, np.round(choices), atol=1e-9)
            self.assertEqual((len(choices), round(choices.sum())), (8, TOKENS * 2))
            self.assertAlmostEqual(of.variation, np.std(of.loads))
        self.assertAlmostEqual(found.variation, np.mean([of.variation for of in found.layers]))
        worst = max(found.layers, key=lambda of: of.variation)
        self.assertEqual((found.worst_layer, found.worst_variation), (worst.layer, worst.variation))
        self.assertEqual(found.busiest, max(max(of.loads) for of in found.layers))
        self.assertAlmostEqual(found.entropy, np.mean([of.entropy for of in found.layers]))
        self.assertLessEqual(found.entropy, np.log(8))
        self.assertGreater(found.balance, 1.9)
        self.assertGreater(found.z, 0)

    def test_are_none_of_a_model_without_experts(self):
        self.assertIsNone(self.router_of(CONFIG))

    def test_are_trained_to_have_small_logits(self):
        self.assertLess(self.router_of(MIXTURE, 8, router_z_loss=10).z, self.router_of(MIXTURE, 8).z)
        with self.assertRaisesRegex(sluice.Error, "train.router_z_loss = 1: this llama model has no routers"):
            self.router_of(CONFIG, router_z_loss=1)


class Errors(unittest.TestCase):
    def test_too_small_a_cap_says_which_and_how_much_works(self):
        with self.assertRaises(sluice.Error) as raised:
            sluice.plan("tiny", "rtx4090", device="16MiB", host="4GiB", tokens_per_step=4096)
        error = raised.exception
        self.assertEqual((error.kind, error.tier), ("does not fit", "device"))
        self.assertGreater(error.need, 16 * 2**20)
        sluice.plan("tiny", "rtx4090", device=error.need, host="4GiB", tokens_per_step=4096)

    def test_names_and_values_that_are_not_allowed(self):
        for call, says in [
                (lambda: sluice.Model.preset("llama9"), "llama9"),
                (lambda: sluice.Machine.preset("rtx1"), "rtx1"),
                (lambda: sluice.plan("tiny", "rtx4090", seq_len=1), "seq_len = 1"),
                (lambda: sluice.plan("tiny", "rtx4090", compute="f8"), "compute = f8: allowed are auto, f32, bf16"),
                (lambda: sluice.plan("tiny", "rtx4090", device="lots"), "lots"),
                (lambda: sluice.plan("tiny", "rtx4090", freeze=["model.embed"]), "freeze: 'model.embed' names no tensor"),
                (lambda: sluice.plan("tiny", "rtx4090", optimizer="adam"), "optimizer = adam: allowed are"),
                (lambda: sluice.plan("tiny", "rtx4090", hyperparameters={"beta9": 1}), "beta9")]:
            with self.assertRaises(sluice.Error) as raised:
                call()
            self.assertIn(says, str(raised.exception))

    def test_what_others_wrote_is_shown_and_not_obeyed_and_of_some_length(self):
        for name in ("\x1b]0;pwned\x07", "x" * 1_000_000, "\u202e" * 500_000):
            with self.assertRaises(sluice.Error) as raised:
                sluice.Model.config(json.dumps({"model_type": name}))
            said = str(raised.exception)
            self.assertIn("model_type", said)
            self.assertTrue(said.isprintable(), repr(said[:200]))
            self.assertLessEqual(len(said), 2000)

    def test_a_preset_of_a_machine_runs_nothing(self):
        with self.assertRaises(sluice.Error):
            sluice.Session(sluice.plan("tiny", "rtx4090", tokens_per_step=4096))


class Interrupts(unittest.TestCase):
    def test_end_a_search(self):
        """It is asked to stop: whatever it would have found, the interrupt is raised, and the next search is whole."""
        told = []

        def progress(what, done, total):
            told.append(what)
            signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt):
            sluice.plan("llama3-1b", "rtx4090", device="6GiB", host="60GiB", tokens_per_step=65536, progress=progress)
        self.assertEqual({what.split()[0] for what in told}, {"planning"})
        small_plan()

    def test_end_a_text(self):
        with sluice.Session(small_plan(sample_window=SEQ_LEN)) as session:
            before = session.sample([1], tokens=4).tokens
            threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
            with self.assertRaises(KeyboardInterrupt):
                session.sample([1], tokens=2**24)
            self.assertEqual(session.sample([1], tokens=4).tokens, before)


class Sessions(unittest.TestCase):
    def losses(self, plan, steps):
        with sluice.Session(plan) as session:
            return [step(session, number).loss for number in range(steps)]

    def test_learn_and_have_equal_bits_under_another_cap(self):
        roomy = small_plan()
        tight = small_plan(device=roomy.device_bytes * 2 // 3 + 2**20)
        losses = self.losses(roomy, 3)
        self.assertEqual(losses, self.losses(tight, 3))
        self.assertEqual(len(set(losses)), 3)

    def test_sample_many(self):
        prompts = [[1, 2, 3], np.array([4, 5])]
        drawn = []
        for rows in (1, 4):
            with sluice.Session(small_plan(sample_window=SEQ_LEN, sample_rows=rows)) as session:
                samples = session.sample(prompts, n=3, max_tokens=5, temperature=1.0, seed=9)
                self.assertEqual([len(of) for of in samples], [3, 3])
                one = samples[1][2]
                self.assertEqual((len(one.tokens), len(one.logprobs), one.finish), (5, 5, "length"))
                with self.assertRaisesRegex(sluice.Error, "no tokenizer"):
                    session.sample(prompts, n=3, max_tokens=5, text=True)
                drawn.append([[sample.tokens for sample in of] for of in samples])
                with self.assertRaisesRegex(TypeError, "say n"):
                    session.sample([1], text=True)
        self.assertEqual(drawn[0], drawn[1])

    def test_go_on_from_what_was_saved(self):
        plan = small_plan(sample_window=SEQ_LEN)
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder) / "saved"
            with sluice.Session(plan) as session:
                step(session, 0)
                session.save_state(saved)
                whole = step(session, 1)
                held_out, text = session.evaluate(*batch(9)), session.sample([1, 2, 3], tokens=5)
                self.assertEqual((len(text.tokens), len(text.log_probabilities)), (5, 5))
            with sluice.Session(plan) as session:
                session.load_state(saved)
                self.assertEqual(session.steps_done, 1)
                again = step(session, 1)
                self.assertEqual((again.loss, again.gradient_norm), (whole.loss, whole.gradient_norm))
                self.assertEqual(session.evaluate(*batch(9)), held_out)
                self.assertEqual(session.sample([1, 2, 3], tokens=5).tokens, text.tokens)
                session.save_weights(pathlib.Path(folder) / "model")
                model = sluice.Model.from_pretrained(pathlib.Path(folder) / "model")
                self.assertEqual(model.parameters, sluice.Model.config(CONFIG).parameters)

    def test_warn_of_what_is_noticed(self):
        short = small_plan(CONFIG.replace("{", '{"max_position_embeddings": 8, ', 1))
        self.assertEqual(len(short.notices), 1)
        with self.assertWarnsRegex(UserWarning, "the model is for texts of 8 tokens"):
            sluice.Session(short).close()
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "a.jsonl"
            text.write_text(json.dumps({"text": "USER: a question\nASSISTANT: an answer"}) + "\n")
            plan = small_plan(CONFIG.replace('"vocab_size": 64', '"vocab_size": 256'))
            with self.assertWarnsRegex(UserWarning, "the turn of a chat that was rendered elsewhere: a.jsonl:1"):
                data = sluice.Dataset.text(plan, [text], cache=folder, heldout=0, exclude=["*.jsn"])
            self.assertIn("data.exclude: '*.jsn': leaves out no file", " ".join(data.notices))

    def test_take_arrays_of_other_types_and_refuse_what_does_not_fit(self):
        with sluice.Session(small_plan()) as session:
            tokens, targets = batch(0)
            session.forward_backward(tokens.astype(np.int64), targets.tolist())
            with self.assertRaisesRegex(sluice.Error, "16 tokens, with 64 that wait .* the plan's step has 64"):
                session.forward_backward(tokens[:SEQ_LEN], targets[:SEQ_LEN])
            self.assertEqual(session.optim_step(1e-2).step, 1)
            for tokens, says in [(tokens[:-1], "whole sequences"), (np.full_like(tokens, 64), "tokens.0. is 64")]:
                with self.assertRaisesRegex(sluice.Error, says):
                    session.forward_backward(tokens, targets[:len(tokens)])

    def test_refuse_arrays_whose_elements_would_become_others(self):
        tokens, targets = batch(0)
        with sluice.Session(small_plan(weighted=True, sample_window=SEQ_LEN)) as session:
            for wrong, error, says in [
                    (tokens.astype(np.int64) + 2**32, ValueError, f"{int(tokens[0]) + 2**32} at 0; allowed are integers of 32 bits"),
                    (tokens.astype(np.uint64) + np.uint64(2**63), ValueError, "at 0; allowed are integers of 32 bits"),
                    (targets.astype(np.int64) - 2**40, ValueError, "at 0; allowed are"), (tokens + 0.99, TypeError, "float64"),
                    (np.ma.array(tokens, mask=tokens == tokens[0]), TypeError, "elements are masked"),
                    (tokens.astype(np.float32), TypeError, "float32"), (tokens > 3, TypeError, "bool"), (tokens * 1j, TypeError, "complex"),
                    ([2**70] * TOKENS, TypeError, "object"), (tokens.astype(str), TypeError, "<U")]:
                for rows in [(wrong, targets), (tokens, wrong)]:
                    for call in (session.forward, session.evaluate, session.forward_backward):
                        with self.assertRaisesRegex(error, says):
                            call(*rows)
            for wrong in ([2**32 + 1], [1.5], [True]):
                with self.assertRaises((TypeError, ValueError)):
                    session.sample(wrong, tokens=1)
            for wrong in (np.ones(TOKENS) * 1j, ["1"] * TOKENS):
                with self.assertRaisesRegex(TypeError, "weights: its elements are"):
                    session.forward_backward(tokens, targets, weights=wrong)
            with self.assertRaisesRegex(ValueError, "weights: 1e\\+40 at 0; f32 holds"):
                session.forward_backward(tokens, targets, weights=np.full(TOKENS, 1e40))
            self.assertEqual(session.queued_tokens, 0)

    def test_refuse_what_does_not_lie_on_the_host(self):
        class OnADevice:
            device = "cuda:0"

            def __dlpack_device__(self):
                return 2, 0

            def __dlpack__(self, **_):
                raise AssertionError("nobody reads it")
        with sluice.Session(small_plan()) as session, self.assertRaisesRegex(TypeError, r"tokens: it lies on cuda:0.*tokens\.cpu\(\)"):
            session.forward(OnADevice(), batch(0)[1])

    def test_are_without_a_state_after_a_load_that_failed(self):
        with tempfile.TemporaryDirectory() as folder, sluice.Session(small_plan()) as session:
            good, bad = pathlib.Path(folder) / "good", pathlib.Path(folder) / "bad"
            session.save_state(good)
            shutil.copytree(good, bad)
            weights = bytearray((bad / "model.safetensors").read_bytes())
            weights[-1] ^= 64
            (bad / "model.safetensors").write_bytes(weights)
            with self.assertRaisesRegex(sluice.Error, "damaged"):
                session.load_state(bad)
            for call in (lambda: step(session, 0), lambda: session.save_state(pathlib.Path(folder) / "none"),
                         lambda: session.weight("model.norm.weight"), lambda: session.evaluate(*batch(0))):
                with self.assertRaisesRegex(sluice.Error, "the session has no state"):
                    call()
            session.load_state(good)
            step(session, 0)

    def test_leave_nothing_where_they_are_called(self):
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                self.losses(small_plan(), 1)
                self.assertEqual(os.listdir(), [])
            finally:
                os.chdir(here)

    def test_end_when_closed(self):
        session = sluice.Session(small_plan())
        session.close()
        session.close()
        with self.assertRaisesRegex(sluice.Error, "session: it is closed"):
            session.evaluate(*batch(0))

    def test_are_one_thread_s_at_a_time(self):
        refused, done = [], []
        with sluice.Session(small_plan()) as session:
            def run():
                for _ in range(20):
                    try:
                        done.append(session.evaluate(*batch(0)))
                    except sluice.Error as error:
                        refused.append(str(error))
            threads = [threading.Thread(target=run) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len(set(done)), 1)
        self.assertEqual(len(done) + len(refused), 80)
        self.assertLessEqual(set(refused), {"session: another call of it is under way"})

    def test_two_at_a_time_do_not_disturb_each_other(self):
        plan = small_plan()
        alone = self.losses(plan, 2)
        with sluice.Session(plan) as one, sluice.Session(plan) as other:
            self.assertEqual([step(session, number).loss for number in range(2) for session in (one, other)],
                             [loss for loss in alone for _ in range(2)])

    def test_open_and_close_leak_nothing(self):
        plan = small_plan()

        def held(times):
            for _ in range(times):
                with sluice.Session(plan) as session:
                    session.forward_backward(*batch(0))
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), resident_bytes()
        before, after = held(50), held(1000)
        self.assertEqual(after[:2], before[:2])
        self.assertLess(after[2] - before[2], 2**21)

    def test_are_refused_in_a_fork(self):
        with sluice.Session(small_plan()) as session:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # it is what is tested
                child = os.fork()
            if child == 0:
                said = ""
                try:
                    session.evaluate(*batch(0))
                except sluice.Error as error:
                    said = str(error)
                session.close()
                del session
                os._exit(0 if f"process {os.getppid()} opened it" in said else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            session.evaluate(*batch(0))

    def interrupt(self, call, delay):
        """Makes calls, one after another, until Ctrl-C comes after so many seconds."""
        begun = []
        def send():
            while not begun:  # starting a thread does not bear an interrupt
                time.sleep(0.0001)
            time.sleep(delay)
            signal.raise_signal(signal.SIGINT)
        sender = threading.Thread(target=send)
        sender.start()
        try:
            begun.append(True)
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                call()
            self.fail("no KeyboardInterrupt came")
        except KeyboardInterrupt:
            sender.join()

    def test_are_whole_after_an_interrupt(self):
        """Ctrl-C takes effect when the call under way returns, whichever that is."""
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "cache"  # of costs, so that most interrupts meet the search
            def planned():
                return sluice.plan(sluice.Model.config(CONFIG), sluice.Machine.here(backend="cpu", threads=1, cache=cache),
                                   seq_len=SEQ_LEN, tokens_per_step=TOKENS, host="1GiB", sample_window=SEQ_LEN, deferred_updates=True)
            plan = planned()
            with sluice.Session(plan) as session:
                numbers = itertools.count()
                state = pathlib.Path(folder) / "saved"
                session.save_state(state)
                def gradient():
                    session.discard()
                    session.forward_backward(*batch(0))
                    session.gradient("lm_head.weight")
                def optim_step():
                    session.discard()
                    step(session, session.steps_done)
                def save():
                    saved = pathlib.Path(folder) / f"saved-{next(numbers)}"
                    session.save_state(saved)
                    shutil.rmtree(saved)
                phases = [planned, lambda: sluice.Session(plan).close(), gradient, optim_step, lambda: session.evaluate(*batch(0)),
                          lambda: session.sample([1], tokens=4), save, lambda: session.load_state(state),
                          lambda: session.set_weight("lm_head.weight", session.weight("lm_head.weight"))]
                for phase in phases:
                    for delay in (0.0, 0.001, 0.01):
                        self.interrupt(phase, delay)
                session.load_state(state)
                self.assertEqual(step(session, 0).step, 1)

    def test_share_a_cap_or_are_refused(self):
        """Caps are on what the process holds: of two sessions under one that is enough for one, the second is refused."""
        larger = {**json.loads(CONFIG), "hidden_size": 512, "intermediate_size": 2048, "vocab_size": 4096}
        def plan(cap):
            return sluice.plan(sluice.Model.config(json.dumps(larger)), sluice.Machine.here(backend="cpu", threads=1), seq_len=SEQ_LEN,
                               tokens_per_step=TOKENS, host=cap, compute="f32")
        with self.assertRaises(sluice.Error) as raised:
            plan("1MiB")
        takes = plan("4GiB").device_bytes
        plan = plan(raised.exception.need + takes // 2)
        with sluice.Session(plan) as first:
            step(first, 0)
            with self.assertRaises(sluice.Error) as raised:
                sluice.Session(plan)
            self.assertEqual((raised.exception.kind, raised.exception.tier), ("does not fit", "host"))
            self.assertEqual(step(first, 1).step, 2)
        with sluice.Session(plan) as second:
            step(second, 0)


class Losses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plan = small_plan(weighted=True, log_probabilities=True)

    def weights_after(self, **how):
        with sluice.Session(self.plan) as session:
            for number in range(2):
                session.forward_backward(*batch(number), **how)
                session.optim_step(1e-2)
            return {name: session.weight(name) for name in session.weights}

    def assert_equal_weights(self, one, other):
        for name, values in one.items():
            self.assertTrue(np.array_equal(values, other[name]), name)

    def test_cross_entropy_called_is_the_built_in_one(self):
        plain = self.weights_after()
        self.assert_equal_weights(plain, self.weights_after(loss=sluice.losses.cross_entropy))
        self.assert_equal_weights(plain, self.weights_after(weights=np.ones(TOKENS)))
        self.assertEqual(plain["model.norm.weight"].shape, (32,))

    def test_are_called_with_what_the_step_finds(self):
        tokens, targets = (rows.reshape(4, SEQ_LEN) for rows in batch(0))
        heard = []

        def loss(log_probabilities, wanted):
            heard.append((log_probabilities.copy(), wanted))
            return 3.5, np.zeros_like(log_probabilities)
        with sluice.Session(self.plan) as session:
            before = session.weight("lm_head.weight")
            queued = session.forward_backward(tokens, targets, loss=loss)
            with self.assertRaisesRegex(sluice.Error, "wait for optim_step"):
                queued.log_probabilities()
            step = session.optim_step(1e-2, beta1=0.9)
            self.assertEqual((queued.loss, queued.tokens, step.loss), (3.5, TOKENS, 0))
            found = queued.log_probabilities()
            self.assertTrue(np.array_equal(found, heard[0][0]))
            self.assertTrue(np.array_equal(heard[0][1], targets))
            self.assertEqual(found.shape, targets.shape)
            self.assertTrue(((found == 0) == (targets < 0)).all())
            self.assertTrue((before != session.weight("lm_head.weight")).any(), "weight decay")

    def test_show_gradients_and_state(self):
        name, plan = "model.layers.1.mlp.down_proj.weight", small_plan(deferred_updates=True, compute="f32")  # no master weights
        with sluice.Session(plan) as session:
            session.forward_backward(*batch(0))
            gradient = session.gradient(name)
            self.assertEqual(gradient.shape, session.weights[name])
            session.set_gradient(name, 0 * gradient)
            session.optim_step(1e-2, weight_decay=0)
            state = session.state(name)
            self.assertEqual({slot: (found == 0).all() for slot, found in state.items()}, {"m": True, "v": True})
            session.set_state(name, "m", gradient)
            self.assertTrue(np.array_equal(session.state(name)["m"], gradient))
        with sluice.Session(self.plan) as session:
            session.forward_backward(*batch(0))
            with self.assertRaisesRegex(sluice.Error, "deferred_updates = true"):
                session.gradient(name)

    def test_that_fail_leave_nothing_behind(self):
        class Stop(Exception):
            pass

        def stop(*_):
            raise Stop
        with sluice.Session(self.plan) as session:
            for loss, error in [(stop, Stop), (lambda *_: 1.0, TypeError), (lambda p, _: (1.0, p[:3]), ValueError),
                                (lambda p, _: (1.0, np.full_like(p, np.nan)), sluice.Error)]:
                with self.assertRaises(error):
                    session.forward_backward(*batch(0), loss=loss)
                self.assertEqual(session.queued_tokens, 0)
            with self.assertRaises(ValueError):
                session.forward_backward(*batch(0), loss=stop, weights=np.ones(TOKENS))
            with self.assertRaisesRegex(sluice.Error, "beta1. = 1: allowed are numbers from 0 to 0.99999"):
                session.optim_step(1e-2, beta1=1)


class LossesOfRewards(unittest.TestCase):
    TARGETS = np.array([[-1, 5, 6, -1], [-1, -1, 7, 8]])
    NOW = np.array([[0, -1, -2, 0], [0, 0, -0.5, -3]], np.float32)
    OLD = NOW - np.array([[0, 0.1, -0.5, 0], [0, 0, 0.3, 0]], np.float32)

    def test_are_the_formula_of_the_program(self):
        loss = sluice.losses.grpo(self.TARGETS, [1.0, -2.0], old_log_probabilities=self.OLD, epsilon_high=0.1)
        value, seeds = loss(self.NOW, self.TARGETS)
        counts, advantage, ratio = self.TARGETS >= 0, np.array([[1.0], [-2.0]]), np.exp(self.NOW.astype(float) - self.OLD)
        free, bound = ratio * advantage, np.clip(ratio, 0.8, 1.1) * advantage
        self.assertAlmostEqual(value, -np.minimum(free, bound)[counts].sum() / 4, 6)
        inside = (ratio >= 0.8) & (ratio <= 1.1)
        np.testing.assert_allclose(seeds, np.where(counts & ((free < bound) | inside), -free / 4, 0), rtol=1e-5)
        self.assertAlmostEqual(loss.metrics["clip_ratio/high_mean"], 1 / 4)
        parts = [loss(self.NOW[i:i + 1], self.TARGETS[i:i + 1], slice(i, i + 1)) for i in range(2)]  # rounds
        self.assertAlmostEqual(value, parts[0][0] + parts[1][0], 12)
        self.assertTrue(np.array_equal(seeds, np.concatenate([part[1] for part in parts])))

    def test_take_documents_and_advantages_of_tokens(self):
        positions = np.array([[0, 1, 2, 3], [0, 1, 0, 1]])
        targets = np.array([[-1, 5, 6, -1], [3, -1, 7, 8]])
        loss = sluice.losses.grpo(targets, [1, 2, 4], positions=positions, loss_type="grpo")
        _, seeds = loss(self.NOW, targets)
        np.testing.assert_allclose(seeds, np.array([[0, -1, -1, 0], [-4, 0, -4, -4]]) / 6, rtol=1e-6)
        each = np.array([[0, 1, 1, 0], [0, 0, 2, 4]])
        _, seeds = sluice.losses.grpo(self.TARGETS, each, loss_type="dr_grpo", max_completion_length=8)(self.NOW, self.TARGETS)
        np.testing.assert_allclose(seeds, -each / 16, rtol=1e-6)

    def test_have_advantages_of_groups(self):
        rewards = np.array([[1, 0, 0.5], [3, 3, np.nan]])
        found = sluice.losses.advantages(rewards)
        np.testing.assert_allclose(found, [[0.5 / 0.5001, -0.5 / 0.5001, 0], [0, 0, 0]], rtol=1e-6)
        np.testing.assert_allclose(sluice.losses.advantages(rewards, scale_rewards="none"), [[0.5, -0.5, 0], [0, 0, 0]])

    def test_refuse_by_name(self):
        grpo, targets = sluice.losses.grpo, self.TARGETS
        for call, error, said in [
                (lambda: grpo(targets, [1, 2, 3]), ValueError, "3 advantages of 2 answers"),
                (lambda: grpo(targets, [1, 2], epsilon_low=0.1), TypeError, "epsilon_low"),
                (lambda: grpo(targets, [1, 2], beta=0.1), ValueError, "reference_log_probabilities go with a beta"),
                (lambda: grpo(targets, [1, 2], loss_type="dr_grpo"), ValueError, "max_completion_length"),
                (lambda: grpo(targets, [1, 2], loss_type="ppo")(self.NOW, targets), sluice.Error, "objective.loss_type = ppo"),
                (lambda: grpo(targets, [1, 2])(self.NOW[:1], targets[:1]), ValueError, "was made for"),
                (lambda: sluice.losses.advantages([1, 2]), ValueError, "a row for each prompt")]:
            with self.assertRaisesRegex(error, said):
                call()


class RoundLosses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plan = small_plan(round_losses=True)

    @staticmethod
    def curved(log_probabilities, targets, rows=None):
        """A loss of two terms a target, with its derivatives."""
        return float((log_probabilities**2 / 16 - log_probabilities / 8).sum()), log_probabilities / 8 - np.float32(1 / 8)

    def steps(self, plan, **how):
        with sluice.Session(plan) as session:
            said = []
            for number in range(3):
                queued = session.forward_backward(*batch(number), loss=self.curved, **how)
                said.append((session.optim_step(1e-2).loss, queued.loss))
            return said, {name: session.weight(name) for name in session.weights}

    def test_make_the_steps_of_losses_over_a_call(self):
        (said, weights), (expected, others) = self.steps(self.plan, loss_over="round"), self.steps(small_plan(weighted=True))
        self.assertEqual([loss for loss, _ in said], [loss for loss, _ in expected])
        for (_, one), (_, other) in zip(said, expected):
            self.assertAlmostEqual(one, other, delta=1e-5 * abs(other))
        for name, values in weights.items():
            self.assertTrue(np.array_equal(values, others[name]), name)

    def test_are_called_by_the_step_with_their_rows(self):
        tokens, targets = (rows.reshape(4, SEQ_LEN) for rows in batch(0))
        seen = {"first": [], "second": []}

        def loss(name, begin):
            def call(log_probabilities, wanted, rows):
                self.assertEqual(threading.get_ident(), self.thread)
                self.assertTrue(np.array_equal(wanted, targets[begin:][rows]))
                self.assertEqual(log_probabilities.shape, wanted.shape)
                self.assertTrue(((log_probabilities == 0) == (wanted < 0)).all())
                seen[name] += range(rows.start, rows.stop)
                return 1.5, np.full_like(log_probabilities, -0.25)
            return call
        self.thread = threading.get_ident()
        with sluice.Session(self.plan) as session:
            first = session.forward_backward(tokens[:1], targets[:1], loss=loss("first", 0), loss_over="round")
            second = session.forward_backward(tokens[1:], targets[1:], loss=loss("second", 1), loss_over="round")
            self.assertEqual((seen, second.loss), ({"first": [], "second": []}, None))
            step = session.optim_step(1e-2)
            self.assertEqual(seen, {"first": [0], "second": [0, 1, 2]})
            self.assertEqual(first.loss, 1.5)
            found = [queued.log_probabilities() for queued in (first, second)]
            self.assertEqual(found[1].shape, (3, SEQ_LEN))
            self.assertAlmostEqual(step.loss, -0.25 * float(sum(one.sum() for one in found)), places=3)

    def test_that_raise_end_a_step_that_was_none(self):
        class Stop(Exception):
            pass

        def stop(*_):
            raise Stop

        def calls_back(*_):
            session.steps_done
        with sluice.Session(self.plan) as session, sluice.Session(self.plan) as never:
            for one in (session, never):
                one.forward_backward(*batch(0), loss=self.curved, loss_over="round")
                one.optim_step(1e-2)
            for loss, error in [(stop, Stop), (lambda *_: 1.0, TypeError), (lambda p, *_: (1.0, p[:1, :3]), ValueError),
                                (lambda p, *_: (1.0, np.full_like(p, np.nan)), sluice.Error), (calls_back, sluice.Error)]:
                session.forward_backward(*batch(1), loss=loss, loss_over="round")
                with self.assertRaises(error):
                    session.optim_step(1e-2)
                self.assertEqual((session.queued_tokens, session.steps_done), (0, 1))
            for one in (session, never):
                one.forward_backward(*batch(2), loss=self.curved, loss_over="round")
            self.assertEqual(session.optim_step(1e-2).loss, never.optim_step(1e-2).loss)
            for name in session.weights:
                self.assertTrue(np.array_equal(session.weight(name), never.weight(name)), name)

    def test_see_other_tokens_beside_targets(self):
        tokens, targets = (rows.reshape(4, SEQ_LEN) for rows in batch(0))
        top = np.stack([targets, np.full_like(targets, -1)], axis=-1)

        def beside(log_probabilities, wanted, rows):
            self.assertEqual(log_probabilities.shape, (*wanted.shape, 2 + 1))
            self.assertTrue(np.allclose(log_probabilities[..., 0], log_probabilities[..., 1], atol=1e-5))
            seeds = np.zeros_like(log_probabilities)
            seeds[..., 1], seeds[..., 2] = -1 / 16, 7  # there is no such token
            return 0.0, seeds
        found = []
        for top_tokens, loss in ((2, beside), (0, lambda p, *_: (0.0, np.full_like(p, -1 / 16)))):
            with sluice.Session(small_plan(round_losses=True, top_tokens=top_tokens)) as session:
                session.forward_backward(tokens, targets, loss=loss, loss_over="round", **({"top_tokens": top} if top_tokens else {}))
                session.optim_step(1e-2)
                found.append({name: session.weight(name) for name in session.weights})
        for name, values in found[0].items():
            self.assertTrue(np.allclose(values, found[1][name], atol=2e-3), name)

    def test_learn_from_a_teacher(self):
        tokens, targets = (rows.reshape(4, SEQ_LEN) for rows in batch(0))
        top = np.stack([targets, np.where(targets == 7, 8, 7)], axis=-1).astype(np.int32)
        teacher = np.broadcast_to(np.log(np.float32([0.6, 0.3])), top.shape).astype(np.float32)
        said = []
        with sluice.Session(small_plan(round_losses=True, top_tokens=2)) as session:
            for _ in range(6):
                loss = sluice.losses.distillation(targets, teacher)
                queued = session.forward_backward(tokens, targets, loss=loss, loss_over="round", top_tokens=top)
                session.optim_step(1e-2)
                said.append(queued.loss)
            self.assertAlmostEqual(loss.metrics["top_k_mass/teacher"], 0.9, places=4)
            with self.assertRaisesRegex(ValueError, "go with a loss over rounds"):
                session.forward_backward(tokens, targets, top_tokens=top)
        self.assertLess(said[-1], said[0])

    def test_are_refused_where_they_cannot_be(self):
        with sluice.Session(self.plan) as session:
            with self.assertRaisesRegex(ValueError, "loss_over = step: allowed are call, round"):
                session.forward_backward(*batch(0), loss=self.curved, loss_over="step")
        with sluice.Session(small_plan(weighted=True)) as session:
            with self.assertRaisesRegex(sluice.Error, "round_losses"):
                session.forward_backward(*batch(0), loss=self.curved, loss_over="round")

    def test_end_with_their_session(self):
        """The callable goes when what waits does, whoever drops it."""
        class Counted:
            alive = 0

            def __init__(self):
                Counted.alive += 1

            def __del__(self):
                Counted.alive -= 1

            def __call__(self, log_probabilities, targets, rows):
                return RoundLosses.curved(log_probabilities, targets)
        session = sluice.Session(self.plan)
        session.forward_backward(*batch(0), loss=Counted(), loss_over="round")
        session.optim_step(1e-2)
        self.assertEqual(Counted.alive, 0)
        session.forward_backward(*batch(0), loss=Counted(), loss_over="round")
        session.discard()
        self.assertEqual(Counted.alive, 0)
        session.forward_backward(*batch(0), loss=Counted(), loss_over="round")
        self.assertEqual(Counted.alive, 1)
        session.close()
        self.assertEqual(Counted.alive, 0)

    def test_are_collected_with_a_session_that_they_hold(self):
        session = sluice.Session(self.plan)
        session.forward_backward(*batch(0), loss=lambda p, _, rows: session.steps_done, loss_over="round")
        gone = weakref.ref(session)
        threads = len(os.listdir("/proc/self/task"))
        del session
        gc.collect()
        self.assertIsNone(gone())
        self.assertLessEqual(len(os.listdir("/proc/self/task")), threads)


@unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} is not there")
class CommandLine(unittest.TestCase):
    """The verbs take the steps that `sluice train` does."""

    def test_losses_are_equal_to_the_last_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "config.json").write_text(CONFIG.replace('"vocab_size": 64', '"vocab_size": 256'))
            (folder / "text.txt").write_text("".join(f"line {i} of a text to learn\n" for i in range(300)))
            (folder / "run.toml").write_text(f"""
                model.config = "{folder}/config.json"
                data = {{paths = ["{folder}/text.txt"], cache = "{folder}/cache"}}
                train = {{seq_len = {SEQ_LEN}, tokens_per_step = {TOKENS}, steps = 4, learning_rate = 0.01, schedule = "constant", warmup_steps = 0}}
                run = {{dir = "{folder}/run", backend = "cpu", threads = 1}}
                memory.host = "1GiB"
                sample.tokens = 0
                """)
            subprocess.run([PROGRAM, "train", folder / "run.toml"], check=True, capture_output=True)
            lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
            expected = [(line["loss"], line["gradient_norm"]) for line in lines if line["step"] > 0]
            plan = sluice.plan(sluice.Model.config((folder / "config.json").read_text()), sluice.Machine.here(backend="cpu", threads=1),
                               seq_len=SEQ_LEN, tokens_per_step=TOKENS, host="1GiB")
            data = sluice.Dataset.text(plan, [folder / "text.txt"], cache=folder / "cache")
            found = []
            with sluice.Session(plan) as session:
                for number in range(4):
                    tokens, targets, _ = data.batch(number)
                    for half in (slice(0, TOKENS // 2), slice(TOKENS // 2, TOKENS)):
                        session.forward_backward(tokens[half], targets[half])
                    done = session.optim_step(1e-2)
                    found.append((done.loss, done.gradient_norm))
            self.assertEqual(found, expected)


@unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} is not there: SLUICE_PROGRAM names it where the package is not installed")
class Runs(unittest.TestCase):
    DATA = [{"text": f"line {i} of a text to learn"} for i in range(200)]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "config.json").write_text(CONFIG.replace('"vocab_size": 64', '"vocab_size": 256'))
        self.config = {"model": {"config": str(self.folder / "config.json")}, "data.cache": str(self.folder / "cache"),
                       "train": {"seq_len": 32, "tokens_per_step": 128, "steps": 4, "warmup_steps": 0}, "memory.host": "1GiB", "sample.tokens": 0,
                       "run": {"dir": str(self.folder / "run"), "backend": "cpu", "threads": 1, "checkpoint_every": 2}}

    def fit(self, callbacks=(), data=DATA, **changes):
        return sluice.Trainer({**self.config, **changes}, data=data).fit(callbacks, progress=False)

    def test_tell_every_step_and_leave_a_model(self):
        heard = []
        run = self.fit([heard.append])
        self.assertEqual(heard, run.metrics)
        steps = {line["step"]: line["loss"] for line in heard if "loss" in line}
        self.assertEqual(list(steps), [1, 2, 3, 4])
        self.assertIn("heldout_loss", heard[-1])
        self.assertIn("<svg", run._repr_html_())
        self.assertEqual(sluice.Model.from_pretrained(run.directory / "checkpoints/latest").vocabulary, 256)
        self.assertEqual(self.fit().metrics, [], "nothing is left to do")

    def test_show_what_their_routers_did(self):
        (self.folder / "config.json").write_text(MIXTURE.replace('"vocab_size": 64', '"vocab_size": 256'))
        run = self.fit()
        self.assertIn("worst_load_variation", run.metrics[-1]["router"])
        shown = run._repr_html_()
        self.assertIn("<svg", shown)
        self.assertIn("&lt;h1&gt;Routers of run&lt;/h1&gt;", shown)

    def test_go_on_where_a_callback_ended_them(self):
        class Stop(Exception):
            pass

        def stop(metrics):
            if metrics["step"] == 2:
                raise Stop
        whole = self.fit(data=iter(self.DATA)).metrics
        self.config["run"]["dir"] = str(self.folder / "other")
        with self.assertRaises(Stop):
            self.fit([stop])
        rest = self.fit(data=(dict(record) for record in self.DATA)).metrics
        expected = {line["step"]: line.get("loss") for line in whole}
        for line in rest:
            self.assertEqual(line.get("loss"), expected[line["step"]])

    def test_end_with_what_they_have_when_interrupted(self):
        def interrupt(metrics):
            if metrics["step"] == 1:
                signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt):
            self.fit([interrupt], **{"train.steps": 100000})
        self.assertTrue((self.folder / "run/checkpoints/latest/checkpoint.json").exists())

    def test_say_why_they_cannot_be(self):
        with self.assertRaisesRegex(sluice.Error, "unknown key 'train.step'") as raised:
            self.fit(**{"train.step": 1})
        self.assertEqual(raised.exception.kind, "failed")
        with self.assertRaisesRegex(TypeError, "record 0 is str"):
            self.fit(data=["a text"])
        with self.assertRaisesRegex(TypeError, "data is str; .* data.paths"):
            self.fit(data="chats.jsonl")
        with self.assertRaisesRegex(TypeError, r"a mapping with 'train', 'test'; .* data\['train'\]"):
            self.fit(data={"train": self.DATA, "test": self.DATA})
        with self.assertRaisesRegex(TypeError, "data is int; allowed are records"):
            self.fit(data=3)
        for value, why in ((float("nan"), "Out of range float"), (b"x", "bytes is not JSON"), ("\ud800", "surrogates")):
            with self.assertRaisesRegex(TypeError, f"record 200 is no JSON: .*{why}"):
                self.fit(data=[*self.DATA, {"text": value}])
        with self.assertRaisesRegex(ValueError, "data.paths and data are both given"):
            self.fit(**{"data.paths": ["a.txt"]})

    def test_warn_of_what_the_program_notices(self):
        rendered = [{"text": "USER: a question\\nASSISTANT: an answer"}] * 20
        with self.assertWarnsRegex(UserWarning, "the turn of a chat that was rendered elsewhere: .*records.jsonl:1, "):
            self.fit(data=rendered)
        with self.assertWarnsRegex(UserWarning, "train.epochs = 1 makes 48 steps; train.steps = 4 does not count"):
            self.fit(**{"train.epochs": 1, "run.dir": str(self.folder / "other")})

    def test_take_data_frames(self):
        class Pandas:
            columns = ["text"]

            def __init__(self, records):
                self.records = records

            def to_json(self, orient):
                assert orient == "records"
                return json.dumps(self.records)
        whole = self.fit().metrics
        self.folder = self.folder / "again"
        self.config["run"]["dir"] = str(self.folder / "run")
        frame = self.fit(data=Pandas([{**record, "source": None} for record in self.DATA])).metrics
        self.assertEqual([line.get("loss") for line in frame], [line.get("loss") for line in whole])

    def test_say_what_ended_the_program(self):
        program = self.folder / "program"
        program.write_text("#!/bin/sh\necho 'planning, 2 s' >&2\nkill -9 $$\n")
        program.chmod(0o755)
        with mock.patch.dict(os.environ, SLUICE_PROGRAM=str(program)):
            for call in (self.fit, lambda: sluice.estimate("tiny", machine="h100")):
                with self.assertRaisesRegex(sluice.Error, "ended by signal SIGKILL, .*; it was at: planning, 2 s"):
                    call()
        with mock.patch.dict(os.environ, SLUICE_PROGRAM=str(self.folder / "none")):
            with self.assertRaisesRegex(sluice.Error, "none cannot be started: No such file"):
                self.fit()
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            with self.assertRaisesRegex(sluice.Error, "the run needs two threads"):
                self.fit()

    def test_take_a_configuration_file(self):
        (self.folder / "text.txt").write_text("a text to learn " * 200)
        (self.folder / "run.toml").write_text("""
            model.config = "config.json"
            data = {paths = ["text.txt"], cache = "cache"}
            train = {seq_len = 32, tokens_per_step = 128, steps = 1, warmup_steps = 0}
            run = {dir = "%s", backend = "cpu"}
            memory.host = "1GiB"
            sample.tokens = 0
            """ % (self.folder / "file"))
        run = sluice.Trainer(self.folder / "run.toml").fit(progress=False)
        self.assertEqual((run.directory, run.metrics[-1]["step"]), (self.folder / "file", 1))


@unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} is not there")
class Tables(unittest.TestCase):
    def test_are_records(self):
        step = dict(seq_len=1024, tokens_per_step=4096)
        cards = sluice.compare("tiny", machines=["rtx4090", "rtx3090"], **step)
        self.assertEqual([card["name"].split()[1] for card in cards], ["4090", "3090"])
        with tempfile.TemporaryDirectory() as folder:
            cells = sluice.sweep("tiny", out=folder, device_mem=["1GiB", "16MiB"], host_mem="4GiB", machine="rtx4090", **step)
        self.assertEqual([cell["status"] for cell in cells], ["infeasible", "ok"])
        self.assertAlmostEqual(cells[1]["tokens_per_s"], cards[0]["tokens_per_s"], -1)
        self.assertEqual(sluice.estimate("llama3-8b", seq_len=8192)["parameters"]["all"]["value"], 8030261248)
        with self.assertRaisesRegex(sluice.Error, "llama9"):
            sluice.estimate("llama9")


class Module(unittest.TestCase):
    @unittest.skipIf(shutil.which("nm") is None, "there is no nm")
    def test_gives_others_no_symbols(self):
        """With those of a C++ library that is compiled in, another library's facets are taken for its own."""
        said = subprocess.run(["nm", "-D", "--defined-only", sluice._sluice.__file__], check=True, capture_output=True, text=True).stdout
        self.assertEqual([line.split()[-1] for line in said.splitlines()], ["PyInit__sluice"])


class Types(unittest.TestCase):
    def test_are_what_mypy_expects(self):
        try:
            import mypy  # noqa: F401
        except ImportError:
            self.skipTest("mypy is not installed")
        with tempfile.TemporaryDirectory() as folder:
            use = pathlib.Path(folder) / "use.py"
            use.write_text("""
import numpy as np
import sluice

def planned() -> sluice.Plan:
    return sluice.plan("tiny", clip_norm=0.5, master_weights=True, adapter=sluice.Adapter(rank=4, rank_pattern={"down_proj": 2}))

def run(plan: sluice.Plan) -> list[float]:
    with sluice.Session(plan) as session:
        queued = session.forward_backward(np.zeros(64, np.int32), np.zeros(64, np.int32), loss=sluice.losses.cross_entropy)
        step = session.optim_step(1e-3)
        return [step.loss, queued.loss or 0.0, float(queued.log_probabilities().sum()), float(plan.memory().seconds[-1])]
""")
            for what in (["-p", "sluice"], [use]):
                checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--allow-any-generics", "--cache-dir", folder, *what],
                                         capture_output=True, text=True, cwd=folder)
                self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


class Examples(unittest.TestCase):
    FOLDER = pathlib.Path(__file__).parents[2] / "examples"

    def test_notebooks_run(self):
        for path in sorted(self.FOLDER.glob("notebooks/*.ipynb")):
            cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
            for cell in cells:
                self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), f"{path.name} is kept without outputs")
            code = "\n".join("".join(cell["source"]) for cell in cells)
            done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{path.name}: {done.stderr}")
            self.assertTrue(done.stdout, path.name)

    def test_dpo_learns(self):
        script = self.FOLDER / "python/dpo.py"
        said = subprocess.run([sys.executable, "-W", "error", script], check=True, capture_output=True, text=True).stdout
        losses = [float(line.split()[-1]) for line in said.splitlines()]
        self.assertAlmostEqual(losses[0], np.log(2), 3)
        self.assertLess(losses[-1], 0.5 * losses[0])


if __name__ == "__main__":
    warnings.simplefilter("error")
    # What runs in the background of a shell begins with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
