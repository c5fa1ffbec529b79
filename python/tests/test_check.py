# SPDX-License-Identifier: MIT
"""adacc.check: what it says, and that nothing is left of it."""
import json
import random
import unittest

import adacc
import torch
from test_adacc import begin
from test_guest import Rate
from torch import nn
from torch.nn import functional as F


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.out = nn.Linear(16 * 16 * 16, 10)

    def forward(self, x):
        x = F.dropout(F.gelu(self.norm(self.convolution(x))), 0.1, self.training)
        return self.out(x.flatten(1))


def loss_fn(model):
    torch.manual_seed(3)
    x = torch.randn(16, 3, 16, 16)
    return F.cross_entropy(model(x * 1), torch.arange(16) % 10)


class Check(unittest.TestCase):
    def setUp(self):
        begin(self)
        self.model = Normed()

    def test_a_model_within_the_bounds(self):
        report = adacc.check(self.model, loss_fn, least_bytes=1)
        self.assertTrue(report.ok, report)
        self.assertIsNone(report.operators)
        self.assertEqual({each.name for each in report.parameters},
                         {name for name, _ in self.model.named_parameters()})
        offs = [each.off for each in report.parameters if not each.negligible]
        self.assertEqual(offs, sorted(offs, reverse=True))
        self.assertGreater(offs[0], 0)
        self.assertGreater(report.encoded, 0)
        self.assertRegex(str(report), r"(?s)under tolerated: the whole gradient is [0-9.e-]+ off.*: within the bounds\n")
        # What batch norm takes away again has a gradient of rounding alone.
        self.assertIn("convolution.bias", [each.name for each in report.parameters if each.negligible])

    def test_figures_are_those_of_two_steps(self):
        names, parameters = zip(*self.model.named_parameters())
        exact = torch.autograd.grad(loss_fn(self.model), parameters)
        with adacc.saved_tensors("int8", least_bytes=1):
            loss = loss_fn(self.model)
        mine = torch.autograd.grad(loss, parameters)
        report = adacc.check(self.model, loss_fn, "int8", least_bytes=1)
        self.assertAlmostEqual(report.loss, float(loss.detach()), places=6)
        found = {each.name: each for each in report.parameters}
        for name, a, b in zip(names, mine, exact):
            off = float((a - b).double().square().sum() / b.double().square().sum())
            self.assertAlmostEqual(found[name].off, off, delta=1e-6 * off + 1e-12)
        whole = sum(float((a - b).double().square().sum()) for a, b in zip(mine, exact)) / \
            sum(float(b.double().square().sum()) for b in exact)
        self.assertAlmostEqual(report.off, whole, delta=1e-6 * whole)

    def test_lossless_is_exact(self):
        report = adacc.check(self.model, loss_fn, "lossless", least_bytes=1, blame=True)
        self.assertEqual((report.off, max(each.off for each in report.parameters)), (0.0, 0.0))
        self.assertEqual(report.operators, [])
        self.assertIn("nothing loses anything", str(report))

    def test_the_operator_to_blame(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.rates = nn.Linear(128, 128), nn.Parameter(torch.randn(256, 256))

            def forward(self, x):
                return F.gelu(self.linear(x)).square().mean() + Rate.apply(self.rates * 1).mean()

        def loss_of(model):
            torch.manual_seed(1)
            return model(torch.randn(256, 128))

        report = adacc.check(Model(), loss_of, lambda tensor: "int8", least_bytes=1)
        self.assertFalse(report.ok, report)
        self.assertIn("Rate", report.operators[0].savers, report)
        self.assertGreater(report.operators[0].worst, 0.05)
        self.assertIn("gelu", " ".join(each.savers for each in report.operators[1:]))
        self.assertTrue(all(each.worst < 0.01 for each in report.operators[1:]), report)
        self.assertIn("over a bound", str(report))
        self.assertIn("Rate: 1 as int8", str(report))
        # Ready policies name who is to blame with their own forms.
        asked = adacc.check(self.model, loss_fn, least_bytes=1, blame=True)
        self.assertTrue(asked.ok)
        self.assertLessEqual({"int4", "int8"}, {each.form for each in asked.operators}, asked)
        self.assertEqual(json.loads(json.dumps(asked.as_dict()))["operators"][0]["savers"],
                         asked.operators[0].savers)

    def test_gradients_that_are_no_numbers(self):
        class Breaks(torch.autograd.Function):
            """No number, if the numbers are not what they were."""

            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.sum()

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                exact = torch.linspace(1, 2, x.numel()).view_as(x)
                return torch.where(x == exact, grad, torch.tensor(float("nan")))

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.linspace(1, 2, 4096))

        report = adacc.check(Model(), lambda model: Breaks.apply(model.w * 1), lambda tensor: "int4", least_bytes=1)
        self.assertFalse(report.ok)
        self.assertIn("not finite", str(report))
        self.assertIn("Breaks", report.operators[0].savers)

    def test_all_is_as_it_was(self):
        loss_fn(self.model).backward()
        before = {name: p.grad for name, p in self.model.named_parameters()}
        values = {name: grad.clone() for name, grad in before.items()}
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        buffers = dict(self.model.named_buffers())
        generator, of_python = torch.get_rng_state(), random.getstate()

        def draws(model):
            x = torch.randn(16, 3, 16, 16) * (1 + random.random())
            return F.cross_entropy(model(x), torch.arange(16) % 10)

        def fails(model):
            draws(model)
            raise KeyError("not today")
        adacc.check(self.model, draws, blame=True)
        with self.assertRaisesRegex(KeyError, "not today"):
            adacc.check(self.model, fails)
        for name, p in self.model.named_parameters():
            self.assertIs(p.grad, before[name])
            self.assertTrue(torch.equal(p.grad, values[name]))
        for name, value in self.model.state_dict().items():
            self.assertTrue(torch.equal(value, state[name]), name)
        for name, buffer in self.model.named_buffers():
            self.assertIs(buffer, buffers[name])
        self.assertTrue(torch.equal(torch.get_rng_state(), generator))
        self.assertEqual(random.getstate(), of_python)

    def test_checkpoints_with_reentry(self):
        from torch.utils.checkpoint import checkpoint
        stack = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128))

        def loss_of(model):
            torch.manual_seed(1)
            return checkpoint(model, torch.randn(256, 128, requires_grad=True), use_reentrant=True).square().mean()
        self.assertTrue(adacc.check(stack, loss_of).ok)

    def test_what_cannot_be_checked(self):
        with self.assertRaisesRegex(TypeError, "is a torch.nn.Module, not a function"):
            adacc.check(loss_fn, self.model)
        with self.assertRaisesRegex(TypeError, "loss_fn is called with the model and returns the loss; it is a Tensor"):
            adacc.check(self.model, loss_fn(self.model))
        with self.assertRaisesRegex(TypeError, r"returned a tensor of \[2\]; a loss is a tensor of one element"):
            adacc.check(self.model, lambda model: loss_fn(model).expand(2))
        with self.assertRaisesRegex(TypeError, "returned a tensor of .* without a graph"):
            adacc.check(self.model, lambda model: loss_fn(model).detach())
        with self.assertRaisesRegex(TypeError, "returned a NoneType"):
            adacc.check(self.model, lambda model: None)
        batches = iter(torch.randn(4, 16, 3, 16, 16))
        with self.assertRaisesRegex(ValueError, "the loss was .* and then .*: loss_fn has to take the same batch"):
            adacc.check(self.model, lambda model: model(next(batches)).square().mean())

        def updates(model):
            loss = loss_fn(model)
            with torch.no_grad():
                model.out.bias.add_(0)
            return loss
        with self.assertRaisesRegex(ValueError, "a step changed the parameter out.bias"):
            adacc.check(self.model, updates)
        for around in (adacc.saved_tensors("int8"), adacc.budget("50%")):
            with self.assertRaisesRegex(RuntimeError, "hooks for saved tensors are entered around it"):
                with around:
                    adacc.check(self.model, loss_fn)
        with self.assertRaisesRegex(ValueError, "no parameter of the model asks for a gradient"):
            adacc.check(nn.GELU(), loss_fn)
        with self.assertRaisesRegex(ValueError, "there is no policy 'int3'"):
            adacc.check(self.model, loss_fn, "int3")
        with self.assertRaisesRegex(ValueError, "has no sizes yet"):
            adacc.check(nn.LazyLinear(3), loss_fn)
        if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            handle = self.model.out.weight.register_post_accumulate_grad_hook(lambda p: None)
            with self.assertRaisesRegex(ValueError, "out.weight has a hook that runs once its gradient is there"):
                adacc.check(self.model, loss_fn)
            handle.remove()


if __name__ == "__main__":
    unittest.main()
