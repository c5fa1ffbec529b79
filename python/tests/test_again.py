# SPDX-License-Identifier: MIT
"""Operators that run again: outputs of casts, GELU, SiLU, products and norms whose inputs are saved anyway are dropped,
and gradients keep their bits."""
import gc
import unittest

import adacc
import torch
from devices import COUNTED_DEVICES, DEVICES
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A GPT's and a Llama's feed-forward layers."""

    def __init__(self, width, approximate):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.gate, self.value, self.out = (nn.Linear(*each, bias=False) for each in ((width, 2 * width),) * 2 +
                                           ((2 * width, width),))
        self.approximate = approximate

    def forward(self, x):
        x = x + self.down(F.gelu(self.up(self.norm(x)), approximate=self.approximate))
        return x + self.out(F.silu(self.gate(x)) * self.value(x))


def live(device):
    gc.collect()
    if device == "cpu":
        return adacc.memory.live()
    return torch.cuda.memory_allocated()


def step(model, x, around, autocast=False):
    """Gradients, and the bytes between forward and backward beside those before."""
    model.zero_grad()
    before = live(x.device.type)
    with around, torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
        loss = model(x).float().square().mean()
    held = live(x.device.type) - before
    loss.backward()
    return [p.grad.clone() for p in model.parameters()], held


def bits(tensors):
    return [t.detach().cpu().contiguous().view(torch.uint8) for t in tensors]


class Again(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        adacc.memory.count()

    def setUp(self):
        torch.manual_seed(1)

    def assert_same(self, mine, exact):
        for a, b in zip(bits(mine), bits(exact)):
            self.assertTrue(torch.equal(a, b))

    def test_gradients_keep_their_bits_in_less_memory(self):
        for device in DEVICES:
            for dtype, autocast in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
                for approximate in "none", "tanh":
                    with self.subTest(device=device, dtype=dtype, autocast=autocast, approximate=approximate):
                        model = nn.Sequential(*(Block(52, approximate) for _ in range(2))).to(device, dtype)
                        x = torch.randn(3, 37, 52, device=device, dtype=dtype, requires_grad=True)
                        step(model, x, adacc.saved_tensors("as_is"), autocast)  # workspaces
                        exact, plain = step(model, x, adacc.saved_tensors("as_is"), autocast)
                        around = adacc.saved_tensors("lossless", least_bytes=512, again=True)
                        mine, less = step(model, x, around, autocast)
                        self.assert_same(mine, exact)
                        # Of each block: the norm's output (under autocast its cast), GELU's, SiLU's, the product's;
                        # under autocast casts of five weights.
                        counts = around.statistics
                        self.assertEqual(2 * (4 if not autocast else 4 + 5), counts.again)
                        width = x.element_size() if not autocast else 2
                        saved = 2 * 3 * 37 * 52 * (1 + 3 + 2 + 2) * width + autocast * 2 * 2 * 52 * 52 * (6 + 6)
                        if device in COUNTED_DEVICES:
                            self.assertLess(less, plain - 0.9 * saved)

    def test_lossy_policies_run_operators_again_too(self):
        model, x = Block(64, "tanh"), torch.randn(4, 64, 64, requires_grad=True)
        exact, _ = step(model, x, adacc.saved_tensors("as_is"))
        for policy, most in (("int8", 1e-3), ("tolerated", 2e-2), ("int4", 5e-2)):
            with self.subTest(policy=policy):
                alone, more = step(model, x, adacc.saved_tensors(policy, least_bytes=512))
                around = adacc.saved_tensors(policy, least_bytes=512, again=True)
                mine, less = step(model, x, around)
                self.assertGreaterEqual(around.statistics.again, 2)
                self.assertLess(less, more)
                for a, b in zip(mine, exact):
                    self.assertLess((a - b).square().sum(), most * b.square().sum())

    def test_readers_that_tolerate_less_are_not_given_a_loss(self):
        x = torch.randn(64, 64, requires_grad=True)

        def gradient(around, holds):
            with around:
                y = 0.1 * x
                z = F.gelu(y)
                if not holds:
                    del y
                loss = torch.acos(z).sum()  # nothing is known of acos
                del z
                around._store.settle()
                y = None
            return torch.autograd.grad(loss, x)[0]

        exact = gradient(adacc.saved_tensors("as_is"), False)
        # GELU's input is encoded first: its output stays.
        around = adacc.saved_tensors("int4", least_bytes=1, again=True)
        off = (gradient(around, False) - exact).square().sum() / exact.square().sum()
        self.assertEqual((1, 0), (around.statistics.encoded, around.statistics.again))
        self.assertLess(off, 1e-2)
        # The output goes first, so the input may have no loss.
        around = adacc.saved_tensors("int4", least_bytes=1, again=True)
        self.assert_same([gradient(around, True)], [exact])
        self.assertEqual((0, 1), (around.statistics.encoded, around.statistics.again))

    def test_an_input_is_taken_from_the_call_that_saved_it(self):
        x, w = (torch.randn(64, 64, requires_grad=True) for _ in range(2))
        linear, mask = nn.Linear(64, 64), torch.ones(64, 64).bernoulli_(0.5)
        for factor, again in ((mask, 0), (w, 1)):  # the first product keeps `h` only for a gradient of the factor
            around = adacc.saved_tensors("lossless", least_bytes=1, again=True)
            with around:
                h = x.sin()
                product = h * factor
                loss = linear(product).sum() + (h * w).sum()
                del h, product
            loss.backward()
            self.assertEqual(again, around.statistics.again)

    def test_demands_on_single_values_are_met_by_no_input(self):
        x = torch.randn(64, 64, requires_grad=True)
        for reader in (lambda z: F.leaky_relu(z, 0.1), F.silu, F.softplus, F.hardswish):
            for policy, holds, most in (("int4", False, 0), ("int4", True, 0), ("lossless", False, 1)):
                around = adacc.saved_tensors(policy, least_bytes=1, again=True)
                with around:
                    y = 1 * x
                    z = F.gelu(y)
                    if not holds:
                        del y
                    loss = reader(z).sum()
                    del z
                    around._store.settle()
                loss.backward()
                self.assertEqual(most, around.statistics.again)

    def test_inputs_may_be_views_of_what_is_made_again(self):
        views = {"a part": lambda y: y[1:33], "columns": lambda y: y[:, 8:40], "transposed": lambda y: y.t(),
                 "other sizes": lambda y: y.view(32, 128), "spread": lambda y: y[5].expand(64, 64)}
        for device in DEVICES:
            for name, view in views.items():
                with self.subTest(device=device, view=name):
                    x = torch.randn(64, 64, device=device, requires_grad=True)
                    factor = torch.randn_like(view(x))
                    weight = torch.randn(7, factor.size(1), device=device, requires_grad=True)

                    def gradients(around):
                        with around:  # the product saves the factor, and not what GELU makes of x
                            loss = F.linear(view(F.gelu(x)) * factor, weight).square().sum()
                        return torch.autograd.grad(loss, (x, weight))

                    exact = gradients(adacc.saved_tensors("as_is"))
                    around = adacc.saved_tensors("lossless", least_bytes=512, again=True)
                    self.assert_same(gradients(around), exact)
                    self.assertEqual(1, around.statistics.again)

    def test_rms_norm(self):
        if not hasattr(torch.ops.aten, "_fused_rms_norm"):
            self.skipTest("this torch has no fused RMS norm")
        norm, linear, x = nn.RMSNorm(48), nn.Linear(48, 48), torch.randn(33, 48, requires_grad=True)
        model = nn.Sequential(nn.Linear(48, 48), norm, linear)
        exact, _ = step(model, x, adacc.saved_tensors("as_is"))
        around = adacc.saved_tensors("lossless", least_bytes=512, again=True)
        mine, _ = step(model, x, around)
        self.assert_same(mine, exact)
        self.assertEqual(1, around.statistics.again)  # on the CPU a product, within

    def test_graphs_may_be_used_twice_and_differentiated_twice(self):
        x = torch.randn(40, 40, requires_grad=True)
        w = torch.randn(40, 40, requires_grad=True)

        def twice(around):
            with around:
                loss = (F.silu(x @ w) @ w).square().sum()
            one = torch.autograd.grad(loss, (x, w), retain_graph=True)
            two = torch.autograd.grad(loss, (x, w), create_graph=True)
            return [*one, *two, *torch.autograd.grad(two[0].square().sum(), (x, w))]

        around = adacc.saved_tensors("lossless", least_bytes=1, again=True)
        self.assert_same(twice(around), twice(adacc.saved_tensors("as_is")))
        self.assertGreater(around.statistics.again, 0)

    def test_policies_are_told_and_may_refuse(self):
        makers = set()

        def policy(tensor):
            makers.add(tensor.made_by)
            return "as_is" if tensor.made_by == "aten::gelu" else "lossless"

        model, x = Block(52, "none"), torch.randn(3, 37, 52, requires_grad=True)
        around = adacc.saved_tensors(policy, least_bytes=512, again=True)
        step(model, x, around)
        self.assertEqual(3, around.statistics.again)
        self.assertEqual({"", "aten::native_layer_norm", "aten::gelu", "aten::silu", "aten::mul"}, makers)

    def test_an_inner_policy_without_it_holds(self):
        model, x = Block(52, "none"), torch.randn(3, 37, 52, requires_grad=True)
        inner = adacc.saved_tensors("lossless", least_bytes=512)
        with adacc.saved_tensors("lossless", least_bytes=512, again=True) as outer, inner:
            loss = model(x).sum()
        loss.backward()
        self.assertEqual((0, 0), (outer.statistics.again, inner.statistics.again))

    def test_outputs_and_weights_that_are_changed_before_they_wait_are_kept(self):
        x, w = (torch.randn(64, 64, requires_grad=True) for _ in range(2))
        changes = {"as autograd notices": lambda y: y.add_(1), "behind a view": lambda y: y.t()[1:].mul_(2),
                   "by data": lambda y: y.data.add_(1), "by a list": lambda y: torch._foreach_add_([y.data], 1)}
        for name, change in changes.items():
            for read in (lambda y: y), (lambda y: y.data):  # `y.data` has a version of its own
                with self.subTest(name):
                    def gradient(around):
                        with around:
                            y = F.gelu(x * 1)
                            summed = y.sum()
                            change(y)
                            loss = (read(y) * w).sum() + summed
                            del y
                        return torch.autograd.grad(loss, (x, w))

                    around = adacc.saved_tensors("lossless", least_bytes=1, again=True)
                    self.assert_same(gradient(around), gradient(adacc.saved_tensors("as_is")))
                    self.assertEqual(0, around.statistics.again)

        layer = nn.Linear(64, 64)

        def of_input(around):
            with around, torch.autocast("cpu", torch.bfloat16):
                loss = layer(x * 1).sum()
                with torch.no_grad():
                    layer.weight.mul_(-1)
            return torch.autograd.grad(loss, x)

        exact, mine = of_input(adacc.saved_tensors("as_is"))[0], of_input(around)[0]
        self.assert_same([mine], [-exact])
        self.assertEqual(0, around.statistics.again)

    def test_inputs_of_which_a_part_is_saved_keep_their_outputs(self):
        x, w = torch.randn(64, 64, requires_grad=True), torch.randn(8, 64, requires_grad=True)
        b = torch.randn(64, 64)

        def gradient(around):
            with around:
                y = x * 1
                loss = (y[:8] * w).sum()  # saves eight rows
                z = y * b  # saves b
                del y
                loss = loss + F.gelu(z * 1).sum() + z.square().sum()
                del z
            return torch.autograd.grad(loss, (x, w))

        exact = gradient(adacc.saved_tensors("as_is"))
        around = adacc.saved_tensors("int8", least_bytes=1, again=True)
        for a, e in zip(gradient(around), exact):
            self.assertLess((a - e).square().sum(), 1e-3 * e.square().sum())
        self.assertEqual(0, around.statistics.again)

    def test_inputs_that_are_not_saved_keep_their_outputs(self):
        x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
        around = adacc.saved_tensors("lossless", least_bytes=1, again=True)
        with around:
            y = (x + 1) * w  # w is saved, and x + 1 is not
            loss = y.square().sum()
            del y
            y = x + 1
            loss = loss + y.exp().sum() + y.square().sum()  # y is saved, but not by the product below
            z = y * w
            loss = loss + z.square().sum()
            del y, z
        loss.backward()
        self.assertEqual(0, around.statistics.again)

    def test_changes_in_place_are_errors_in_words(self):
        x = torch.randn(64, 64, requires_grad=True)
        with adacc.saved_tensors("lossless", least_bytes=1, again=True):
            y = x * 1
            z = F.gelu(y)
            loss = z.square().sum()
            del z
        with torch.no_grad():
            y.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

        layer, x = nn.Linear(64, 64), torch.randn(64, 64, requires_grad=True)
        with adacc.saved_tensors("lossless", least_bytes=1, again=True), torch.autocast("cpu", torch.bfloat16):
            loss = layer(x * 1).sum()
        with torch.no_grad():
            layer.weight.add_(1)
        with self.assertRaisesRegex(RuntimeError, "a parameter that was changed after forward; take again=false"):
            loss.backward()

    def test_all_memory_comes_back(self):
        model, x = Block(64, "tanh"), torch.randn(4, 64, 64)
        step(model, x, adacc.saved_tensors("int8", least_bytes=512, again=True))
        before = live("cpu")
        for _ in range(3):
            with adacc.saved_tensors("int8", least_bytes=512, again=True), torch.autocast("cpu", torch.bfloat16):
                loss = model(x).square().mean()
            del loss  # without backward
            step(model, x, adacc.saved_tensors("int8", least_bytes=512, again=True))
        self.assertEqual(before, live("cpu"))


if __name__ == "__main__":
    unittest.main()
