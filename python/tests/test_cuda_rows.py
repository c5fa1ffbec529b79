# SPDX-License-Identifier: MIT
"""Rows with too large an error: a device checks each encoding, and keeps such rows exactly beside (adapter/torch/side_rows.hpp).

On a GPU, or on a pretended one (support/ptxrun/README.md, PyTorch without a GPU)."""
import subprocess
import sys
import unittest

import adacc
import torch
from devices import is_counted, on_cuda
from test_cuda import TYPES, Saved
from test_cuda_budgets import Net, step
from torch.nn import functional as F

INF, NAN = float("inf"), float("nan")


def bits(x):
    return x.cpu().contiguous().view(torch.uint8)


def reported(around):
    """Statistics, once the device has done everything: nothing waits for them."""
    torch.cuda.synchronize()
    return around.statistics


def spoilt(x, rows):
    """x with an infinity or a NaN in each of the rows."""
    for i, row in enumerate(rows):
        x[row, (7 * i) % x.size(1)] = (INF, NAN, -INF)[i % 3]
    return x


def of_unlike_rows(x):
    return x * 10.0 ** torch.arange(-4, 4).repeat(x.size(0) // 8).unsqueeze(1)


def with_spikes(x, share):
    return torch.where(torch.rand(x.shape) < share, x.sign(), 0.02 * x)


# Tensors of 256 rows, ordinary and hostile.
TENSORS = {
    "normal": lambda: torch.randn(256, 128),
    "large": lambda: 300 * torch.randn(256, 128),
    "small": lambda: 1e-3 * torch.randn(256, 128),
    "offset": lambda: torch.randn(256, 128) + 40,
    "zeros": lambda: torch.zeros(256, 128),
    "denormal": lambda: 1e-40 * torch.randn(256, 128),
    "squares that are denormal": lambda: 1e-25 * torch.randn(256, 128),
    "huge": lambda: 1e17 * torch.randn(256, 128),
    "beyond": lambda: 1e18 * torch.randn(256, 128),
    "largest": lambda: torch.full((256, 128), 3e38) * torch.randn(256, 128).sign(),
    "rows of unlike scale": lambda: of_unlike_rows(torch.randn(256, 128)),
    "columns of unlike scale": lambda: of_unlike_rows(torch.randn(128, 256)).t().contiguous(),
    "few spikes": lambda: with_spikes(torch.randn(256, 128), 0.01),
    "spikes": lambda: with_spikes(torch.randn(256, 128), 0.06),
    "a loud row": lambda: torch.cat([torch.randn(255, 128), 1e4 * torch.randn(1, 128)]),
    "a quiet row": lambda: torch.cat([torch.randn(255, 128), 1e-4 * torch.randn(1, 128)]),
    "an infinity": lambda: spoilt(torch.randn(256, 128), [200]),
    "many of none": lambda: spoilt(torch.randn(256, 128), range(3, 40)),
}
# Operators by their demands, a policy, and the number of forms declined by the CPU before the device's form.
OPERATORS = {
    "a product": (lambda x: F.linear(x, torch.ones(4, x.size(1), dtype=x.dtype, device=x.device).requires_grad_()),
                  {"int8": 0, "int4": 0}),
    "a norm": (lambda x: F.layer_norm(x, (x.size(1),)), {"int8": 1, "int4": 1}),
    "a norm of parts": (lambda x: F.layer_norm(x.view(-1, 4, 32), (32,)), {"int8": 1, "int4": 1}),
    "gelu": (F.gelu, {"int4": 2}),
    "glu": (lambda x: F.glu(x, -1), {"int8": 2}),
    "a factor": (lambda x: x * x, {"int8": 1}),
    "relu and a product": (lambda x: F.linear(torch.relu_(x * 1), torch.ones(4, x.size(1), dtype=x.dtype, device=x.device)
                                              .requires_grad_()), {"int8": 0, "int4": 0}),
}


def statistics_of(operator, x, form):
    around = adacc.saved_tensors(lambda tensor: form, least_bytes=32 * 1024)
    leaf = x.detach().clone().requires_grad_()
    with around:
        y = operator(leaf * 1)
    found = reported(around)
    del y
    return found


@on_cuda
class Rows(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def test_rows_that_fail_come_back_exactly(self):
        for dtype in TYPES:
            for shape in ((256, 128), (1000, 96), (64, 1024)):
                for form in ("int8", "int4", "bf16"):
                    if form == "bf16" and dtype != torch.float32:
                        continue  # saves nothing
                    with self.subTest(dtype=dtype, shape=shape, form=form):
                        plain = torch.randn(shape).to(dtype)
                        rows = [1, shape[0] - 2][:max(1, shape[0] // 64)]
                        x = spoilt(plain.clone(), rows)
                        back, statistics = self.saved(x.cuda(), form)
                        self.assertEqual(1, statistics.encoded)
                        self.assertEqual((len(rows), 0), (statistics.exact_rows, statistics.uncertified))
                        saved = x.cuda() * 1
                        for row in rows:
                            self.assertTrue(torch.equal(bits(saved[row]), bits(back[row])), row)
                        others = [row for row in range(shape[0]) if row not in rows]
                        self.assertTrue(torch.isfinite(back[others]).all())
                        off = (back[others].cpu().float() - x[others].float()).square().sum()
                        self.assertLess(off, 0.0125 * x[others].float().square().sum())
                        self.assertFalse(torch.equal(bits(x[others]), bits(back[others])))  # and they are not kept

    @staticmethod
    def saved(x, form):
        around = adacc.saved_tensors(lambda tensor: form, least_bytes=0)
        leaf = x.detach().clone().requires_grad_()
        with around:
            loss = Saved.apply(leaf * 1)
        loss.backward()
        return leaf.grad, reported(around)

    def test_half_precision_of_several_pieces(self):
        x = spoilt(torch.randn(8192 + 64, 256), [0, 4095, 4096, 8191, 8200]).half()  # a piece has 4096 rows
        back, statistics = self.saved(x.cuda(), "int8")
        self.assertEqual((5, 0), (statistics.exact_rows, statistics.uncertified))
        saved = x.cuda() * 1  # a device's product of a NaN has other bits
        for row in 0, 4095, 4096, 8191, 8200:
            self.assertTrue(torch.equal(bits(saved[row]), bits(back[row])), row)
        self.assertFalse(torch.equal(bits(saved[1]), bits(back[1])))

    def test_more_rows_than_places_are_reported(self):
        x = spoilt(torch.randn(256, 128), range(10, 16))
        back, statistics = self.saved(x.cuda(), "int8")
        self.assertEqual((4, 1), (statistics.exact_rows, statistics.uncertified))
        saved = x.cuda() * 1
        exact = sum(torch.equal(bits(saved[row]), bits(back[row])) for row in range(10, 16))
        self.assertEqual(4, exact)
        self.assertIn("4 rows kept exactly, 1 forms that failed", repr(statistics))

    def test_too_large_an_error_of_all_is_reported(self):
        x = with_spikes(torch.randn(256, 128), 0.06)
        for form, expected in (("int8", 0), ("int4", 1)):
            _, statistics = self.saved(x.cuda(), form)
            self.assertEqual((0, expected), (statistics.exact_rows, statistics.uncertified))

    def test_decisions_are_those_of_the_cpu(self):
        seen = {}
        for name, make in TENSORS.items():
            for dtype in TYPES:
                x = make().to(dtype)
                if x.unique().numel() <= 2:
                    continue  # the CPU packs it as bits
                for of, (operator, policies) in OPERATORS.items():
                    for form, before in policies.items():
                        if dtype != torch.float32 and of == "glu":
                            continue  # 16 bits in 16
                        with self.subTest(tensor=name, dtype=dtype, operator=of, form=form):
                            here = statistics_of(operator, x, form)
                            there = statistics_of(operator, x.cuda(), form)
                            if here.declined < before or here.storages != 1 or there.encoded != 1:
                                continue  # the CPU takes another form than the device, or nothing is encoded
                            stands = there.exact_rows == 0 and there.uncertified == 0
                            self.assertEqual(here.declined == before, stands, (here, there))
                            seen.setdefault(of, set()).add(stands)
        self.assertEqual({of: {True, False} for of in OPERATORS}, seen)

    def test_numbers_stay_numbers(self):
        for name, make in TENSORS.items():
            for dtype in TYPES:
                for form in ("int8", "int4", "bf16"):
                    with self.subTest(tensor=name, dtype=dtype, form=form):
                        x = make().to(dtype)
                        back, statistics = self.saved(x.cuda(), form)
                        lost = torch.isfinite(x) & torch.isnan(back.cpu())
                        self.assertFalse(lost.any(), statistics)

    def test_a_failure_is_said_once_though_nobody_asks(self):
        code = """
import torch
try:
    import ptxrun_torch
except ImportError:
    pass
import adacc
x = torch.randn(256, 128, device="cuda")
x[:100, 3] = float("inf")
x.requires_grad_()
w = torch.ones(128, 128, device="cuda", requires_grad=True)
for _ in range(3):
    with adacc.saved_tensors(lambda tensor: "int8"):
        y = (x * 1) @ w
    del y
    torch.cuda.synchronize()
"""
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(0, run.returncode, run.stdout + run.stderr)
        self.assertEqual(1, run.stderr.count("aten::mm does not bear int8_outlier: 100 of its 256 rows fail, and 4 are kept "
                                             "exactly"), run.stderr)


@on_cuda
@is_counted
class BudgetedRows(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def run_step(self, model, x, budget):
        _, peak = step(model, x, budget)
        torch.cuda.synchronize()
        report = budget.report
        if report.planned:
            self.assertEqual(report.measured_bytes, peak, report)
            self.assertEqual(report.planned_bytes, peak, report)
        return report

    def test_a_form_that_fails_is_planned_no_more(self):
        model, x = Net().cuda(), torch.randn(256, 64, device="cuda")
        # The least there is: all forms are the smallest, at any measured time.
        budget = adacc.budget("5%", "int4", least_bytes=4096, on_refusal="least", again=False)
        for _ in range(4):
            report = self.run_step(model, x, budget)
        self.assertEqual((2, 0, 0, ""), (report.planned, report.uncertified, report.exact_rows, report.failed_form), report)
        model.blocks[1].up.weight.data[5] *= 1e5  # codes are further apart than a GELU tolerates
        report = self.run_step(model, x, budget)
        self.assertEqual(0, report.uncertified, report)  # the host asked no device
        for step, form in (6, "int8_outlier"), (7, "bf16"):  # 16 bits are too few as well
            report = self.run_step(model, x, budget)
            self.assertRegex(report.failed_form, fr"in a step before step {step}, a tensor saved by aten::gelu in blocks.1 does "
                                                 fr"not bear {form}: \d+ of its 256 rows fail, and 4 are kept exactly")
            self.assertIn(report.failed_form, str(report))
            self.assertEqual(step - 5, report.uncertified, report)
        for _ in range(2):
            report = self.run_step(model, x, budget)
        self.assertEqual((2, 0), (report.uncertified, report.diverged), report)

    def test_rows_with_a_place_change_no_plan(self):
        model, x = Net().cuda(), torch.randn(256, 64, device="cuda")
        budget = adacc.budget("60%", "int4", least_bytes=4096, again=False)
        for _ in range(4):
            report = self.run_step(model, x, budget)
        before = [(share.policy, share.storages) for share in report.shares]
        x[9, 3] = INF
        for _ in range(3):
            report = self.run_step(model, x, budget)
        self.assertGreater(report.exact_rows, 0, report)
        self.assertEqual(0, report.uncertified, report)
        self.assertIn("rows beside their forms, exactly", str(report))
        self.assertEqual(before, [(share.policy, share.storages) for share in report.shares])


if __name__ == "__main__":
    unittest.main()
