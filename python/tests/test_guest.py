# SPDX-License-Identifier: MIT
"""What is not known to stand a loss has none, weights are not touched, and tensors that are more than numbers in
memory pass: python -m unittest discover tests"""
import contextlib
import subprocess
import sys
import textwrap
import unittest

import adacc
import torch
from torch import nn
from torch.nn import functional as F

LOSSY = ("bf16", "int8", "int4", "tolerated")


def gradients(function, leaves, policy=None, least_bytes=1):
    """Of the sum of function(*leaves), each weighted by a number of its own."""
    hooks = contextlib.nullcontext() if policy is None else \
        adacc.saved_tensors(policy, least_bytes=least_bytes)
    torch.manual_seed(3)
    with hooks:
        out = function(*leaves)
        weight = torch.linspace(0.5, 1.5, out.numel(), device=out.device).view_as(out)
        loss = (out * weight).sum()
        del out
    mine = torch.autograd.grad(loss, leaves, allow_unused=True)
    return mine, hooks


def off(mine, exact):
    """The largest relative squared error of a gradient; infinite where only one is no number."""
    worst = 0.0
    for a, b in zip(mine, exact):
        if b is None:
            continue
        if not torch.equal(a.isfinite(), b.isfinite()):
            return float("inf")
        a, b = (x.double().nan_to_num(0, 0, 0) for x in (a, b))
        if b.square().sum() > 0:
            worst = max(worst, float((a - b).square().sum() / b.square().sum()))
        elif a.any():
            return float("inf")
    return worst


class Case(unittest.TestCase):
    def assertKept(self, function, *leaves, policies=LOSSY, most=0.0):
        """function makes what it saves of the leaves itself: nobody else holds that."""
        exact, _ = gradients(function, leaves)
        for policy in ("lossless",) + tuple(policies):
            mine, _ = gradients(function, leaves, policy)
            self.assertLessEqual(off(mine, exact), 0.0 if policy == "lossless" else most, policy)


def assert_signs_decide(case, device):
    """Of ReLU's and leaky ReLU's gradients, also at values that are not finite: a bit an element has torch's bits."""
    inf, nan = float("inf"), float("nan")
    for dtype in torch.float32, torch.bfloat16, torch.float16:
        x = torch.randn(96, 128).to(dtype)
        x.view(-1)[:9] = torch.tensor((inf, -inf, nan, -nan, 0.0, -0.0, 1e-7, -1e-7, 6e4))
        leaves = [x.to(device).requires_grad_()]
        for function in (lambda y: (y * 1).relu(), lambda y: F.leaky_relu(y * 1, 0.1)):
            exact, _ = gradients(function, leaves)
            for policy in ("lossless",) + LOSSY:
                mine, hooks = gradients(function, leaves, policy)
                case.assertTrue(torch.equal(mine[0], exact[0]), (dtype, policy))
                counts = hooks.statistics
                case.assertEqual((1, 0, 0), (counts.encoded, counts.declined, counts.uncertified))
                case.assertLess(counts.encoded_bytes, counts.raw_bytes / 12)


def leaf(*sizes, scale=1.0):
    torch.manual_seed(0)
    return (torch.randn(*sizes) * scale).requires_grad_()


class Rate(torch.autograd.Function):
    """A quotient: small numbers of what it saves count most."""

    @staticmethod
    def forward(ctx, x):
        y = x * 0.01
        ctx.save_for_backward(y)
        return y.log1p()

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return 0.01 * grad / (1e-4 + y.abs())


class Unknown(Case):
    """Operators and arguments that are not in the list."""

    def test_comparisons_with_the_own_output(self):
        for reduce in (lambda x: x.amax(1), lambda x: x.amin(0), lambda x: x.aminmax(dim=1)[0],
                       lambda x: x.max(), lambda x: x.min(), lambda x: x.median(),
                       lambda x: torch.zeros(4, 512).scatter_reduce(
                           0, torch.arange(512).remainder(4).view(-1, 1).expand(512, 512), x, "amax"),
                       lambda x: torch.zeros(4, 512).index_reduce(
                           0, torch.arange(512).remainder(4), x, "amax"),
                       lambda x: torch.segment_reduce(x, "max", lengths=torch.full((4,), 128))):
            self.assertKept(lambda x: reduce(x * 1.7), leaf(512, 512))

    def test_losses_of_differences(self):
        target = torch.zeros(256, 256)
        for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
            self.assertKept(lambda x: loss(x * 0.005 + 1, target + 1, reduction="none"), leaf(256, 256))

    def test_poles(self):
        target = torch.rand(256, 256).round()
        self.assertKept(lambda x: F.binary_cross_entropy((x * 3).sigmoid().clamp(1e-6, 1 - 1e-6), target,
                                                         reduction="none"), leaf(256, 256), most=0.05)
        self.assertKept(lambda x: torch.logit(torch.sigmoid(x * 8), 1e-6), leaf(256, 256), most=0.05)

    def test_functions_of_others(self):
        class Lookup(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, ids):
                ctx.save_for_backward(ids, x)
                return x[ids.long()]

            @staticmethod
            def backward(ctx, grad):
                ids, x = ctx.saved_tensors
                return torch.zeros_like(x).index_add(0, ids.long(), grad), None

        self.assertKept(lambda x: Lookup.apply(x, torch.arange(70000).remainder(1000).float()), leaf(1000, 8))
        self.assertKept(Rate.apply, leaf(256, 256))
        # Unless a policy says otherwise.
        seen = []

        def policy(tensor):
            seen.append((tensor.savers, tensor.roles))
            return "int8"
        _, hooks = gradients(Rate.apply, (leaf(256, 256),), policy)
        self.assertEqual(seen[0], (["Rate"], [""]))
        self.assertGreater(hooks.statistics.encoded, 0)

    def test_ctc(self):
        torch.manual_seed(0)
        targets = torch.randint(1, 20, (16, 20))

        def ctc(x):
            return F.ctc_loss((x * 3).log_softmax(2), targets, torch.full((16,), 64),
                              torch.full((16,), 20), reduction="none", zero_infinity=True)
        self.assertKept(ctc, leaf(64, 16, 20), most=0.05)

    def test_a_policy_that_returns_nothing(self):
        with self.assertRaisesRegex(TypeError, "adacc: a policy returned None; forms are as_is"):
            with adacc.saved_tensors(lambda tensor: None, least_bytes=1):
                kept = (leaf(64, 64) * 2).sin().sum()
                kept = kept.cos()

    def test_roles_are_told(self):
        seen = set()

        def policy(tensor):
            seen.update((name.removeprefix("aten::"), role) for name, role in zip(tensor.savers, tensor.roles))
            return "lossless"

        def all_of_it(x, w, b):
            y = F.layer_norm(F.linear(x * 1, w, b), (64,))
            y = F.gelu(y) @ (x * 1).tanh().t()
            y = torch.addmm(b, y * 1, (x * 1).sigmoid())
            return torch.addcmul(y, y * 1, y * 2).pow(3).relu()
        gradients(all_of_it, (leaf(64, 64), leaf(64, 64), leaf(64)), policy)
        self.assertEqual(seen, {
            ("addmm", "mat1"), ("native_layer_norm", "input"), ("native_layer_norm", "statistic"),
            ("gelu", "self"), ("mm", "self"), ("mm", "mat2"), ("tanh", "result"), ("addmm", "mat2"),
            ("sigmoid", "result"), ("addcmul", "tensor1"), ("addcmul", "tensor2"), ("pow", "whole_base"),
            ("relu", "result")})


class Hard(Case):
    """Operators of the list, and data that no codec holds."""

    def test_minus_infinity_in_log_softmax(self):
        for value in (float("-inf"), torch.finfo(torch.float).min, -1e30, -1e4):
            for share in (0.002, 0.5):
                torch.manual_seed(1)
                mask = torch.rand(256, 512) < share
                mask[:, 0] = False
                self.assertKept(lambda x: F.log_softmax((x * 2).masked_fill(mask, value), 1).masked_fill(mask, 0),
                                leaf(256, 512), most=0.05)
                self.assertKept(lambda x: torch.logsumexp((x * 2).masked_fill(mask, value), 1),
                                leaf(256, 512), most=0.05)
                self.assertKept(lambda x: torch.distributions.Categorical(
                    logits=(x * 2).masked_fill(mask, torch.finfo(torch.float).min)).entropy(),
                    leaf(256, 512), most=0.05)

    def test_bias_of_attention_scores(self):
        slopes = torch.arange(1, 5).view(1, 4, 1, 1) * 0.1
        alibi = slopes * -(torch.arange(64).view(64, 1) - torch.arange(64)).abs().float()
        future = torch.ones(64, 64, dtype=torch.bool).triu(1)
        for value in (float("-inf"), torch.finfo(torch.float).min):
            def attend(x):
                q, k, v = (x * 1).view(3, 4, 4, 64, 32)
                return F.scaled_dot_product_attention(
                    q, k, v, attn_mask=alibi.expand(4, 4, 64, 64).masked_fill(future, value))
            self.assertKept(attend, leaf(3, 4, 4, 64, 32), most=0.05)

    def test_rows_of_unlike_scale_in_norms(self):
        scale = torch.ones(512, 1)
        scale[::64] = 0.03
        used = torch.zeros(512, 1)
        used[::64] = 1
        w, b = leaf(128), leaf(128)
        for norm in (lambda x, w, b: F.layer_norm(x * scale, (128,), w, b) * used + b,
                     lambda x, w, b: F.rms_norm(x * scale, (128,), w) * used + b,
                     lambda x, w, b: (x * scale) * ((x * scale).square().mean(1, True)).rsqrt() * w * used + b,
                     lambda x, w, b: F.group_norm((x * scale).view(512, 128, 1), 1, w, b).view(512, 128) * used):
            self.assertKept(norm, leaf(512, 128), w, b, most=0.05)

    def test_a_few_huge_numbers_among_small_ones(self):
        for large in (1e3, 1e10, torch.finfo(torch.float).min):
            with torch.no_grad():
                x = leaf(256, 256) * 1
                x[torch.rand(256, 256) < 0.01] = large
            for function in (F.gelu, F.silu, torch.sigmoid, torch.sin, F.hardswish, F.softplus):
                self.assertKept(lambda y: function(y * 1), x.requires_grad_(), most=0.05)

    def test_relu_of_infinity(self):
        x = torch.ones(256, 256)
        x[3, 3] = float("inf")
        self.assertKept(lambda y: (y * x).relu().clamp(max=10), leaf(256, 256))

    def test_signs_decide_as_the_values_do(self):
        assert_signs_decide(self, "cpu")


class Gates(Case):
    def test_gates_stay_where_the_output_is_shared(self):
        torch.manual_seed(0)
        x = (torch.randn(256, 256) * torch.rand(256, 1) ** 8).requires_grad_()
        w = torch.randn(256, 256)

        def gates(policy):
            with adacc.saved_tensors(policy, least_bytes=1) as hooks:
                y = (x * 1).relu()
                z = F.linear(y, w.requires_grad_())
                y = None
            (mine,) = torch.autograd.grad(z, x, torch.eye(256) @ torch.ones(256, 256), retain_graph=True)
            del y
            self.assertEqual(hooks.statistics.encoded, 0 if policy == "lossless" else 1)
            return mine
        exact = gates("lossless")
        for policy in LOSSY:
            self.assertTrue(torch.equal(gates(policy), exact), policy)

    def test_a_deep_convolutional_network(self):
        torch.manual_seed(0)
        layers = []
        for _ in range(8):
            layers += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        net, x = nn.Sequential(*layers), torch.randn(8, 16, 16, 16)

        def mine(policy):
            with adacc.saved_tensors(policy, least_bytes=1) if policy else contextlib.nullcontext():
                loss = net(x).square().mean()
            return torch.autograd.grad(loss, list(net.parameters())[-2::-4])
        exact = mine(None)
        self.assertLess(off(mine("tolerated"), exact), 0.01)


class Weights(Case):
    def encoded(self, forward, policy="int8"):
        with adacc.saved_tensors(policy, least_bytes=1) as hooks:
            out = forward()
        out.sum().backward()
        return hooks.statistics

    def test_frozen_ones_that_were_cast_scaled_or_merged(self):
        x = torch.randn(64, 256, requires_grad=True)
        frozen, a, b = torch.randn(256, 256), torch.randn(256, 8, requires_grad=True), \
            torch.randn(8, 256, requires_grad=True)
        for what, forward in {
                "cast": lambda: F.linear(x.bfloat16(), frozen.bfloat16()),
                "scaled": lambda: F.linear(x, frozen * 0.1),
                "merged": lambda: F.linear(x, frozen + a @ b),
                "merged product": lambda: x @ (frozen + a @ b).t(),
                "cast product": lambda: x.bfloat16() @ frozen.bfloat16(),
                "batched": lambda: torch.bmm(x.view(4, 16, 256), (frozen * 2).expand(4, 256, 256) * 1),
                "convolution": lambda: F.conv2d(x.view(1, 64, 16, 16),
                                                (frozen.view(64, 64, 4, 4) * 0.1))}.items():
            frozen_seen = []

            def policy(tensor):
                frozen_seen.append((tensor.savers, tensor.roles, tensor.sizes))
                return "lossless"
            self.encoded(forward, policy)
            for savers, roles, sizes in frozen_seen:
                self.assertTrue(all(role == "weight" for role in roles), (what, savers, roles, sizes))

    def test_a_frozen_base_under_autocast(self):
        torch.manual_seed(0)
        base = nn.Sequential(*[nn.Linear(128, 128) for _ in range(3)]).requires_grad_(False)
        lower = nn.Linear(128, 128)
        x = torch.randn(64, 128)

        def forward():
            with torch.autocast("cpu", torch.bfloat16):
                return base(lower(x)).float().square().mean()
        statistics = self.encoded(forward, lambda tensor: "int4")
        # The batch in 16 bits, and what is squared; not the three frozen weights in 16 bits.
        self.assertEqual((statistics.encoded, statistics.parameters), (2, 3))


def alone(script):
    """Runs `script` in a process of its own: what fails there may be a segmentation fault, or hang."""
    text = "import adacc, torch\nfrom torch.nn import functional as F\n" + textwrap.dedent(script)
    try:
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "hangs"
    return "" if done.returncode == 0 else f"status {done.returncode}: {done.stderr[-2000:]}"


class Strangers(unittest.TestCase):
    """Tensors that are more than numbers in memory: the same as without hooks."""

    WRAPPER = """
        class Wrapper(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype,
                                                           requires_grad=inner.requires_grad)
            def __init__(self, inner):
                self.inner = inner
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                open_ = lambda x: x.inner if isinstance(x, cls) else x
                tree = torch.utils._pytree.tree_map
                out = func(*tree(open_, args), **tree(open_, kwargs or {}))
                return tree(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, out)
        """

    def same_as_plain(self, script, most=0.0):
        """script defines run(), which returns a tensor; with a policy that loses something off by `most`."""
        why = alone(script + textwrap.dedent("""
            plain = run()
            for policy in ("as_is", "lossless", "tolerated"):
                with adacc.saved_tensors(policy, least_bytes=1):
                    mine = run()
                off = float((mine - plain).square().sum() / plain.square().sum())
                assert off <= (MOST if policy == "tolerated" else 0), (policy, off)
            budget = adacc.budget("100%", "lossless", least_bytes=1)
            for _ in range(4):
                with budget:
                    mine = run()
                assert torch.equal(mine, plain), "budget"
            """).replace("MOST", str(most)))
        self.assertEqual(why, "")

    def test_wrapper_subclasses(self):
        self.same_as_plain(textwrap.dedent(self.WRAPPER) + textwrap.dedent("""
            def run():
                torch.manual_seed(0)
                x = Wrapper(torch.randn(64, 64)).requires_grad_()
                ((x * 2).sigmoid() * x).sum().backward()
                return x.grad.inner
            """))

    def test_distributed_tensors(self):
        if not torch.distributed.is_available():
            self.skipTest("this torch has no torch.distributed")
        self.same_as_plain(textwrap.dedent("""
            import os, tempfile
            from torch.distributed.tensor import DTensor, Replicate, distribute_tensor, init_device_mesh
            store = torch.distributed.FileStore(tempfile.mktemp(), 1)
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
            mesh = init_device_mesh("cpu", (1,))
            def run():
                torch.manual_seed(0)
                x = distribute_tensor(torch.randn(64, 64), mesh, [Replicate()]).requires_grad_()
                ((x * 2).sigmoid() @ x).sum().backward()
                return x.grad.to_local()
            """))

    def test_fake_and_meta_tensors(self):
        self.same_as_plain(textwrap.dedent("""
            from torch._subclasses.fake_tensor import FakeTensorMode
            def run():
                for device in ("meta", "cpu"):
                    with FakeTensorMode():
                        x = torch.randn(64, 64, device=device, requires_grad=True)
                        ((x * 2).sigmoid() @ x).sum().backward()
                x = torch.randn(64, 64, device="meta", requires_grad=True)
                ((x * 2).sigmoid() @ x).sum().backward()
                return torch.tensor(float(x.grad.numel()))
            """))

    def test_nested_tensors(self):
        for layout in ("torch.strided", "torch.jagged"):
            self.same_as_plain(textwrap.dedent(f"""
                import warnings
                warnings.simplefilter("ignore")
                def run():
                    torch.manual_seed(0)
                    x = torch.randn(32, 64, requires_grad=True)
                    y = torch.nested.as_nested_tensor([x[:8], x[8:]], layout={layout})
                    y = F.linear(y, torch.ones(64, 64, requires_grad=True)).relu() * 2
                    y.to_padded_tensor(0.0).sum().backward()
                    return x.grad
                """))

    def test_forward_mode(self):
        self.same_as_plain(textwrap.dedent("""
            import torch.autograd.forward_ad as fwAD
            def run():
                torch.manual_seed(0)
                x, t = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
                with fwAD.dual_level():
                    y = F.gelu((fwAD.make_dual(x, t) * 2).sigmoid() @ x).sum()
                    value, tangent = fwAD.unpack_dual(y)
                    return torch.autograd.grad(tangent, x)[0]
            """))
        self.same_as_plain(textwrap.dedent("""
            def run():
                torch.manual_seed(0)
                x = torch.randn(64, 64, requires_grad=True)
                value, tangent = torch.func.jvp(lambda y: (y * 2).sigmoid() @ x, (x,), (x,))
                jacobian = torch.func.jacfwd(lambda y: (y * x[0, :4]).sigmoid())(x[0, :4] * 1)
                return torch.autograd.grad(tangent.sum() + value.sum() + jacobian.sum(), x)[0]
            """))

    def test_complex_conjugates_and_sparse(self):
        self.same_as_plain(textwrap.dedent("""
            def run():
                torch.manual_seed(0)
                x = torch.randn(64, 64, dtype=torch.cfloat, requires_grad=True)
                y = (x.conj() @ x).imag.neg() * x.real
                s = torch.eye(64).to_sparse()
                (y + torch.sparse.mm(s, x.real)).sum().backward()
                return torch.view_as_real(x.grad)
            """), most=1e-3)

    def test_modes_that_watch(self):
        self.same_as_plain(textwrap.dedent("""
            from torch.utils.flop_counter import FlopCounterMode
            def run():
                torch.manual_seed(0)
                x = torch.randn(64, 64, requires_grad=True)
                with FlopCounterMode(display=False):
                    ((x * 2).sigmoid() @ x).relu().sum().backward()
                return x.grad
            """), most=0.03)

    def test_compiled_autograd_is_an_error_or_works(self):
        why = alone("""
            torch.manual_seed(0)
            x = torch.randn(256, 256, requires_grad=True)
            def run():
                return ((x * 2).sigmoid() @ x).relu().sum()
            (plain,) = torch.autograd.grad(run(), x)
            with adacc.saved_tensors("lossless"):
                loss = run()
            try:
                with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
                    loss.backward()
                assert torch.equal(x.grad, plain)
            except RuntimeError as why:
                assert "adacc" in str(why) and "compiled autograd" in str(why), why
            x.grad = None
            with adacc.saved_tensors("lossless"):
                loss = run()
            loss.backward()
            assert torch.equal(x.grad, plain)
            """)
        self.assertEqual(why, "")


if __name__ == "__main__":
    unittest.main()
