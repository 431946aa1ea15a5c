#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package, as it is installed or built: PYTHONPATH=build/cpu/python package_test.py"""
import json
import os
import pathlib
import tempfile
import threading
import unittest
import warnings

import numpy as np
import sluice

CONFIG = json.dumps({
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False})
SEQ_LEN, TOKENS = 16, 64


def small_plan(**options):
    return sluice.plan(sluice.Model.config(CONFIG), sluice.Machine.here(backend="cpu", threads=1), seq_len=SEQ_LEN,
                       tokens_per_step=TOKENS, host="1GiB", **options)


def batch(step):
    tokens = np.random.default_rng(step).integers(0, 64, TOKENS, dtype=np.int32)
    targets = np.roll(tokens, -1)
    targets[SEQ_LEN - 1::SEQ_LEN] = -1
    return tokens, targets


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

    def test_memory_is_arrays_under_the_cap(self):
        memory = self.plan.memory("device")
        self.assertEqual({len(held) for held in memory.bytes.values()}, {len(memory.seconds)})
        self.assertTrue((np.diff(memory.seconds) >= 0).all())
        held = sum(memory.bytes.values())
        self.assertEqual(held.max(), self.plan.data["device"]["peak_bytes"])
        with self.assertRaisesRegex(ValueError, "tier = disk: allowed are device, host"):
            self.plan.memory("disk")

    def test_is_compared_with_one_that_is_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            self.plan.save(pathlib.Path(folder) / "plan")
            other = sluice.plan("tiny", "rtx4090", device="800MiB", host="4GiB", tokens_per_step=4096)
            said = sluice.diff(pathlib.Path(folder) / "plan/plan.json", other)
        self.assertEqual(said, sluice.diff(self.plan, other))
        self.assertTrue(said)

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
                (lambda: sluice.plan("tiny", "rtx4090", optimizer="adam"), "optimizer = adam: allowed are"),
                (lambda: sluice.plan("tiny", "rtx4090", hyperparameters={"beta9": 1}), "beta9")]:
            with self.assertRaises(sluice.Error) as raised:
                call()
            self.assertIn(says, str(raised.exception))

    def test_a_preset_of_a_machine_runs_nothing(self):
        with self.assertRaises(sluice.Error):
            sluice.Session(sluice.plan("tiny", "rtx4090", tokens_per_step=4096))


class Sessions(unittest.TestCase):
    def losses(self, plan, steps):
        with sluice.Session(plan) as session:
            return [session.step(*batch(step), 1e-2).loss for step in range(steps)]

    def test_learn_and_have_equal_bits_under_another_cap(self):
        roomy = small_plan()
        tight = small_plan(device=roomy.device_bytes * 2 // 3 + 2**20)
        losses = self.losses(roomy, 3)
        self.assertEqual(losses, self.losses(tight, 3))
        self.assertEqual(len(set(losses)), 3)

    def test_go_on_from_what_was_saved(self):
        plan = small_plan(generate_window=SEQ_LEN)
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder) / "saved"
            with sluice.Session(plan) as session:
                session.step(*batch(0), 1e-2)
                session.save(saved)
                whole = session.step(*batch(1), 1e-2)
                held_out, text = session.evaluate(*batch(9)), session.generate([1, 2, 3], tokens=5)
            with sluice.Session(plan) as session:
                session.restore(saved)
                self.assertEqual(session.steps_done, 1)
                again = session.step(*batch(1), 1e-2)
                self.assertEqual((again.loss, again.gradient_norm), (whole.loss, whole.gradient_norm))
                self.assertEqual(session.evaluate(*batch(9)), held_out)
                self.assertEqual(session.generate([1, 2, 3], tokens=5), text)

    def test_take_arrays_of_other_types_and_refuse_what_does_not_fit(self):
        with sluice.Session(small_plan()) as session:
            tokens, targets = batch(0)
            self.assertEqual(session.step(tokens.astype(np.int64), targets.astype(np.int64), 1e-2).step, 1)
            with self.assertRaises(sluice.Error):
                session.step(tokens[:-SEQ_LEN], targets[:-SEQ_LEN], 1e-2)
            with self.assertRaises(sluice.Error):
                session.step(np.full_like(tokens, 64), targets, 1e-2)

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
        self.assertLessEqual(set(refused), {"session: another thread is in a call of it"})

    def test_open_and_close_leak_nothing(self):
        plan = small_plan()

        def held():
            for _ in range(20):
                sluice.Session(plan).close()
            resident = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            return len(os.listdir("/proc/self/fd")), threading.active_count(), resident
        before, after = held(), held()
        self.assertEqual(after[:2], before[:2])
        self.assertLess(after[2] - before[2], 2**21)


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main()
