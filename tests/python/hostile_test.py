#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public call with everything that is not meant for it: no crash, no call without an end, and whatever is refused changes no bit.

PYTHONPATH=build/cpu/python hostile_test.py; each argument gets some of what is there, with SLUICE_SWEEP=1 all of it.
"""
import array
import copy
import faulthandler
import fractions
import gc
import hashlib
import os
import pathlib
import pickle
import random
import resource
import shutil
import sys
import tempfile
import threading
import unittest
import warnings

import numpy as np
import sluice

from package_test import CONFIG, SEQ_LEN, TOKENS, batch, small_plan

ALL = os.environ.get("SLUICE_SWEEP") == "1"
ADDRESSES = 6 << 30  # what an array of 2^40 elements has to be refused in
NAME = "model.norm.weight"


class Hostile:
    """Whatever Python asks of it, it raises."""

    def __init__(self, raised):
        self.raised = raised

    def __raise(self, *_, **__):
        raise self.raised

    __len__ = __iter__ = __getitem__ = __array__ = __index__ = __int__ = __float__ = __bool__ = __fspath__ = __call__ = __raise
    __eq__ = __dlpack_device__ = __dlpack__ = __raise
    __hash__ = None


class Lies(np.ndarray):
    """An array that says it is another one."""
    shape, size, ndim, strides = (2**40,), 2**40, 1, (0,)


class Wide:
    """Memory by way of DLPack of a device of the host, which is none."""

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        return self


KINDS = ("i1", "u1", "i2", ">i2", ">i4", "i8", ">i8", "u8", "f2", "f4", ">f4", "f8", "g", "c8", "c16", "?", "O", "S8", "U8", "M8[s]", "m8[s]", "V8")
EXTREMES = {"f4": (np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38), "f8": (1e308, -1e308, 1e-320), "i4": (-1, -2**31, 2**31 - 1, 63, 64),
            "i8": (-2, 2**31, 2**63 - 1, -2**63, 2**32 + 1), "u8": (2**64 - 1,)}


def arrays():
    """As many elements as a step has, or not, that are not what a step takes."""
    good = batch(0)[0]
    wide, long = np.stack([good, good]), np.concatenate([good, good])
    readonly = good.copy()
    readonly.flags.writeable = False
    cycle = []
    cycle.append(cycle)
    return [
        *(good.astype(kind) for kind in KINDS), *(np.full(TOKENS, value, kind) for kind, values in EXTREMES.items() for value in values),
        long[::2], good[::-1], long[1:TOKENS + 1], wide.T, wide[:1].T, np.asfortranarray(good.reshape(4, SEQ_LEN)), good.view(Lies), readonly,
        np.broadcast_to(good[:1], TOKENS), np.broadcast_to(np.int32(1), 2**40), np.broadcast_to(np.float32(1), (2**20, 2**20)),
        np.lib.stride_tricks.as_strided(good, (TOKENS,), (0,)), np.frombuffer(bytes(4 * TOKENS + 1), np.uint8)[1:].view(np.int32),
        np.ma.masked_array(good, good > 9), np.empty(0, np.int32), np.empty((0, SEQ_LEN), np.float32), np.empty((SEQ_LEN, 0, 3)), np.array(5),
        good.reshape((1,) * 30 + (TOKENS,)), np.zeros(TOKENS, "i4,f4"), np.array([None] * TOKENS), np.array([good, good[1:]], object),
        good[:-1], good[:SEQ_LEN], long, [], [[]], [[1], [2, 3]], cycle, [2**70] * TOKENS, [0.5] * TOKENS, range(TOKENS), memoryview(good),
        array.array("i", good), bytearray(64), good.tobytes(), {}, set(), iter([1])]


def scalars():
    raised = (ValueError("no"), MemoryError(), StopIteration(), GeneratorExit(), RecursionError(), UnicodeError(), BufferError())
    return [
        None, True, 0, -1, 1, 3, 2**31, 2**63 - 1, 2**63, 2**64, -2**63, 2**1000, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"),
        -float("inf"), 1j, np.float64("nan"), np.int8(3), fractions.Fraction(1, 3), "", "1", "\0", "\x1b]0;x\x07", "\ud800", "a" * 1_000_000, "%s{}",
        b"x", b"\xff", "/dev/null/x", "/proc/self/mem", "auto", NAME, "nan", "[[", "1e999GiB", pathlib.Path("there-is-none"), object(), object, len,
        lambda *_: None, Ellipsis, NotImplemented, {"beta1": float("nan")}, {"x": 1}, {1: 2}, {"eps": "1"}, *map(Hostile, raised), Wide()]


def some(values, seed):
    return values if ALL else random.Random(seed).sample(values, min(len(values), 6))


def bits(session):
    """Of all that a session has."""
    found = hashlib.sha256(str((session.steps_done, session.queued_tokens)).encode())
    for name in session.weights:
        found.update(session.weight(name).tobytes())
        for values in session.state(name).values():
            found.update(values.tobytes())
    return found.hexdigest()


class HostileCalls(unittest.TestCase):
    calls = refused = 0

    @classmethod
    def setUpClass(cls):
        faulthandler.enable()
        warnings.simplefilter("ignore")
        cls.limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, cls.limits[1]))
        cls.folder, cls.here = pathlib.Path(tempfile.mkdtemp()), os.getcwd()
        os.chdir(cls.folder)
        cls.plan = small_plan(weighted=True, log_probabilities=True, round_losses=True, sample_window=SEQ_LEN, deferred_updates=True)
        cls.session = sluice.Session(cls.plan)
        cls.session.save_state("start")
        cls.session.forward_backward(*batch(0))
        cls.session.optim_step(1e-2)
        cls.session.save_state("good")
        cls.good = bits(cls.session)

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.calls} calls, {cls.refused} of them refused")
        cls.session.close()
        os.chdir(cls.here)
        shutil.rmtree(cls.folder)
        resource.setrlimit(resource.RLIMIT_AS, cls.limits)

    def call(self, what, *arguments, changes=False, **named):
        """Calls; a call that is refused, and one that only reads, changes nothing. What was changed is put back."""
        type(self).calls += 1
        try:
            done = what(*arguments, **named)
        except BaseException as error:  # whatever a hostile one raised
            type(self).refused += 1
            self.assertNotIsInstance(error, (KeyboardInterrupt, SystemError))
            if isinstance(error, sluice.Error):
                self.assertLessEqual(len(str(error)), 2000, what)
            self.assertEqual(bits(self.session), self.good, f"{getattr(what, '__qualname__', what)} raised {error!r:.200}, and changed something")
            return error
        if changes:
            self.session.discard()
            self.session.load_state("good")
        self.assertEqual(bits(self.session), self.good, what)
        return done

    def each(self, what, good, values, changes=False, skip=lambda name, value: False):
        """Each argument with each of the values, the others as they should be."""
        for name in good:
            for value in some(values, f"{what.__name__} {name}"):
                if not skip(name, value):
                    self.call(what, changes=changes, **{**good, name: value})

    def test_arrays_of_sessions(self):
        tokens, targets = batch(0)
        rows = {"tokens": tokens, "targets": targets, "positions": np.tile(np.arange(SEQ_LEN), TOKENS // SEQ_LEN)}
        values = arrays() + scalars()
        self.each(self.session.forward, rows, values)
        self.each(self.session.evaluate, rows, values)
        for more in ("weights", "seeds"):
            self.each(self.session.forward_backward, {**rows, more: np.ones(TOKENS, np.float32)}, values, changes=True)
        # As a number of tokens some of them are one.
        self.each(self.session.sample, {"prompt": [1], "tokens": 2, "temperature": 0.5, "seed": 1}, values,
                  skip=lambda name, value: name == "tokens" and isinstance(value, int) and value > 2**16)
        norm = self.session.weight(NAME)
        for what, good in ((self.session.set_weight, {"name": NAME}), (self.session.set_state, {"name": NAME, "slot": "m"}),
                           (self.session.set_gradient, {"name": NAME})):
            self.each(what, {**good, "values": norm}, values, changes=True)

    def test_names_and_paths_of_sessions(self):
        for what in (self.session.weight, self.session.state, self.session.gradient):
            self.each(what, {"name": NAME}, scalars())
        for what in (self.session.save_state, self.session.save_weights):
            self.each(what, {"directory": self.folder / "x"}, scalars())
        self.each(self.session.load_state, {"directory": ""}, scalars())

    def test_rates_and_hyperparameters(self):
        for number, value in enumerate(scalars()):
            def step(**how):
                self.session.forward_backward(*batch(1))
                try:
                    return self.session.optim_step(**{"learning_rate": 1e-3, **how})
                except BaseException:
                    self.session.discard()
                    raise
            for name in ("learning_rate", *some(["beta1", "beta2", "eps", "weight_decay", "clip_norm", "x" * 5000, "\x1b"], number)):
                self.call(step, changes=True, **{name: value})

    def test_losses_that_return_and_raise_anything(self):
        session = self.session
        zeros = np.zeros(TOKENS, np.float32)

        def raises(error):
            def loss(*_):
                raise error
            return loss
        inside = [
            session.discard, lambda: session.optim_step(1e-3), lambda: session.forward_backward(*batch(0)), lambda: session.load_state("good"),
            lambda: session.set_weight(NAME, session.weight(NAME)), lambda: session.sample([1], tokens=1), gc.collect,
            lambda: sluice.Session(self.plan).close()]
        errors = (ValueError(), GeneratorExit(), StopIteration(), SystemExit(3), MemoryError(), RecursionError(), sluice.Error("x", "y", {}))
        derivatives = [*scalars(), *arrays(), np.full_like(zeros, np.nan), np.full_like(zeros, np.inf), zeros]
        losses = list(map(raises, errors))
        losses += [lambda *_, value=value: value for value in some(scalars() + arrays(), "returned")]
        losses += [lambda *_, value=value: (0.0, value) for value in some(derivatives, "derivatives")]
        losses += [lambda *_, value=value: (value, zeros) for value in some(scalars(), "values")]
        losses += [lambda *_, what=what: (what(), zeros) and (0.0, zeros) for what in inside]
        # Rows of their own to write beyond, and to keep.
        losses += [lambda p, t, *_: (p.resize(0), t.fill(2**31 - 1)) and (0.0, zeros), lambda p, *_: (p.fill(np.nan), (0.0, p))[1]]
        # Over rounds they have the shape of sequences.
        losses += [lambda p, *_, loss=loss: loss(p, *_) if p.ndim == 1 else (0.0, np.full(p.shape, np.nan)) for loss in losses[-2:]]
        for loss in losses:
            for over in ("call", "round"):
                def whole():
                    try:
                        session.forward_backward(*batch(2), loss=loss, loss_over=over)
                        return session.optim_step(1e-3)
                    except BaseException:
                        session.discard()
                        raise
                self.call(whole, changes=True)
        self.call(lambda: session.forward_backward(*batch(2), loss=lambda *_: (session.close(), zeros)[1:] and (0.0, zeros),
                                                   loss_over="round") and session.optim_step(1e-3))
        session.discard()

    def test_plans_machines_models_and_data(self):
        model, machine = sluice.Model.config(CONFIG), sluice.Machine.preset("rtx4090")
        good = dict(model=model, machine=machine, device=None, host="1GiB", seq_len=SEQ_LEN, tokens_per_step=TOKENS, compute="auto", gradients="auto",
                    state="auto", master_weights=None, stochastic=None, deferred_updates=None, freeze=(), optimizer="adamw", hyperparameters=None,
                    clip_norm=1.0, router_z_loss=0.0, seed=1, packed=False, weighted=False, log_probabilities=False, round_losses=False,
                    top_tokens=0, evaluate=True, sample_window=0, sample_rows=1, progress=None)
        # Plans of steps that are large take long, as they should.
        large = lambda name, value: name in ("seq_len", "tokens_per_step") and isinstance(value, int) and 2**20 < value < 2**63  # noqa: E731
        self.each(sluice.plan, good, scalars(), skip=large)
        self.each(sluice.Machine.here, dict(backend="cpu", device=0, devices="1", peer_copies=True, threads=1, deterministic=False, exact=False, cache=None),
                  scalars())
        self.each(sluice.Machine.preset, dict(name="rtx4090", devices=1), scalars())
        for what, name in ((sluice.Model.preset, "name"), (sluice.Model.config, "json"), (sluice.Model.from_pretrained, "directory"),
                           (sluice.parse_bytes, "text"), (self.plan.memory, "tier"), (self.plan.save, "directory"),
                           (sluice.Session, "plan")):
            self.each(what, {name: ""}, scalars() + arrays())
        self.each(sluice.diff, dict(before=self.plan, after=self.plan), scalars())
        (self.folder / "text.txt").write_text("word " * 400)
        self.each(sluice.Dataset.text, dict(plan=self.plan, paths=[self.folder / "text.txt"], cache=self.folder / "cache", include=[], exclude=[],
                                            heldout=0.0), scalars())
        data = sluice.Dataset.random(self.plan)
        self.each(data.batch, dict(steps_done=0), scalars() + arrays())
        for config in some([value for value in scalars() if isinstance(value, (str, bytes, int, float))], "config"):
            self.call(sluice.Trainer({"model.config": config, "run.dir": self.folder / "run", "train.steps": 1}).fit, progress=False)
        for records in some(scalars() + arrays(), "records"):
            self.call(sluice.Trainer({"run.dir": self.folder / "run", "train.steps": 1, "train.seq_len": 2**40}, data=records).fit, progress=False)
        self.each(sluice.estimate, dict(model="tiny", settings=None, seq_len=64), some(scalars(), "estimate"))

    def test_objects_that_were_never_made_or_are_copied(self):
        for kind in (sluice.Dataset, sluice.ExpertLoad, sluice.LayerLoad, sluice.Machine, sluice.Model, sluice.Plan, sluice.Sample, sluice.Step,
                     type(self.session._of), sluice.Session, sluice.Queued, sluice.Trainer):
            empty = self.call(kind.__new__, kind)
            for name in dir(kind) if isinstance(empty, kind) else ():
                if not name.startswith("__") or name in ("__str__", "__repr__", "__del__"):
                    found = self.call(getattr, empty, name)
                    if callable(found):
                        self.call(found)
        for one in (self.plan, self.session, self.session._of, sluice.Dataset.random(self.plan), self.session.forward_backward(*batch(0))):
            self.session.discard()
            for what in (copy.copy, copy.deepcopy, pickle.dumps, lambda of: type(of)(of), lambda of: setattr(of, "x", 1), lambda of: of.__init__(),
                         hash, lambda of: of < of):
                self.call(what, one)

    def test_threads_and_forks_in_the_middle(self):
        """Calls of all kinds from threads, while others fork; what was under way goes on, and the bits are those of one thread."""
        def work(session, number, stop):
            chance = random.Random(number)
            while not stop.is_set():
                call = chance.choice([
                    lambda: session.evaluate(*batch(0)), lambda: session.forward(*batch(1)), lambda: session.weight(NAME), session.discard,
                    lambda: session.sample([1], tokens=2), lambda: session.queued_tokens, lambda: session.save_weights(f"w{number}"),
                    lambda: session.load_state("nowhere"), lambda: session.set_weight(NAME, [np.nan])])
                try:
                    call()
                except (sluice.Error, ValueError, TypeError):
                    pass
                shutil.rmtree(f"w{number}", ignore_errors=True)
        stop = threading.Event()
        threads = [threading.Thread(target=work, args=(self.session, number, stop), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        rows = batch(0)
        for _ in range(50 if ALL else 5):
            child = os.fork()
            if child == 0:
                for what in (lambda: self.session.evaluate(*rows), self.session.discard, self.session.close,
                             lambda: sluice.Dataset.random(self.plan).batch(0), gc.collect):
                    try:
                        what()
                    except sluice.Error:
                        pass
                os._exit(0)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(bits(self.session), self.good)

    def test_calls_after_the_end(self):
        session = sluice.Session(self.plan)
        queued = session.forward_backward(*batch(0), loss=lambda p, *_: (0.0, np.zeros_like(p)), loss_over="round")
        session.close()
        for name in dir(session):
            if not name.startswith("__") or name in ("__enter__", "__exit__", "__repr__"):
                found = self.call(getattr, session, name)
                for arguments in ((), (NAME,), batch(0), (1e-3,), (None, None, None)) if callable(found) else ():
                    self.call(found, *arguments)
        self.call(queued.log_probabilities)
        self.assertEqual(queued.tokens, TOKENS)
        del session
        gc.collect()
        self.call(queued.log_probabilities)

    def test_zz_the_session_is_as_one_to_which_nothing_was_done(self):
        for number in range(3):
            os.fstat(number)  # nobody closed it
        with sluice.Session(self.plan) as other:
            other.load_state("start")
            other.forward_backward(*batch(0))
            other.optim_step(1e-2)
            self.assertEqual(bits(other), self.good)
            for session in (other, self.session):
                session.forward_backward(*batch(5))
                session.optim_step(1e-2)
            self.assertEqual(bits(other), bits(self.session))


if __name__ == "__main__":
    sys.exit(unittest.main())
