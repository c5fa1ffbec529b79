# SPDX-License-Identifier: MIT
"""adacc against torch without it: python -m unittest discover tests"""
import threading
import unittest

import adacc
import torch
from torch import nn
from torch.nn import functional as F


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.SiLU(), nn.MaxPool2d(2),
            nn.Dropout(0.2))
        self.out = nn.Linear(32 * 16 * 16, 10)

    def forward(self, x):
        return self.out(self.convolutions(x).flatten(1))

    @staticmethod
    def batch():
        return torch.randn(16, 3, 32, 32)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        self.encoder = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.lstm = nn.LSTM(64, 64, batch_first=True)
        self.out = nn.Linear(64, 50)

    def forward(self, tokens):
        return self.out(self.lstm(self.encoder(self.embedding(tokens)))[0])

    @staticmethod
    def batch():
        return torch.randint(0, 50, (16, 60))


def gradients(model, batch, around=None, run=None):
    torch.manual_seed(1)
    if around is None:
        loss = (run or model)(batch).square().mean()
    else:
        with around:
            loss = (run or model)(batch).square().mean()
    return torch.autograd.grad(loss, list(model.parameters()))


def error(mine, exact):
    return float(sum((a - b).square().sum() for a, b in zip(mine, exact)) /
                 sum(b.square().sum() for b in exact))


class SavedTensors(unittest.TestCase):
    def each(self):
        for kind in (Image, Sequence):
            torch.manual_seed(0)
            yield kind(), kind.batch()

    def test_lossless_keeps_every_bit(self):
        for model, batch in self.each():
            exact = gradients(model, batch)
            hooks = adacc.saved_tensors("lossless", least_bytes=1)
            for mine, theirs in zip(gradients(model, batch, hooks), exact):
                self.assertTrue(torch.equal(mine, theirs))
            self.assertGreater(hooks.statistics.encoded, 0)
            self.assertLess(hooks.statistics.encoded_bytes, hooks.statistics.raw_bytes)

    def test_lossy_policies_are_near(self):
        for model, batch in self.each():
            exact = gradients(model, batch)
            for policy, most in (("bf16", 1e-4), ("int8", 2e-3), ("tolerated", 3e-2), ("int4", 6e-2)):
                hooks = adacc.saved_tensors(policy, least_bytes=1)
                self.assertLess(error(gradients(model, batch, hooks), exact), most, policy)
                self.assertGreater(hooks.statistics.encoded, 5)

    def test_all_that_is_packed_is_unpacked_and_freed(self):
        adacc.memory.count()
        for model, batch in self.each():
            del batch
            gradients(model, type(model).batch(), adacc.saved_tensors("int8"))  # libraries' caches
            before = adacc.memory.live()
            hooks = adacc.saved_tensors("int8", least_bytes=1)
            gradients(model, type(model).batch(), hooks)
            self.assertEqual(hooks.statistics.packed, hooks.statistics.unpacked)
            self.assertEqual(adacc.memory.live(), before)

    def test_memory_between_forward_and_backward(self):
        adacc.memory.count()
        w = torch.randn(512, 512, requires_grad=True)
        held = {}
        for policy in ("as_is", "int8", "int4"):
            before = adacc.memory.live()
            with adacc.saved_tensors(policy):
                x = w * 2
                for _ in range(8):
                    x = x.sin()
                loss = x.sum()
            del x
            held[policy] = adacc.memory.live() - before
            loss.backward()
            w.grad = None
            del loss
            self.assertEqual(adacc.memory.live(), before)
        self.assertLess(held["int8"], 0.3 * held["as_is"])
        self.assertLess(held["int4"], 0.2 * held["as_is"])

    def test_a_policy_in_python(self):
        seen = []

        def policy(tensor):
            seen.append((tensor.sizes, tensor.dtype, tensor.savers, tensor.bytes))
            return "int8" if "aten::sin" in tensor.savers else "as_is"

        w = torch.randn(256, 256, requires_grad=True)
        hooks = adacc.saved_tensors(policy)
        with hooks:
            loss = (w * 2).sin().cos().sum()
        loss.backward()
        self.assertEqual(seen[0], ([256, 256], torch.float32, ["aten::sin"], 4 * 256 * 256))
        self.assertEqual(seen[1][2], ["aten::cos"])
        self.assertEqual(hooks.statistics.encoded, 1)

    def test_what_a_policy_raises_reaches_its_caller(self):
        w = torch.randn(256, 256, requires_grad=True)

        def fails(tensor):
            raise RuntimeError("not today")

        with self.assertRaisesRegex(RuntimeError, "not today"):
            with adacc.saved_tensors(fails):
                (w * 2).sin().cos().sum()
        with self.assertRaisesRegex(ValueError, "forms are as_is"):
            with adacc.saved_tensors(lambda tensor: "int3"):
                (w * 2).sin().cos().sum()
        with self.assertRaisesRegex(ValueError, "there is no policy 'int3'"):
            adacc.saved_tensors("int3")
        with self.assertRaisesRegex(TypeError, "a name or a callable"):
            adacc.saved_tensors(3)
        with adacc.saved_tensors("int8"):  # the ones before have left
            (w * 2).sin().cos().sum().backward()

    def test_in_place_changes_are_errors(self):
        w = torch.randn(256, 256, requires_grad=True)
        with adacc.saved_tensors("int8"):
            x = w * 2
            loss = (x * x).sum()
        x.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_double_backward_and_a_retained_graph(self):
        w = torch.randn(256, 256, requires_grad=True)

        def second(around):
            with around:
                loss = torch.tanh((w * 0.1) @ w).square().sum()
            (first,) = torch.autograd.grad(loss, w, create_graph=True)
            (once,) = torch.autograd.grad(first.square().sum(), w, retain_graph=True)
            (twice,) = torch.autograd.grad(first.square().sum(), w)
            self.assertTrue(torch.equal(once, twice))
            return once

        exact = second(torch.enable_grad())
        self.assertTrue(torch.equal(second(adacc.saved_tensors("lossless", least_bytes=1)), exact))
        self.assertLess(error([second(adacc.saved_tensors("int8"))], [exact]), 1e-3)

    def test_hooks_nest_and_are_of_their_thread(self):
        w = torch.randn(256, 256, requires_grad=True)
        outer, inner = adacc.saved_tensors("int8"), adacc.saved_tensors("lossless")
        with outer:
            with inner:
                (w * 2).square()
            other = threading.Thread(target=lambda: (w * 2).square())
            other.start()
            other.join()
            self.assertEqual((outer.statistics.packed, inner.statistics.packed), (0, 1))
            (w * 2).square()
            self.assertEqual(outer.statistics.packed, 1)

        results = {}

        def run(name):
            for _ in range(5):
                with adacc.saved_tensors(lambda tensor: "int8"):
                    loss = (w * 2).sin().square().sum()
                results[name] = torch.autograd.grad(loss, w)[0]

        threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in range(1, 4):
            self.assertTrue(torch.equal(results[i], results[0]))

    def test_autocast(self):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)), \
            torch.randn(256, 256)

        def run(batch):
            with torch.autocast("cpu", torch.bfloat16):
                return model(batch).float()

        exact = gradients(model, x, run=run)
        hooks = adacc.saved_tensors("int8")
        self.assertLess(error(gradients(model, x, hooks, run), exact), 1e-3)
        self.assertGreater(hooks.statistics.parameters, 0)  # casts of weights among them


class Checkpoint(unittest.TestCase):
    def test_same_bits_with_dropout_and_nested(self):
        torch.manual_seed(0)
        model, tokens = Sequence(), Sequence.batch()
        exact = gradients(model, tokens)

        def run(batch):
            def head(x):
                return model.out(adacc.checkpoint(lambda y: model.lstm(y)[0], x))
            x = adacc.checkpoint(model.encoder, model.embedding(batch))
            return adacc.checkpoint(head, x)

        for around in (None, adacc.saved_tensors("lossless", least_bytes=1)):
            for mine, theirs in zip(gradients(model, tokens, around, run), exact):
                self.assertTrue(torch.equal(mine, theirs))

    def test_inputs_are_encoded(self):
        adacc.memory.count()
        block = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))

        def held(around):
            before = adacc.memory.live()
            with around:
                x = torch.randn(512, 128)
                for _ in range(6):
                    x = adacc.checkpoint(block, x)
                loss = x.square().sum()
            del x
            bytes_held = adacc.memory.live() - before
            loss.backward()
            for p in block.parameters():
                p.grad = None
            return bytes_held

        plain = held(torch.enable_grad())
        self.assertLess(held(adacc.saved_tensors("int8")), 0.4 * plain)


if __name__ == "__main__":
    unittest.main()
