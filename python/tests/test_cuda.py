# SPDX-License-Identifier: MIT
"""Saved tensors on CUDA devices; on a GPU, or on a pretended one (support/ptxrun/README.md, PyTorch without a GPU)."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import adacc
import torch
from devices import COUNTED, has_device, on_cuda, ptxrun_torch
from test_guest import assert_signs_decide
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = torch.float32, torch.bfloat16, torch.float16


class Saved(torch.autograd.Function):
    """Its gradient is the saved tensor."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.sum()

    @staticmethod
    def backward(context, _):
        return context.saved_tensors[0].clone()


class Net(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        x = x + self.down(F.dropout(F.gelu(self.up(self.norm(x))), 0.1, self.training))
        return F.softmax(torch.relu(self.gate(x)).masked_fill(x < -1, 0.5), -1)


def from_saved(x, form):
    """x as read by backward, after the encoding."""
    leaf = x.detach().clone().requires_grad_()
    around = adacc.saved_tensors(lambda tensor: form, least_bytes=0)
    with around:
        loss = Saved.apply(leaf * 1)
    loss.backward()
    return leaf.grad, around.statistics


def gradients(model, x, policy=None):
    """The model's gradients, the bytes in use behind the forward pass, and the most so far."""
    model.zero_grad()
    torch.cuda.manual_seed(3)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    around = adacc.saved_tensors(policy, least_bytes=4096) if policy else adacc.saved_tensors("as_is")
    with around:
        loss = model(x).square().mean()
    between = torch.cuda.memory_allocated() - before
    loss.backward()
    return [p.grad.clone() for p in model.parameters()], between, torch.cuda.max_memory_allocated() - before


def make_workspaces():
    """cuBLAS has workspaces for each thread and stream, from PyTorch's allocator, at the first product there."""
    for dtype in TYPES:
        gradients(Net().to(dtype).cuda(), torch.randn(64, 96, dtype=dtype, device="cuda"))


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


@on_cuda
class Cuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_workspaces()

    def setUp(self):
        torch.manual_seed(1)

    def assert_less(self, some, others):
        if COUNTED:
            self.assertLess(some, others)

    def test_decoded_numbers_are_the_cpus(self):
        for dtype in TYPES:
            for shape in ((64, 128), (130, 96), (7, 1000), (3, 50, 40)):
                x = torch.randn(shape).to(dtype)
                x.view(-1)[5] = 100  # an outlier
                for form in ("int8", "int4", "bf16"):
                    with self.subTest(dtype=dtype, shape=shape, form=form):
                        here, _ = from_saved(x, form)
                        there, statistics = from_saved(x.cuda(), form)
                        self.assertTrue(torch.equal(here, there.cpu()))
                        # 16 bits in 16 bits save nothing, and what is shorter than 64 rows saves less.
                        if form != "bf16" and shape == (64, 128):
                            self.assertEqual(1, statistics.encoded)
                            self.assertFalse(torch.equal(x, here))

    def test_elements_without_numbers_come_back(self):
        x = torch.randn(64, 128)
        x[3, 4], x[5, 6] = float("inf"), float("nan")
        for dtype in TYPES:
            back, _ = from_saved(x.to(dtype).cuda(), "int8")
            self.assertFalse(torch.isfinite(back[3, 4]).item() or torch.isfinite(back[5, 6]).item())

    def test_signs_decide_as_the_values_do(self):
        assert_signs_decide(self, "cuda")

    def test_doubles_and_integers_are_kept(self):
        x = torch.randn(64, 128, dtype=torch.float64, device="cuda")
        back, statistics = from_saved(x, "int4")
        self.assertTrue(torch.equal(x, back))
        self.assertEqual(0, statistics.encoded)

    def test_lossless_keeps_every_bit(self):
        for dtype in TYPES:
            model, x = Net().to(dtype).cuda(), torch.randn(64, 96, dtype=dtype, device="cuda")
            exact, plain, _ = gradients(model, x)
            packed, less, _ = gradients(model, x, "lossless")
            self.assertTrue(same(exact, packed))
            self.assert_less(less, plain)  # dropout's mask, and ReLU's output as its sign

    def test_lossy_policies_take_less_and_are_near(self):
        model, x = Net().cuda(), torch.randn(128, 96, device="cuda")
        exact, plain, most = gradients(model, x)
        for policy, share, error in (("bf16", 0.75, 1e-4), ("int8", 0.6, 1e-3), ("tolerated", 0.55, 2e-2),
                                     ("int4", 0.5, 5e-2)):
            with self.subTest(policy=policy):
                mine, between, peak = gradients(model, x, policy)
                self.assert_less(between, share * plain)
                self.assert_less(peak, most)
                off = sum((a - b).square().sum() for a, b in zip(mine, exact)) / sum(a.square().sum() for a in exact)
                self.assertLess(off.item(), error)

    def test_each_row_counts_where_nobody_judges(self):
        scale = 10.0 ** torch.arange(-3, 3, device="cuda").repeat(32).unsqueeze(1)
        weights = torch.randn(192, 256, device="cuda")

        def gradient(policy):
            x = (scale * torch.randn(192, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(2)))
            x.requires_grad_()
            with adacc.saved_tensors(policy, least_bytes=0) as around:
                loss = (F.layer_norm(x * 1, (256,)) * weights).sum()
            loss.backward()
            return x.grad, around.statistics

        exact, _ = gradient("as_is")
        for policy, most in (("int8", 1e-3), ("int4", 0.05)):
            mine, statistics = gradient(policy)
            self.assertGreater(statistics.encoded, 0)
            off = (mine - exact).square().sum(1) / exact.square().sum(1)
            self.assertLess(off.max().item(), most, policy)

    def test_outputs_of_a_softmax_are_exact(self):
        x = torch.randn(128, 128, device="cuda", requires_grad=True)
        with adacc.saved_tensors("int4", least_bytes=0) as around:
            loss = F.softmax(x * 9, -1)[:, 0].sum()
        loss.backward()
        mine, x.grad = x.grad, None
        F.softmax(x * 9, -1)[:, 0].sum().backward()
        self.assertTrue(torch.equal(mine, x.grad))
        self.assertEqual(0, around.statistics.encoded)

    def test_bytes_and_bits_are_alike_in_every_step_and_on_every_stream(self):
        model, x = Net().cuda(), torch.randn(128, 96, device="cuda")
        gradients(model, x, "int8")
        first = gradients(model, x, "int8")
        for _ in range(2):
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                make_workspaces()
                again = gradients(model, x, "int8")
            torch.cuda.synchronize()
            self.assertTrue(same(first[0], again[0]))
            self.assertEqual(first[1:], again[1:])

    def test_encodes_are_queued_on_the_stream_that_saved(self):
        x = torch.randn(128, 128, device="cuda", requires_grad=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()), adacc.saved_tensors("int8", least_bytes=0) as around:
            y = (2 * x).square().square().square()
        self.assertGreater(around.statistics.encoded, 0)
        self.assertTrue(torch.cuda.default_stream().query())  # it was given nothing
        torch.cuda.synchronize()
        y.sum().backward()

    @unittest.skipIf(ptxrun_torch is None, "the pretended device counts waits")
    def test_the_host_waits_for_nothing(self):
        model, x = Net().cuda(), torch.randn(128, 96, device="cuda")
        gradients(model, x, "int8")
        before = ptxrun_torch.waits()
        gradients(model, x, "int8")
        self.assertEqual(before, ptxrun_torch.waits())

    def test_a_reader_on_another_stream_waits(self):
        for _ in range(8):
            x, other = torch.randn(64, 1024, device="cuda", requires_grad=True), torch.cuda.Stream()
            other.wait_stream(torch.cuda.current_stream())
            with adacc.saved_tensors(lambda tensor: "int8"):
                z = (2 * x).square()
            node = z.grad_fn
            del z
            copy_of = torch.empty_like(x)
            torch.cuda.synchronize()
            with torch.cuda.stream(other):
                value = node._saved_self  # decoded on the stream of the forward pass
                copy_of.detach().copy_(value, non_blocking=True)  # a copy of bytes is not waited for
            del value
            # Memory of that size on the first stream: perhaps the decoded tensor's, behind the last reader.
            overwritten = torch.zeros(64, 1024, device="cuda")
            torch.cuda.synchronize()
            # Not decoded before: the memory might have held these numbers since.
            self.assertTrue(torch.equal(node._saved_self, copy_of))
            del overwritten

    def test_a_storage_saved_on_two_streams_is_given_back_behind_both(self):
        for _ in range(8):
            x, other = torch.randn(64, 1024, device="cuda", requires_grad=True), torch.cuda.Stream()
            copy_of, expected = torch.empty(64, 1024, device="cuda"), (2 * x).detach()
            with adacc.saved_tensors(lambda tensor: "int8"):
                y = 2 * x
                one = y.square()
                other.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(other):
                    two = y.square()
                    copy_of.copy_(y.detach(), non_blocking=True)  # late
                del y
                three = one.square()  # encodes y
                overwritten = torch.zeros(64, 1024, device="cuda")
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(expected, copy_of))
            del two, three, overwritten

    def test_checkpoints(self):
        model, x = Net().cuda(), torch.randn(128, 96, device="cuda")

        def run(policy):
            model.zero_grad()
            torch.cuda.manual_seed(3)
            with adacc.saved_tensors(policy, least_bytes=4096):
                h = adacc.checkpoint(model, 2 * x.requires_grad_())
                loss = adacc.checkpoint(model, h).square().mean()
            loss.backward()
            return [p.grad.clone() for p in model.parameters()]

        def plainly():
            model.zero_grad()
            torch.cuda.manual_seed(3)
            model(model(2 * x.requires_grad_())).square().mean().backward()
            return [p.grad.clone() for p in model.parameters()]

        self.assertTrue(same(plainly(), run("lossless")))
        for mine, exact in zip(run("int8"), plainly()):
            self.assertLess((mine - exact).square().sum(), 0.01 * exact.square().sum())

    def test_autocast(self):
        model, x = Net().cuda(), torch.randn(128, 96, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            exact, plain, _ = gradients(model, x)
            mine, between, _ = gradients(model, x, "int8")
        self.assert_less(between, plain)
        for a, b in zip(mine, exact):
            self.assertLess((a - b).square().sum(), 0.01 * b.square().sum())

    @unittest.skipIf(ptxrun_torch is not None, "PyTorch's fused attention is machine code")
    def test_fused_attention(self):
        q, k, v = (torch.randn(2, 4, 256, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(3))

        def run(policy, dropout):
            torch.cuda.manual_seed(5)
            with adacc.saved_tensors(policy, least_bytes=0) as around:
                y = F.scaled_dot_product_attention(q * 1, k * 1, v * 1, dropout_p=dropout, is_causal=True)
                loss = (y.float() * y.float()).sum()  # and y is saved, and read
            del y
            return torch.autograd.grad(loss, (q, k, v)), around.statistics

        self.addCleanup(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
        torch.use_deterministic_algorithms(True, warn_only=True)
        for backend in SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION:
            for dropout in 0.0, 0.2:
                with self.subTest(backend=backend, dropout=dropout), sdpa_kernel(backend):
                    try:
                        exact, _ = run("as_is", dropout)
                    except RuntimeError as why:
                        print(f"{backend}, dropout {dropout}: not there ({str(why).splitlines()[0]})")
                        continue
                    for policy, most in (("lossless", 1e-6), ("int8", 1e-2), ("tolerated", 1e-2)):
                        mine, statistics = run(policy, dropout)
                        for a, b in zip(mine, exact):
                            off = (a - b).float().square().sum() / b.float().square().sum()
                            self.assertLess(off.item(), most, policy)
                        if policy != "lossless":
                            self.assertGreater(statistics.encoded, 0)

    @unittest.skipUnless(COUNTED, "the allocator that is told a limit is not there")
    def test_memory_that_runs_out_leaves_everything_as_it_was(self):
        torch.cuda.empty_cache()
        small = torch.zeros(1, device="cuda")  # its segment has room for what is small
        x = torch.randn(4096, 1024, device="cuda", requires_grad=True)
        with adacc.saved_tensors(lambda tensor: "int8") as around:
            y = (2 * x).square()
            torch.cuda.set_per_process_memory_fraction(1e-9)
            try:
                with self.assertRaises(torch.OutOfMemoryError):
                    Saved.apply(y)  # its sum is small; 2 * x is encoded, and there is no memory for that
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
        self.assertEqual(0, around.statistics.encoded)
        y.sum().backward()
        self.assertTrue(torch.equal(8 * x, x.grad))
        del small


SAVES = """
import torch, warnings
import adacc
try:
    import ptxrun_torch
except ImportError:
    pass
x = torch.randn(256, 256, device="cuda", requires_grad=True)
with warnings.catch_warnings(record=True) as found, adacc.saved_tensors("int8") as around:
    warnings.simplefilter("always")
    loss = (2 * x).square().square().sum()
loss.backward()
print(adacc.has_cuda_kernels, around.statistics.encoded, *(each.message for each in found))
"""


@has_device
class Without(unittest.TestCase):
    """In processes of their own."""

    def saves(self, folder, **environment):
        paths = os.pathsep.join([folder, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        return subprocess.run([sys.executable, "-c", SAVES], capture_output=True, text=True,
                              env={**os.environ, **environment, "PYTHONPATH": paths})

    def test_a_wheel_without_kernels_says_so_once(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.dirname(adacc.__file__), folder + "/adacc", ignore=shutil.ignore_patterns("*.fatbin"))
            done = self.saves(folder)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, "^False 0 adacc: tensors on cuda devices pass as they are: this process has no "
                                      "kernels for them. A wheel has them if nvcc was there")
        self.assertEqual(1, done.stdout.count("adacc:"))

    @unittest.skipUnless(ptxrun_torch and adacc.has_cuda_kernels, "a pretended device may be of another kind")
    def test_a_device_without_code_is_named(self):
        done = self.saves(".", PTXRUN_CAPABILITY="7.5")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("the codecs' kernels have no code for device 0, sm_75: they are for sm_80 and later", done.stderr)


if __name__ == "__main__":
    unittest.main()
