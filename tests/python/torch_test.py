#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses written with torch, where that is installed: PYTHONPATH=build/cpu/python torch_test.py"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import package_test
import sluice

try:
    import torch
except ImportError:
    torch = None
try:
    import transformers
except ImportError:
    transformers = None


@unittest.skipIf(torch is None, "torch is not installed")
class Losses(unittest.TestCase):
    def setUp(self):
        self.plan = package_test.small_plan(weighted=True, log_probabilities=True)

    def weights_after(self, batch, **how):
        with sluice.Session(self.plan) as session:
            session.forward_backward(*batch, **how)
            session.optim_step(1e-2)
            return {name: session.weight(name) for name in session.weights}

    def test_are_differentiated(self):
        """Linear in the log-probabilities, so that autograd's derivatives are the weights exactly."""
        tokens, targets = (torch.from_numpy(rows) for rows in package_test.batch(0))
        weights = torch.arange(package_test.TOKENS) % 4

        def loss(log_probabilities, wanted):
            self.assertTrue(torch.equal(wanted, targets))
            return -(log_probabilities * weights).sum()
        called = self.weights_after((tokens, targets), loss=loss)
        given = self.weights_after((tokens, targets), seeds=-weights.float())
        plain = self.weights_after((tokens, targets), loss=sluice.losses.cross_entropy)
        built_in = self.weights_after((tokens, targets))
        for name in called:
            self.assertTrue(np.array_equal(called[name], given[name]), name)
            self.assertTrue(np.array_equal(plain[name], built_in[name]), name)

    def test_have_values_and_are_scalars(self):
        with sluice.Session(self.plan) as session:
            queued = session.forward_backward(*package_test.batch(0), loss=lambda p, _: (p * p).sum())
            session.optim_step(1e-2)
            found = torch.from_numpy(queued.log_probabilities())
            self.assertEqual(queued.loss, float((found * found).sum()))
            for returned in (lambda p, _: p, lambda p, _: p.detach().sum(), lambda p, _: 1.0):
                with self.assertRaises(TypeError):
                    session.forward_backward(*package_test.batch(0), loss=returned)

    def test_over_rounds_are_differentiated(self):
        """Linear again, by sequences, so that the derivatives are exact however rounds cut the call."""
        tokens, targets = (torch.from_numpy(rows).reshape(4, -1) for rows in package_test.batch(0))
        weights = torch.arange(4.0)

        def loss(log_probabilities, wanted, rows):
            self.assertTrue(torch.equal(wanted, targets[rows]))
            return -(log_probabilities * weights[rows, None]).sum()
        seeds = -weights[:, None].expand(targets.shape).contiguous()
        given = self.weights_after((tokens, targets), seeds=seeds)
        with sluice.Session(package_test.small_plan(round_losses=True)) as session:
            queued = session.forward_backward(tokens, targets, loss=loss, loss_over="round")
            step = session.optim_step(1e-2)
            self.assertAlmostEqual(queued.loss, step.loss, delta=1e-4 * abs(step.loss))
            for name, values in given.items():
                self.assertTrue(np.array_equal(session.weight(name), values), name)

    def test_weights_are_set_from_tensors(self):
        with sluice.Session(self.plan) as session:
            session.set_weight("model.norm.weight", torch.full((32,), 2.0, requires_grad=True))
            self.assertTrue((session.weight("model.norm.weight") == 2).all())


@unittest.skipIf(torch is None, "torch is not installed")
class Runtimes(unittest.TestCase):
    """Both bring a runtime of threads of their own."""
    WORK = """
import sys
import package_test as t
import sluice
machine = sluice.Machine.here(backend="cpu", threads=2, cache=sys.argv[1])  # with the costs, and so the shape, of the first
plan = sluice.plan(sluice.Model.config(t.CONFIG), machine, seq_len=t.SEQ_LEN, tokens_per_step=t.TOKENS, host="2GiB", compute="f32")
def losses():
    with sluice.Session(plan) as session:
        return [t.step(session, number).loss for number in range(3)]
print(losses())
"""
    PRODUCT = """
import torch
a = torch.arange(512 * 512, dtype=torch.float32).reshape(512, 512).sin()
print(torch.get_num_threads(), float((a @ a).double().sum()), losses() if "plan" in globals() else None)
"""

    def setUp(self):
        self.cache = tempfile.TemporaryDirectory()
        self.addCleanup(self.cache.cleanup)

    def said(self, *parts):
        done = subprocess.run([sys.executable, "-c", "".join(parts), self.cache.name], capture_output=True, text=True, check=True,
                              cwd=pathlib.Path(__file__).parent)
        return done.stdout.splitlines()

    def test_do_not_disturb_each_other(self):
        alone, torch_alone = self.said(self.WORK), self.said(self.PRODUCT)
        first, last = self.said("import torch", self.WORK), self.said(self.WORK, self.PRODUCT)
        self.assertEqual(first, alone)
        self.assertEqual(last[0], alone[0])
        self.assertTrue(torch_alone[0].endswith(" None"))
        self.assertEqual(last[1], torch_alone[0].removesuffix("None") + alone[0])
        self.assertEqual(self.said("import torch", self.WORK, self.PRODUCT), last)


@unittest.skipIf(torch is None or transformers is None, "torch and transformers are not installed")
class Gradients(unittest.TestCase):
    """Of every tensor, against autograd through transformers; tolerances as tests/reference/gradients_test.cpp derives them."""
    ROWS = package_test.TOKENS // package_test.SEQ_LEN

    def setUp(self):
        torch.manual_seed(1)
        config = transformers.Qwen3Config(
            hidden_size=24, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            vocab_size=64, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.2, attn_implementation="eager")
        self.model = transformers.Qwen3ForCausalLM(config).float()
        with tempfile.TemporaryDirectory() as folder:
            self.model.save_pretrained(folder)
            plan = sluice.plan(sluice.Model.from_pretrained(folder), sluice.Machine.here(backend="cpu", threads=1), host="1GiB",
                               seq_len=package_test.SEQ_LEN, tokens_per_step=package_test.TOKENS, compute="f32", gradients="f32",
                               state="f32", weighted=True, deferred_updates=True)
            self.session = sluice.Session(plan)
        self.addCleanup(self.session.close)
        self.tokens, self.targets = (rows.reshape(self.ROWS, -1) for rows in package_test.batch(0))

    def log_probabilities(self):
        targets = torch.from_numpy(self.targets).long()
        logits = self.model(input_ids=torch.from_numpy(self.tokens).long(), use_cache=False).logits
        found = torch.log_softmax(logits, -1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        return found * (targets >= 0)

    def assert_gradients(self, of, **how):
        """Of what forward_backward(**how) queues: those of a function of torch's log-probabilities."""
        self.session.forward_backward(self.tokens, self.targets, **how)
        value = of(self.log_probabilities())
        self.model.zero_grad()
        value.backward()
        for name, tensor in self.model.named_parameters():
            expected, found = tensor.grad.numpy(), self.session.gradient(name)
            self.assertEqual(found.shape, expected.shape)
            self.assertLess(np.linalg.norm(found - expected), 2e-5 * np.linalg.norm(expected), name)
        self.session.discard()
        return float(value.detach())

    def test_of_weights(self):
        weights = np.random.default_rng(1).standard_normal(self.tokens.shape).astype(np.float32)
        count = int((self.targets >= 0).sum())
        self.assert_gradients(lambda p: -(p * torch.from_numpy(weights)).sum() / count, weights=weights)

    def test_of_seeds(self):
        seeds = np.random.default_rng(2).standard_normal(self.tokens.shape).astype(np.float32)
        self.assert_gradients(lambda p: (p * torch.from_numpy(seeds)).sum(), seeds=seeds)

    def test_of_a_preference_loss(self):
        """DPO: rows 0 and 1 are preferred to rows 2 and 3."""
        reference = self.log_probabilities().detach().sum(1) + torch.tensor([1.5, 0.5, -0.5, 1.0])
        losses = []

        def dpo(log_probabilities, targets=None):
            gain = log_probabilities.sum(1) - reference
            losses.append(-torch.nn.functional.logsigmoid(0.5 * (gain[:2] - gain[2:])).mean())
            return losses[-1]
        value = self.assert_gradients(dpo, loss=dpo)
        self.assertAlmostEqual(float(losses[0].detach()), value, 5)


if __name__ == "__main__":
    # That all of it is skipped is no failure.
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
