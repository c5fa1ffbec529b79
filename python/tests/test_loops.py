# SPDX-License-Identifier: MIT
"""Budgets in loops as they are: recordings within the budget, kinds of steps, refusals of one kind."""
import random
import unittest

import adacc
import torch
from test_adacc import Net, begin, error, rows, train
from torch import nn


def peaks_of(model, batches, budget, set_to_none=False):
    """Plain peak and peak within the budget of each batch, without gradients from before or with."""
    def peak(batch, around):
        if set_to_none:
            model.zero_grad(set_to_none=True)
        x = batch()
        before = adacc.memory.live()
        adacc.memory.reset_peak()
        with around:
            loss = model(x)
        loss.backward()
        return adacc.memory.peak() - before
    return [(peak(batch, torch.enable_grad()), peak(batch, budget)) for batch in batches]


def peak_in_guard(model, x, trains):
    """The peak of a graph within a guard around the whole loop, with backward or without."""
    model.zero_grad(set_to_none=False)
    before = adacc.memory.live()
    adacc.memory.reset_peak()
    loss = model(x)
    if trains:
        loss.backward()
    del loss
    return adacc.memory.peak() - before


class Recordings(unittest.TestCase):
    def setUp(self):
        begin(self)
        self.model = Net()
        train(self.model, [rows(512)])  # gradients, libraries' caches

    def test_recorded_steps_are_within_a_budget_in_bytes(self):
        _, _, (plain,) = train(self.model, [rows(512)])
        budget = adacc.budget(plain // 2)
        _, mine, peaks = train(self.model, [rows(512)] * 5, budget)
        self.assertLessEqual(max(peaks), plain // 2, peaks)
        report = budget.report
        # Computed from the record of a step that took less.
        self.assertEqual(report.plain_bytes, plain)
        self.assertEqual(report.recorded_bytes, peaks[1])
        self.assertEqual(report.planned_bytes, peaks[-1])
        self.assertLess(error(mine, train(self.model, [rows(512)] * 5)[1]), 2e-2)

    def test_gradients_behind_the_last_saved_tensor_count(self):
        """A cast saves nothing, and its gradient is twice as large as all that was there before."""
        parameter, peaks = nn.Parameter(torch.randn(1000, 64)), []
        budget = adacc.budget("100%", "lossless", least_bytes=1)
        for _ in range(5):
            parameter.grad = None
            before = adacc.memory.live()
            adacc.memory.reset_peak()
            with budget:
                loss = parameter.half().sum(0).float().exp().sum()
            loss.backward()
            peaks.append(adacc.memory.peak() - before)
            del loss
        report = budget.report
        self.assertEqual((3, 0), (report.planned, report.diverged), report)
        self.assertEqual([report.plain_bytes] * 3, peaks[2:])
        self.assertEqual((peaks[-1], peaks[-1]), (report.planned_bytes, report.measured_bytes), report)

    def test_masks_are_packed_before_larger_forms_are_made(self):
        """Dropout's mask, a tensor of numbers, is released together with the output of softmax."""
        class Weights(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Sequential(nn.Linear(128, 512), nn.Softmax(-1), nn.Dropout(0.1),
                                                          nn.Linear(512, 128)) for _ in range(3))

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x.square().mean()
        model = Weights()
        train(model, [rows(512)])
        least = adacc.budget("1%", on_refusal="least")
        train(model, [rows(512)] * 3, least)
        budget = adacc.budget(least.report.least_bytes, on_refusal="least")
        _, _, peaks = train(model, [rows(512)] * 3, budget)
        report = budget.report
        self.assertEqual((report.recorded, report.planned, report.recorded_over), (2, 1, 0), report)
        self.assertEqual(peaks[1], report.planned_bytes, peaks)


class Kinds(unittest.TestCase):
    def setUp(self):
        begin(self)
        self.model = Net(3)
        train(self.model, [rows(384)])

    def within(self, peaks, budget, lengths):
        return [(length, plain, mine, budget(plain)) for length, (plain, mine) in zip(lengths, peaks)
                if mine > budget(plain)]

    def test_micro_batches_with_and_without_gradients_are_two_kinds(self):
        """The first of four has no gradients from before; then those of the parameters are made."""
        budget = adacc.budget("70%")
        for update in range(4):
            self.model.zero_grad(set_to_none=True)
            for micro in range(4):
                x = torch.randn(384, 128)
                before = adacc.memory.live()
                adacc.memory.reset_peak()
                with budget:
                    loss = self.model(x)
                loss.backward()
                del loss
                report = budget.report
                if report.planned:
                    self.assertLessEqual(adacc.memory.peak() - before, report.budget_bytes, (update, micro))
                    self.assertEqual(adacc.memory.peak() - before, report.planned_bytes, (update, micro))
        self.assertEqual((report.diverged, report.corrections, report.recorded, report.planned), (0, 0, 2, 14), report)

    def test_sixty_lengths_with_the_longest_last_are_never_over(self):
        lengths = [128 + 8 * i for i in range(60)]
        longest = peaks_of(self.model, [rows(lengths[-1])], torch.enable_grad())[0][0]
        for amount, limit in (("60%", lambda plain: 0.6 * plain), (longest // 2, lambda plain: longest // 2)):
            budget = adacc.budget(amount)
            peaks = peaks_of(self.model, [rows(length) for length in lengths], budget)
            self.assertEqual(self.within(peaks, limit, lengths), [])
            report = budget.report
            self.assertEqual((report.corrections, report.diverged), (0, 0), report)
            # Of those before it is known what a length means for bytes.
            self.assertLessEqual(report.recorded, 6, report)
            self.assertEqual(report.planned, 60 - report.recorded)
            self.assertEqual(report.measured_bytes, report.planned_bytes)
            # The longest is planned as the next step begins, with an operator's input and output in memory.
            peaks_of(self.model, [rows(lengths[-1])], budget)
            # As they come again, in any order.
            random.Random(1).shuffle(lengths)
            peaks = peaks_of(self.model, [rows(length) for length in lengths], budget)
            self.assertEqual(self.within(peaks, limit, lengths), [])
            lengths.sort()

    def test_graphs_without_backward_within_one_guard_are_steps_of_their_own(self):
        """Validation that leaves gradients on, between steps of training, all in one guard."""
        x = torch.randn(384, 128)

        def peak(trains):
            torch.manual_seed(2)
            return peak_in_guard(self.model, x, trains)

        for run in (self.model.run, adacc.checkpoint):
            self.model.run = run
            peak(True)
            exact = [parameter.grad.clone() for parameter in self.model.parameters()]
            budget = adacc.budget("60%")
            with budget:
                recorded = [peak(True) for _ in range(2)]
                for _ in range(3):
                    for trains in (False, False, True, True):
                        self.assertEqual(peak(trains), budget.report.measured_bytes, budget.report)
                        self.assertLessEqual(budget.report.measured_bytes, budget.report.budget_bytes, budget.report)
            report = budget.report
            self.assertLessEqual(max(recorded), report.budget_bytes, report)
            self.assertEqual((report.steps, report.recorded, report.planned), (14, 2, 12), report)
            self.assertEqual((report.diverged, report.corrections, report.note), (0, 0, ""), report)
            mine = [parameter.grad for parameter in self.model.parameters()]
            self.assertLess(error(mine, exact), 2e-2)

    def test_graphs_of_other_sizes_without_backward_count_into_the_step_behind_them(self):
        """Nothing tells them from tensors that a step saves for a moment: both are recorded as a step of another kind."""
        budget, notes = adacc.budget("60%"), []
        with budget:
            for length in (384, 384, 256, 384, 384, 256, 384, 384):
                x = torch.randn(length, 128)
                peak = peak_in_guard(self.model, x, trains=length == 384)
                self.assertLessEqual(peak, 0.6 * max(1, budget.report.plain_bytes))
                notes.append(budget.report.note)
                del x
        report = budget.report
        self.assertEqual((report.steps, report.recorded, report.planned), (6, 3, 3), report)
        self.assertEqual((report.diverged, report.corrections, report.recorded_over), (0, 0, 0), report)
        self.assertRegex(notes[3], "step 3 saved a Float tensor .*: it was recorded as one of another kind$")

    def test_a_refusal_is_of_one_kind_of_steps(self):
        small = peaks_of(self.model, [rows(64)], torch.enable_grad())[0][0]
        budget = adacc.budget(6 * small)
        big = [rows(2048)] * 2
        train(self.model, big, budget)  # recorded: it cannot be known before
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "is below the least that a plan was found for"):
                train(self.model, big[:1], budget)
        self.assertEqual((budget.report.refused, budget.report.steps), (2, 2))
        self.assertIn("a step was refused", budget.report.note)
        _, _, peaks = train(self.model, [rows(64)] * 4, budget)
        self.assertLessEqual(max(peaks), 6 * small)
        self.assertNotIn("refused", budget.report.note)
        self.assertEqual(budget.report.planned, 3, budget.report)
        with self.assertRaisesRegex(RuntimeError, "is below the least"):
            train(self.model, big[:1], budget)
        train(self.model, [rows(64)], budget)
        self.assertEqual((budget.report.planned, budget.report.refused), (4, 3))

    def test_a_refusal_says_what_takes_the_bytes(self):
        """Case: gradients of parameters, which no codec makes smaller."""
        model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024))
        budget = adacc.budget("2MiB")
        with self.assertRaises(RuntimeError) as refusal:
            for _ in range(3):
                model.zero_grad(set_to_none=True)
                with budget:
                    loss = model(torch.randn(256, 1024)).square().mean()
                loss.backward()
        self.assertRegex(str(refusal.exception),
                         r"limited by backward of aten::[a-z_]+( in (0|1|Sequential))?, where "
                         r"[0-9.]+ MiB are in use beside what is saved: [48].[0-9] MiB of gradients of parameters, "
                         r"[0-9.]+ MiB of gradients of activations")

        class Root(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(256), nn.GELU()) for _ in range(2))

            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return x.square().mean()
        with self.assertRaisesRegex(RuntimeError, r"backward of aten::(gelu|native_layer_norm|pow) in "
                                                  r"(Root|blocks\.[01]\.[01]), where"):
            train(Root(), [lambda: torch.randn(1024, 256, requires_grad=True)] * 3, adacc.budget("2MiB"))

    @unittest.skipUnless(torch.backends.mkldnn.is_available(), "this torch has no oneDNN")
    def test_workspaces_that_no_codec_takes_are_named(self):
        model = nn.LSTM(64, 64, batch_first=True)

        def run(batch):
            return model(batch)[0].square().mean()
        batch = torch.randn(32, 60, 64)
        statistics = adacc.saved_tensors("int8")
        with statistics:
            run(batch).backward()
        opaque = statistics.statistics.opaque_bytes
        if opaque == 0:
            self.skipTest("this torch's LSTM is not oneDNN's")
        self.assertGreater(opaque, statistics.statistics.raw_bytes // 2)
        budget = adacc.budget("100%")
        for _ in range(3):
            with budget:
                loss = run(batch)
            loss.backward()
            del loss
        self.assertEqual({s.policy: s.bytes for s in budget.report.shares}["opaque"], opaque)
        budget = adacc.budget("1MiB")
        with self.assertRaisesRegex(RuntimeError, r"[0-9.]+ MiB of what is saved are workspaces of "
                                                  r"aten::mkldnn_rnn_layer, which no codec takes"):
            for _ in range(3):
                with budget:
                    loss = run(batch)
                loss.backward()
                del loss

    def test_the_least_runs_where_it_is_asked_for(self):
        budget = adacc.budget("1MiB", on_refusal="least")
        exact = train(self.model, [rows(2048)] * 4)
        losses, mine, peaks = train(self.model, [rows(2048)] * 4, budget)
        self.assertEqual(losses, exact[0])
        self.assertLess(error(mine, exact[1]), 2e-2)
        report = budget.report
        self.assertEqual((report.refused, report.planned, report.recorded), (2, 2, 2), report)
        self.assertEqual(report.measured_bytes, report.least_bytes)
        self.assertLess(peaks[-1], 0.5 * exact[2][-1])
        self.assertRegex(report.note, r"step 4 ran in the least there is, [0-9.]+ MiB of a budget of 1.0 MiB")
        train(self.model, [rows(16)], budget)
        self.assertNotIn("the least", budget.report.note)

    def test_errors_leave_torch_as_it_was(self):
        with self.assertRaisesRegex(ValueError, "adacc: on_refusal is 'raise' or 'least', not 'none'"):
            adacc.budget("40%", on_refusal="none")
        exact = train(self.model, [rows(2048)])
        budget = adacc.budget("1MiB")
        train(self.model, [rows(2048)] * 2, budget)
        before = adacc.memory.live()
        x = torch.randn(2048, 128)
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "adacc: a budget of 1.0 MiB"):
                with budget:
                    self.model(x)
        del x
        self.assertEqual(adacc.memory.live(), before)
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(0) or t, lambda t: t):
            train(self.model, [rows(64)])
        self.assertGreater(len(seen), 0)  # hooks of others are where ours were
        _, mine, _ = train(self.model, [rows(2048)])
        for one, other in zip(mine, exact[1]):
            self.assertTrue(torch.equal(one, other))


if __name__ == "__main__":
    unittest.main()
