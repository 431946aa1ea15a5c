#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses written with torch, where that is installed: PYTHONPATH=build/cpu/python torch_test.py"""
import unittest

import numpy as np
import package_test
import sluice

try:
    import torch
except ImportError:
    torch = None


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

    def test_weights_are_set_from_tensors(self):
        with sluice.Session(self.plan) as session:
            session.set_weight("model.norm.weight", torch.full((32,), 2.0, requires_grad=True))
            self.assertTrue((session.weight("model.norm.weight") == 2).all())


if __name__ == "__main__":
    unittest.main()
