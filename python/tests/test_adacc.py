# SPDX-License-Identifier: MIT
"""adacc against torch without it: python -m unittest discover tests"""
import pathlib
import tempfile
import threading
import unittest
import warnings

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


class Net(nn.Module):
    """Blocks of which one in forward has 3 MiB of activations; each may run through run(block, x)."""

    def __init__(self, blocks=6, dropout=0.1):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 512), nn.GELU(), nn.Dropout(dropout),
                          nn.Linear(512, 128)) for _ in range(blocks))
        self.run = lambda block, x: block(x)

    def forward(self, x):
        for block in self.blocks:
            x = x + self.run(block, x)
        return x.square().mean()


def train(model, batches, budget=None):
    """Losses, gradients of the last step, and the peak of each, above what was there before it."""
    losses, peaks, mine = [], [], []
    for i, batch in enumerate(batches):
        torch.manual_seed(i)
        model.zero_grad(set_to_none=False)
        before = adacc.memory.live()
        adacc.memory.reset_peak()
        if budget is None:
            loss = model(batch())
        else:
            with budget:
                loss = model(batch())
        loss.backward()
        peaks.append(adacc.memory.peak() - before)
        losses.append(loss.item())
        mine = [parameter.grad.clone() for parameter in model.parameters()]
        del loss
    return losses, mine, peaks


def rows(count):
    return lambda: torch.randn(count, 128)


def begin(case):
    """Bytes are counted, and there are no warnings of budgets that are left before they plan."""
    quiet = warnings.catch_warnings()
    quiet.__enter__()
    case.addCleanup(quiet.__exit__, None, None, None)
    warnings.simplefilter("ignore")
    adacc.memory.count()
    torch.manual_seed(0)


class Budget(unittest.TestCase):
    def setUp(self):
        begin(self)
        self.model = Net()
        train(self.model, [rows(512)])  # gradients, libraries' caches

    def test_peak_is_within_the_budget(self):
        plain = train(self.model, [rows(512)] * 3)
        for share in (100, 70, 50, 40):
            budget = adacc.budget(f"{share}%")
            _, mine, peaks = train(self.model, [rows(512)] * 5, budget)
            report = budget.report
            self.assertEqual(report.plain_bytes, plain[2][-1])
            self.assertEqual((report.recorded, report.planned, report.diverged, report.corrections),
                             (2, 3, 0, 0), report)
            self.assertEqual(report.budget_bytes, report.plain_bytes * share // 100)
            self.assertLessEqual(max(peaks), report.budget_bytes)
            self.assertEqual(report.measured_bytes, peaks[-1])
            # The record says how the bytes of a step go: the prediction is good to the byte.
            self.assertEqual(report.planned_bytes, peaks[-1])
            self.assertGreater(report.planned_ratio, 1)  # masks are packed in any case
            self.assertLess(error(mine, train(self.model, [rows(512)] * 5)[1]), 2e-2)

    def test_lossless_budgets_keep_every_bit(self):
        self.model.run = adacc.checkpoint
        exact = train(self.model, [rows(512)] * 5)
        for share in (80, 60, 40):
            budget = adacc.budget(f"{share}%", "lossless")
            losses, mine, peaks = train(self.model, [rows(512)] * 5, budget)
            self.assertEqual(losses, exact[0])
            for one, other in zip(mine, exact[1]):
                self.assertTrue(torch.equal(one, other))
            self.assertEqual(budget.report.planned, 3)
            self.assertLessEqual(max(peaks), budget.report.budget_bytes, budget.report)
            self.assertEqual(bool({"recompute", "again"} & {s.policy for s in budget.report.shares}), share < 80)

    def test_what_is_sent_to_a_store_keeps_every_bit(self):
        exact = train(self.model, [rows(512)] * 5)
        with tempfile.TemporaryDirectory(dir=".") as folder:
            for share, policy in ((60, "lossless"), (25, "tolerated")):
                try:
                    budget = adacc.budget(f"{share}%", policy, store=pathlib.Path(folder))
                except RuntimeError as why:
                    self.skipTest(str(why))  # not every file system can
                losses, mine, peaks = train(self.model, [rows(512)] * 5, budget)
                report = budget.report
                self.assertEqual((report.planned, report.corrections), (3, 0), report)
                self.assertLessEqual(max(peaks[2:]), report.budget_bytes, report)
                self.assertLessEqual(peaks[-1], report.planned_bytes)
                self.assertLess(report.planned_bytes, 1.05 * peaks[-1])
                self.assertEqual(report.read_bytes, report.written_bytes)
                self.assertEqual(losses, exact[0])
                if policy == "lossless":
                    self.assertGreater(report.written_bytes, 0)
                    self.assertIn("offload", [s.policy for s in report.shares])
                    for one, other in zip(mine, exact[1]):
                        self.assertTrue(torch.equal(one, other))
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_stores_that_cannot_be_say_why(self):
        with self.assertRaisesRegex(RuntimeError, "no scratch file in /no/such: No such file"):
            adacc.budget("40%", store="/no/such")
        with self.assertRaisesRegex(RuntimeError, "no scratch file in /proc: "):
            adacc.budget("40%", store="/proc")
        with self.assertRaisesRegex(ValueError, "is a folder on a disk"):
            adacc.budget("40%", store="")

    def test_checkpoints_are_planned(self):
        self.model.run = adacc.checkpoint
        again = {}
        for share in (100, 55, 30):
            budget = adacc.budget(f"{share}%", "lossless", again=False)  # operators alone would do for 55 %
            calls = []
            self.model.blocks[0].register_forward_hook(lambda *args: calls.append(0))
            try:
                train(self.model, [rows(512)] * 4, budget)
            except RuntimeError as why:
                self.assertEqual(share, 30, why)
                self.assertIn("is below the least that a plan was found for", str(why))
            again[share] = {s.policy: s.storages for s in budget.report.shares}.get("recompute", 0)
        self.assertEqual(again[100], 0)
        self.assertGreater(again[55], 0)

    def test_checkpoints_in_checkpoints_and_in_saved_tensors(self):
        def nested(block, x):
            return adacc.checkpoint(lambda y: adacc.checkpoint(block, y), x)

        exact = train(self.model, [rows(512)] * 4)
        self.model.run = nested
        for share in (100, 50):
            budget = adacc.budget(f"{share}%", "lossless")
            losses, mine, _ = train(self.model, [rows(512)] * 4, budget)
            self.assertEqual(losses, exact[0])
            for one, other in zip(mine, exact[1]):
                self.assertTrue(torch.equal(one, other))
            self.assertEqual((budget.report.planned, budget.report.diverged), (2, 0), budget.report)

        def under_hooks(block, x):  # those are not the budget's affair
            with adacc.saved_tensors("lossless"):
                return adacc.checkpoint(block, x)

        self.model.run = under_hooks
        budget = adacc.budget("100%")
        losses, mine, _ = train(self.model, [rows(512)] * 4, budget)
        self.assertEqual(losses, exact[0])
        self.assertEqual(budget.report.planned, 2)

    def test_a_budget_below_the_least_says_what_can_be_met(self):
        budget = adacc.budget("2MiB")
        with self.assertRaisesRegex(RuntimeError, r"a budget of 2.0 MiB is below the least that a plan "
                                                  r"was found for, [0-9.]+ MiB of the plain step's "
                                                  r"[0-9.]+ MiB; it is limited by (forward|backward of "
                                                  r"aten::[a-z_]+), where [0-9.]+ MiB are in use"):
            train(self.model, [rows(512)] * 3, budget)
        self.assertEqual(budget.report.planned, 0)
        # What it says can be met.
        least = adacc.budget(budget.report.least_bytes)
        _, _, peaks = train(self.model, [rows(512)] * 4, least)
        self.assertLessEqual(max(peaks[2:]), least.report.budget_bytes)

    def test_what_is_no_budget(self):
        for amount, what in (("forty", "does not start with a number"), ("40", "has no unit"),
                             ("0%", "is not more than nothing"), (0, "1 byte or more")):
            with self.assertRaisesRegex(ValueError, what):
                adacc.budget(amount)
        with self.assertRaises(TypeError):
            adacc.budget(0.4)
        with self.assertRaisesRegex(ValueError, "there is no policy"):
            adacc.budget("40%", "int3")
        with self.assertRaisesRegex(ValueError, "records 1 step or more"):
            adacc.budget("40%", recorded_steps=0)

    def test_steps_of_other_sizes_are_recorded_and_remembered(self):
        budget = adacc.budget("50%")
        sizes = [512, 512, 512, 384, 384, 512, 384, 512]
        losses, _, peaks = train(self.model, [rows(size) for size in sizes], budget)
        report = budget.report
        # The step that differs keeps to the smallest forms, and so to the budget, and is recorded as it goes.
        self.assertEqual((report.recorded, report.diverged, report.planned), (3, 0, 5), report)
        plain = {size: train(self.model, [rows(size)])[2][0] for size in (512, 384)}
        for size, peak in zip(sizes, peaks):
            self.assertLessEqual(peak, 0.5 * plain[size])

    def test_a_graph_that_changes_is_said(self):
        budget = adacc.budget("50%", "lossless", recorded_steps=1)
        self.model.run = adacc.checkpoint
        train(self.model, [rows(512)] * 2, budget)
        self.model.run = lambda block, x: torch.sin(block(x))
        exact = train(self.model, [rows(512)])
        _, mine, _ = train(self.model, [rows(512)], budget)
        self.assertEqual((budget.report.diverged, budget.report.recorded), (0, 2))
        self.assertRegex(budget.report.note, r"step 3 .*: it was recorded as one of another kind")
        for one, other in zip(mine, exact[1]):
            self.assertTrue(torch.equal(one, other))

    def test_one_guard_around_all_steps(self):
        batches = [rows(512)] * 5
        exact = train(self.model, batches)
        self.model.run = adacc.checkpoint
        budget = adacc.budget("60%", "lossless")
        with budget:
            losses, mine, peaks = train(self.model, batches)
        self.assertEqual(losses, exact[0])
        for one, other in zip(mine, exact[1]):
            self.assertTrue(torch.equal(one, other))
        report = budget.report
        self.assertEqual((report.recorded, report.planned), (2, 3), report)
        self.assertLessEqual(max(peaks[2:]), report.budget_bytes + 512 * 128 * 4)  # and the batch

    def test_several_forwards_are_one_step(self):
        def step(budget):
            torch.manual_seed(1)
            self.model.zero_grad(set_to_none=False)
            losses = []
            for _ in range(2):
                with budget:
                    losses.append(self.model(torch.randn(512, 128)))
            sum(losses).backward()
            return [parameter.grad.clone() for parameter in self.model.parameters()]

        budget = adacc.budget("60%")
        exact = step(torch.enable_grad())
        for _ in range(4):
            mine = step(budget)
        self.assertEqual((budget.report.steps, budget.report.planned), (4, 2), budget.report)
        self.assertLessEqual(budget.report.most_bytes, budget.report.budget_bytes)
        self.assertLess(error(mine, exact), 2e-2)

    def test_retained_graphs_and_forward_alone(self):
        budget = adacc.budget("60%")
        with budget:
            self.model(torch.randn(512, 128))  # evaluated, and thrown away
        self.assertIn("without backward", budget.report.note)
        for _ in range(4):
            with budget:
                loss = self.model(torch.randn(512, 128))
            loss.backward(retain_graph=True)
            loss.backward()
            del loss
        self.assertEqual((budget.report.recorded, budget.report.planned), (2, 2), budget.report)
        self.assertLessEqual(budget.report.most_bytes, budget.report.budget_bytes)

    def test_budgets_do_not_nest_nor_overlap(self):
        one, other = adacc.budget("60%"), adacc.budget("60%")
        with self.assertRaisesRegex(RuntimeError, "a budget within a budget"):
            with one:
                with other:
                    pass
        with one:
            loss = self.model(torch.randn(512, 128))
        with self.assertRaisesRegex(RuntimeError, "a step of another budget is not over"):
            with other:
                pass
        loss.backward()
        with other:
            self.model(torch.randn(512, 128)).backward()
        # A guard in which nothing was saved is no step.
        with self.assertRaisesRegex(KeyError, "no batch"):
            with one:
                raise KeyError("no batch")
        with other:
            self.model(torch.randn(512, 128)).backward()

    def test_a_policy_in_python_and_its_errors(self):
        seen = []

        def policy(tensor):
            seen.append(tensor.savers)
            return "int8"

        budget = adacc.budget("50%", policy)
        train(self.model, [rows(512)] * 4, budget)
        self.assertEqual({s.policy for s in budget.report.shares} - {"retain", "lossless", "bf16", "int8_outlier", "again"}, set())
        self.assertLessEqual(budget.report.most_bytes, budget.report.budget_bytes)
        self.assertGreater(len(seen), 10)

        def fails(tensor):
            raise RuntimeError("not today")

        with self.assertRaisesRegex(RuntimeError, "not today"):
            train(self.model, [rows(512)], adacc.budget("50%", fails))

    def test_all_memory_comes_back(self):
        before = adacc.memory.live()
        budget = adacc.budget("50%")
        train(self.model, [rows(512)] * 4, budget)
        del budget
        self.assertEqual(adacc.memory.live(), before)

    def test_a_budget_that_is_made_for_each_step_is_warned_of(self):
        with self.assertWarnsRegex(UserWarning, "make it once"):
            for _ in range(2):
                train(self.model, [rows(512)], adacc.budget("50%"))


if __name__ == "__main__":
    unittest.main()
