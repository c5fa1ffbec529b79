# SPDX-License-Identifier: MIT
"""Captured CUDA graphs: saved tensors are encoded within one; a budget's steps are, if they were planned before.

On a pretended device PyTorch's operators wait for their stream, which breaks a capture. So the work here is copies."""
import unittest

import adacc
import torch
from devices import is_counted, on_cuda
from test_cuda_streams import SHAPE, int8


class Copy(torch.autograd.Function):
    """Of its input, which needs a gradient and is given none."""

    @staticmethod
    def forward(context, x):
        context.set_materialize_grads(False)
        return torch.empty(SHAPE, device="cuda").copy_(x, non_blocking=True)

    @staticmethod
    def backward(context, _):
        return None


class Late(torch.autograd.Function):
    """Its backward copies the saved tensor."""

    @staticmethod
    def forward(context, y, to):
        context.save_for_backward(y)
        context.to = to
        return torch.empty((), device="cuda")

    @staticmethod
    def backward(context, _):
        context.to.copy_(context.saved_tensors[0], non_blocking=True)
        return None, None


@on_cuda
class Graphs(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.x = [torch.randn(SHAPE, device="cuda", requires_grad=True) for _ in range(3)]
        self.to = [torch.empty(SHAPE, device="cuda") for _ in range(3)]
        self.one = torch.ones((), device="cuda")
        torch.cuda.synchronize()

    def step(self, around):
        losses = []
        with around:
            for x, to in zip(self.x, self.to):
                y = Copy.apply(x)
                losses.append(Late.apply(y, to))
                del y
        wide = torch.empty(4, *SHAPE, device="cuda")  # the step's peak
        del wide
        torch.autograd.backward(losses, [self.one] * 3)

    def assert_copied(self):
        """In int8, or in a milder form."""
        torch.cuda.synchronize()
        for x, to in zip([each.detach() for each in self.x], self.to):
            self.assertLess((x - to).square().sum().item(), 1e-3 * x.square().sum().item())

    def assert_replays(self, graph):
        for _ in range(2):
            for x in self.x:
                x.data.normal_()
            torch.cuda.synchronize()
            graph.replay()
            self.assert_copied()

    def test_saved_tensors_are_encoded_in_a_graph(self):
        around = adacc.saved_tensors(int8)
        self.step(around)
        self.assert_copied()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(around)
        self.assertEqual(6, around.statistics.encoded)
        self.assert_replays(graph)

    def test_rows_that_fail_come_back_in_each_replay(self):
        around = adacc.saved_tensors(int8)
        self.step(around)
        torch.cuda.synchronize()
        self.assertEqual(0, around.statistics.exact_rows)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(around)
        kept = 0
        for rows in [5], [40], []:
            for x in self.x:
                x.data.normal_()
            for row in rows:
                self.x[1].data[row, 3] = float("inf")
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()
            kept += len(rows)
            self.assertEqual((kept, 0), (around.statistics.exact_rows, around.statistics.uncertified))
            for row in rows:
                self.assertTrue(torch.equal(self.x[1][row], self.to[1][row]))
                self.x[1].data[row] = self.to[1][row] = 0
            self.assert_copied()

    @is_counted
    def test_a_budget_is_planned_before_a_capture(self):
        for device in None, "cuda":
            with self.subTest(device=device):
                budget = adacc.budget("70%", int8, device=device)  # less than by bf16
                for count in range(3):  # steps before
                    with self.assertRaisesRegex(RuntimeError, r"first steps \(3\) are recorded, timed and planned"):
                        with torch.cuda.graph(torch.cuda.CUDAGraph()):
                            self.step(budget)
                    self.step(budget)
                self.assert_copied()
                self.assertEqual((2, 1, 0), (budget.report.recorded, budget.report.planned, budget.report.diverged))
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self.step(budget)
                report = budget.report
                self.assertEqual((2, 0), (report.planned, report.diverged), report)
                self.assertEqual(report.planned_bytes, report.measured_bytes, report)
                self.assertIn("int8_outlier", [each.policy for each in report.shares])
                self.assert_replays(graph)
                self.step(budget)
                self.assert_copied()
                self.assertEqual(3, budget.report.planned)


if __name__ == "__main__":
    unittest.main()
