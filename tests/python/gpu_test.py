#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package on a GPU, beside torch's own context there: PYTHONPATH=build/cuda/python gpu_test.py"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import sluice

try:
    import torch
except ImportError:
    torch = None

TORCH_ON_GPU = torch is not None and torch.cuda.is_available()
if TORCH_ON_GPU:  # what it holds counts in the caps, and is planned for where it is there before
    torch.arange(64, device="cuda", dtype=torch.float32).reshape(8, 8).matmul(torch.ones(8, 8, device="cuda")).sum().item()

SEQ_LEN, TOKENS = 128, 1024
CAPS = {"device": "4GiB", "host": "4GiB", "seq_len": SEQ_LEN, "tokens_per_step": TOKENS}


def why_no_gpu():
    try:
        sluice.Machine.here(backend="cuda")
    except sluice.Error as error:
        return str(error)
    return ""


def batch(step):
    tokens = np.random.default_rng(step % 4).integers(0, 256, (TOKENS // SEQ_LEN, SEQ_LEN + 1), dtype=np.int32)
    return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


@unittest.skipIf(why_no_gpu(), why_no_gpu())
class OnAGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)
        cls.machine = sluice.Machine.here(backend="cuda", cache=cls.cache.name)

    def plan(self, **options):
        return sluice.plan("tiny", self.machine, **CAPS, **options)

    def losses(self, plan, parts=1):
        with sluice.Session(plan) as session:
            found = []
            for step in range(8):
                for rows in zip(*(np.split(array, parts) for array in batch(step))):
                    session.forward_backward(*rows)
                found.append(session.optim_step(1e-3).loss)
            return found

    def test_a_loop_has_the_bits_of_another_whose_rows_come_in_parts(self):
        plan = self.plan(sample_window=SEQ_LEN)
        self.assertLess(plan.device_bytes, 4 * 2**30)
        whole = self.losses(plan)
        self.assertLess(whole[-1], whole[0])
        self.assertEqual(self.losses(plan, parts=2), whole)
        with sluice.Session(plan) as session:
            self.assertEqual(len(session.sample([1, 2, 3], tokens=16).tokens), 16)

    def test_a_state_comes_back(self):
        plan = self.plan()
        with tempfile.TemporaryDirectory() as folder, sluice.Session(plan) as session:
            session.forward_backward(*batch(0))
            session.optim_step(1e-3)
            session.save_state(pathlib.Path(folder) / "state")
            session.forward_backward(*batch(1))
            after = session.optim_step(1e-3).loss
            session.load_state(pathlib.Path(folder) / "state")
            session.forward_backward(*batch(1))
            self.assertEqual(session.optim_step(1e-3).loss, after)

    def test_a_trainer_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            run = sluice.Trainer({"model.preset": "tiny", "memory": {"device": "4GiB", "host": "4GiB"}, "run.backend": "cuda",
                                  "data.cache": self.cache.name, "sample.tokens": 0, "run.dir": folder + "/run",
                                  "train": {"seq_len": SEQ_LEN, "tokens_per_step": TOKENS, "steps": 3}}).fit(progress=False)
            self.assertEqual([line["step"] for line in run.metrics if "loss" in line], [1, 2, 3])

    @unittest.skipUnless(TORCH_ON_GPU, "torch has no GPU here")
    def test_losses_in_torch_beside_its_own_context(self):
        """Linear in the log-probabilities, so that autograd's derivatives are the weights exactly."""
        plan = self.plan(weighted=True)
        tokens, targets = batch(0)
        weights = torch.arange(targets.size, device="cuda").reshape(targets.shape) % 4

        def loss(log_probabilities, _):
            return -(log_probabilities.cuda() * weights).sum()

        def weights_after(**how):
            with sluice.Session(plan) as session:
                session.forward_backward(tokens, targets, **how)
                session.optim_step(1e-2)
                return {name: session.weight(name) for name in session.weights}
        called, given = weights_after(loss=loss), weights_after(seeds=-weights.float().cpu())
        for name, values in called.items():
            self.assertTrue(np.array_equal(values, given[name]), name)

    @unittest.skipUnless(TORCH_ON_GPU, "torch has no GPU here")
    def test_tensors_on_the_gpu_are_refused_with_what_to_write(self):
        tokens, targets = (torch.from_numpy(array).cuda() for array in batch(0))
        with sluice.Session(self.plan()) as session:
            with self.assertRaisesRegex(TypeError, r"cuda:0.*\.cpu\(\)"):
                session.forward_backward(tokens, targets)
            session.forward_backward(tokens.cpu(), targets.cpu())
            self.assertGreater(session.optim_step(1e-3).loss, 0)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_whichever_is_imported_first(self):
        work = """
import sys
import gpu_test
machine = gpu_test.sluice.Machine.here(backend="cuda", cache=sys.argv[1])
print(gpu_test.OnAGpu().losses(gpu_test.sluice.plan("tiny", machine, **gpu_test.CAPS)))
"""
        torch_work = "import torch\nif torch.cuda.is_available(): float((torch.ones(512, 512, device='cuda') @ torch.ones(512, 512, device='cuda')).sum())\n"

        def said(*parts):
            done = subprocess.run([sys.executable, "-B", "-c", "".join(parts), self.cache.name], capture_output=True, text=True,
                                  cwd=pathlib.Path(__file__).parent)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            return done.stdout.splitlines()
        first = said("import sluice\n", torch_work, work)
        self.assertEqual(said(torch_work, work), first)


if __name__ == "__main__":
    # That all of it is skipped is no failure.
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
