# SPDX-License-Identifier: MIT
"""Saved tensors on several streams of a CUDA device: work that is given memory too early, or too late, changes numbers.

On a pretended device PTXRUN_LATE=1 finds most: streams run when somebody waits for them. Operators of PyTorch wait for their
stream there; encoding, decoding and copies do not. So a test lets a guard's end encode, and no operator come behind that."""
import unittest

import adacc
import torch
from devices import is_counted, on_cuda
from test_cuda_budgets import Net, step

SHAPE = 64, 1024  # a size of its own: the next tensor gets the memory given back


def int8(_):
    return "int8"


class Late(torch.autograd.Function):
    """Its backward copies the saved tensor between before() and then(): a copy of bytes waits for nothing."""

    @staticmethod
    def forward(context, y, to, on=None, before=None, then=None):
        context.save_for_backward(y)
        context.to, context.on, context.before, context.then = to, on, before, then
        return y.sum()

    @staticmethod
    def backward(context, _):
        if context.before is not None:
            context.before()
        with torch.cuda.stream(context.on):
            context.to.copy_(context.saved_tensors[0], non_blocking=True)
        if context.then is not None:
            context.then()
        return (None,) * 5


def late_step(budget, x, to, before=None):
    """A step under the budget: saves 2 x, and copies the saved tensor to `to` in backward."""
    with budget:
        y = 2 * x
        loss = Late.apply(y, to, None, before)
        del y
    wide = torch.zeros(4 * SHAPE[0], SHAPE[1], device="cuda")  # the step's peak
    del wide
    loss.backward()


def decoded(x):
    """x after int8."""
    with adacc.saved_tensors(int8):
        y = x.detach().clone().requires_grad_() * 1
        node = y.square().grad_fn
        del y
        return node._saved_self.detach().clone()


@on_cuda
class Streams(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def orders(self):
        """x, which is another one each time, and a stream."""
        for _ in range(8):
            x = torch.randn(SHAPE, device="cuda")
            torch.cuda.synchronize()
            yield x.requires_grad_(), torch.cuda.Stream()
            torch.cuda.synchronize()

    def assert_decodes(self, node, x):
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(decoded(2 * x), node._saved_self))

    def test_memory_of_one_stream_that_is_saved_on_another_is_given_back_behind_it(self):
        for x, other in self.orders():
            y = 2 * x
            other.wait_stream(torch.cuda.current_stream())  # which makes y
            with torch.cuda.stream(other), adacc.saved_tensors(int8) as around:
                node = y.square().grad_fn
                del y  # and it is encoded on the other stream as the guard ends
            overwritten = torch.zeros(SHAPE, device="cuda")
            self.assertEqual(1, around.statistics.encoded)
            self.assert_decodes(node, x)
            del overwritten

    def test_whoever_finds_a_storage_released_its_own_stream_encodes(self):
        for x, other in self.orders():
            around = adacc.saved_tensors(int8)
            around.__enter__()
            node = (2 * x).square().grad_fn
            with torch.cuda.stream(other):
                around.__exit__(None, None, None)
            overwritten = torch.zeros(SHAPE, device="cuda")
            self.assertEqual(1, around.statistics.encoded)
            self.assert_decodes(node, x)
            del overwritten

    def test_a_reader_on_another_stream_waits_for_the_encoding_too(self):
        for x, other in self.orders():
            copy_of = torch.empty(SHAPE, device="cuda")
            with adacc.saved_tensors(int8) as around:
                node = (2 * x).square().grad_fn
            with torch.cuda.stream(other):
                value = node._saved_self
                copy_of.copy_(value, non_blocking=True)
            self.assertEqual(1, around.statistics.encoded)
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(decoded(2 * x), copy_of))
            del value

    def test_the_last_reader_on_another_stream_waits(self):
        def read(x, on):
            copy_of = torch.empty(SHAPE, device="cuda")
            torch.cuda.synchronize()
            with adacc.saved_tensors(int8) as around:
                loss = Late.apply(2 * x, copy_of, on)
            loss.backward()
            del loss
            overwritten = torch.zeros(SHAPE, device="cuda")
            self.assertEqual(1, around.statistics.encoded)
            torch.cuda.synchronize()
            del overwritten
            return copy_of

        for x, other in self.orders():
            expected = read(x, torch.cuda.current_stream())
            self.assertFalse(torch.equal(2 * x, expected))
            self.assertTrue(torch.equal(expected, read(x, other)))

    @is_counted
    def test_pinned_memory_is_written_behind_encodings_and_read_behind_that(self):
        model, x = Net(width=128, blocks=3).cuda(), torch.randn(256, 128, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            budget = adacc.budget("50%", "int8", least_bytes=4096, store="pinned:16MiB", on_refusal="least", again=False)
            for number in range(6):
                x.normal_()  # what an earlier step left in the same memory is wrong
                exact, _ = step(model, x)
                mine, _ = step(model, x, budget)
                off = sum((a - b).square().sum() for a, b in zip(mine, exact)) / sum(b.square().sum() for b in exact)
                self.assertLess(off.item(), 1e-2, f"step {number}: {budget.report}")
        torch.cuda.synchronize()
        self.assertGreater(budget.report.written_bytes, 0)

    @is_counted
    def test_pinned_memory_is_written_anew_behind_what_was_read_of_it(self):
        """The steps of one budget on two streams, of which neither waits for the other."""
        streams = [torch.cuda.Stream() for _ in range(2)]
        budget = adacc.budget("85%", "lossless", least_bytes=4096, store="pinned:16MiB", again=False)
        copies, inputs = [], []
        for number in range(8):
            inputs.append(torch.full(SHAPE, 1.0 + number, device="cuda", requires_grad=True))
            copies.append(torch.empty(SHAPE, device="cuda"))
            if number < 4:  # recorded, measured
                torch.cuda.synchronize()
            streams[number % 2].wait_stream(torch.cuda.current_stream())  # for the input
            with torch.cuda.stream(streams[number % 2]):
                late_step(budget, inputs[-1], copies[-1])
        torch.cuda.synchronize()
        self.assertGreater(budget.report.written_bytes, 0, budget.report)
        for x, copy_of in zip(inputs, copies):
            self.assertTrue(torch.equal(2 * x, copy_of))

    @is_counted
    def test_pinned_memory_is_read_behind_what_had_the_memory_before(self):
        budget = adacc.budget("85%", "lossless", least_bytes=4096, store="pinned:16MiB", again=False)
        copies = [torch.empty(SHAPE, device="cuda") for _ in range(2)]
        expected = torch.full(SHAPE, -1.0, device="cuda")

        def before():
            other = torch.full(SHAPE, -1.0, device="cuda")
            copies[1].copy_(other, non_blocking=True)  # and its memory is what the storage is read into

        with torch.cuda.stream(torch.cuda.Stream()):
            for number in range(32):
                x = torch.full(SHAPE, 1.0 + number, device="cuda", requires_grad=True)
                torch.cuda.synchronize()
                late_step(budget, x, copies[0], before)
                torch.cuda.synchronize()
                self.assertTrue(torch.equal(2 * x, copies[0]))
                self.assertTrue(torch.equal(expected, copies[1]))
        self.assertGreater(budget.report.read_bytes, 0, budget.report)

    @is_counted
    def test_memory_that_is_read_back_for_nobody_is_given_back_behind_the_copy(self):
        budget = adacc.budget("62%", "lossless", least_bytes=4096, store="pinned:16MiB", again=False)
        copy_of, x = torch.empty(SHAPE, device="cuda"), torch.ones(SHAPE, device="cuda", requires_grad=True)

        def fails():
            raise ArithmeticError("backward goes no further")

        for number in range(6):
            with budget:
                loss = 0
                for place in range(3):
                    y = (2 + place) * x
                    loss = loss + Late.apply(y, copy_of, None, None, fails if (number, place) == (5, 1) else None)
                    del y
            wide = torch.zeros(4 * SHAPE[0], SHAPE[1], device="cuda")  # the step's peak
            del wide
            if number < 5:
                loss.backward()
            else:  # as the second is read, the first begins to come back
                with self.assertRaisesRegex(ArithmeticError, "goes no further"):
                    loss.backward()
            del loss
            fresh = [torch.zeros(SHAPE, device="cuda") for _ in range(4)]
            torch.cuda.synchronize()
            for each in fresh:
                self.assertEqual(0, each.count_nonzero().item())
            del each, fresh
        with budget:  # the step that failed is over now, even if a thread of autograd still holds its graph
            pass
        self.assertEqual(3 * 4 * x.numel(), budget.report.read_bytes, budget.report)


if __name__ == "__main__":
    unittest.main()
