# SPDX-License-Identifier: MIT
"""Within a budget, torch.utils.checkpoint's checkpoints are planned, whoever calls them; and errors leave torch whole."""
import functools
import threading
import unittest

import adacc
import torch
import torch.utils.checkpoint
from test_adacc import Net, begin, error, rows, train
from torch import nn
from torch.utils.checkpoint import checkpoint as bound_by_name

try:
    import transformers
    transformers.logging.set_verbosity_error()
    MISSING = ""
except ImportError as why:
    MISSING = f"there is no transformers ({why})"


def torchs_code():
    """What runs when torch's checkpoint is called."""
    function = bound_by_name
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__


PLAIN_CODE = torchs_code()


def asking(count):
    return lambda: torch.randn(count, 128, requires_grad=True)


@unittest.skipUnless(hasattr(torch.utils.checkpoint, "noop_context_fn"), "this torch takes no context_fn")
class EncodedInPlaceOfComputedAgain(unittest.TestCase):
    def setUp(self):
        begin(self)
        self.model = Net()

    def run_with(self, contexts, budget=None):
        self.runs = 0

        def counted(block, x):
            def run(y):
                self.runs += 1
                return block(y)
            if contexts is None:
                return run(x)
            return bound_by_name(run, x, use_reentrant=False, context_fn=contexts)
        self.model.run = counted
        return train(self.model, [rows(512)] * 3, *([] if budget is None else [budget]))

    def test_blocks_run_once_and_keep_bits_without_loss(self):
        exact = self.run_with(None)
        once = self.runs
        self.run_with(torch.utils.checkpoint.noop_context_fn)
        self.assertEqual(self.runs, 2 * once)
        kept = adacc.context_fn("lossless", least_bytes=1)
        losses, mine, _ = self.run_with(kept)
        self.assertEqual((self.runs, losses), (once, exact[0]))
        for one, other in zip(mine, exact[1]):
            self.assertTrue(torch.equal(one, other))
        self.assertGreater(kept.statistics.storages, 0)

    def test_what_is_saved_inside_waits_in_fewer_bytes(self):
        exact = self.run_with(None)
        kept = adacc.context_fn("int8")
        _, mine, _ = self.run_with(kept)
        self.assertLess(kept.statistics.encoded_bytes, 0.5 * kept.statistics.raw_bytes)
        off = error(mine, exact[1])
        self.assertGreater(off, 0)
        self.assertLess(off, 0.01)

    def test_a_budget_leaves_such_blocks_to_their_author(self):
        exact = self.run_with(None)
        kept = adacc.context_fn("lossless", least_bytes=1)
        losses, mine, _ = self.run_with(kept, adacc.budget("100%", "lossless"))
        self.assertEqual(losses, exact[0])
        self.assertGreater(kept.statistics.storages, 0)

    def test_other_arguments_are_errors_where_it_is_made(self):
        with self.assertRaisesRegex(ValueError, "there is no policy 'int3'"):
            adacc.context_fn("int3")
        with self.assertRaisesRegex(TypeError, "a policy is a name or a callable"):
            adacc.context_fn(3)


class Planned(unittest.TestCase):
    def setUp(self):
        begin(self)
        self.model = Net()
        train(self.model, [asking(512)])
        self.addCleanup(lambda: self.assertIs(torchs_code(), PLAIN_CODE))

    def recomputed(self, budget):
        return {s.policy: s.storages for s in budget.report.shares}.get("recompute", 0)

    def test_blocks_may_make_gradients_anew(self):
        self.model.run = lambda block, x: bound_by_name(block, x, use_reentrant=False)
        budget = adacc.budget("35%", "lossless", on_refusal="least")
        for _ in range(4):
            self.model.zero_grad(set_to_none=True)
            with budget:
                loss = self.model(rows(512)())
            loss.backward()
            del loss
        report = budget.report
        self.assertEqual((report.recorded, report.planned, report.diverged), (2, 2, 0), report)
        self.assertGreater(self.recomputed(budget), 0)

    def compare(self, run, batch=asking):
        exact = train(self.model, [batch(512)] * 5)
        self.model.run = run
        again = {}
        for share in (100, 55):
            budget = adacc.budget(f"{share}%", "lossless", again=False)
            losses, mine, peaks = train(self.model, [batch(512)] * 5, budget)
            self.assertEqual(losses, exact[0])
            for one, other in zip(mine, exact[1]):
                self.assertTrue(torch.equal(one, other))
            report = budget.report
            self.assertEqual((report.recorded, report.planned, report.diverged), (2, 3, 0), report)
            self.assertEqual(report.plain_bytes, exact[2][-1])  # computed, though no step was plain
            self.assertLessEqual(max(peaks), report.budget_bytes, report)
            again[share] = self.recomputed(budget)
            self.assertIs(torchs_code(), PLAIN_CODE)
        # The budget's share is of a step without checkpoints: with room for all, none runs again.
        self.assertEqual(again[100], 0)
        self.assertGreater(again[55], 0)

    def test_without_reentry(self):
        self.compare(lambda block, x: torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False), rows)

    def test_with_reentry(self):
        self.compare(functools.partial(bound_by_name, use_reentrant=True))

    def test_one_guard_around_all_steps(self):
        batches = [rows(512)] * 5
        exact = train(self.model, batches)
        self.model.run = functools.partial(bound_by_name, use_reentrant=False)
        budget = adacc.budget("60%", "lossless", again=False)
        with budget:
            losses, mine, _ = train(self.model, batches)
        self.assertEqual(losses, exact[0])
        for one, other in zip(mine, exact[1]):
            self.assertTrue(torch.equal(one, other))
        self.assertEqual(budget.report.planned, 3, budget.report)
        self.assertGreater(self.recomputed(budget), 0)

    def test_a_block_whose_inputs_need_no_gradient_is_part_of_its_step(self):
        linear, x = nn.Linear(128, 128), torch.randn(64, 128)

        def leaky(x):
            return torch.where(x > 0.2, x, x * 0.1)

        def plain_bytes(block):
            budget = adacc.budget("100%", least_bytes=1024)
            for _ in range(4):
                with budget:
                    loss = linear(block(x)).square().mean()
                loss.backward()
                del loss
            self.assertNotIn("without backward", str(budget.report))
            return budget.report.plain_bytes

        self.assertEqual(plain_bytes(leaky), plain_bytes(lambda x: bound_by_name(leaky, x, use_reentrant=False)))

    def test_within_one_another(self):
        """Those inside are plain calls in forward, and have to be when backward runs them after the budget."""
        for inside in (True, False):
            with self.subTest(reentrant_inside=inside):
                self.setUp()
                self.compare(lambda block, x: bound_by_name(
                    lambda y: bound_by_name(block, y, use_reentrant=inside), x, use_reentrant=False))

    @unittest.skipUnless(hasattr(torch.utils.checkpoint, "noop_context_fn"), "this torch takes no context_fn")
    def test_a_context_of_theirs_is_left_to_torch(self):
        calls = []

        def contexts():
            calls.append(0)
            return torch.utils.checkpoint.noop_context_fn()
        exact = train(self.model, [rows(512)] * 4)
        # One of adacc's is inside: nobody may plan it, as torch's runs it again.
        self.model.run = lambda block, x: bound_by_name(
            lambda y: adacc.checkpoint(block, y), x, use_reentrant=False, context_fn=contexts)
        budget = adacc.budget("100%", "lossless")
        losses, mine, _ = train(self.model, [rows(512)] * 4, budget)
        self.assertEqual(len(calls), 4 * 6)
        self.assertEqual(losses, exact[0])
        for one, other in zip(mine, exact[1]):
            self.assertTrue(torch.equal(one, other))

    def test_no_gradient_where_torch_has_none(self):
        """With reentry and no input that asks for a gradient, the block's parameters have none."""
        layer, head = nn.Linear(64, 64), nn.Linear(64, 64)
        with adacc.budget("80%"):
            hidden = bound_by_name(layer, torch.randn(8, 64), use_reentrant=True)
            head(hidden).sum().backward()
        self.assertIsNone(layer.weight.grad)
        self.assertIsNotNone(head.weight.grad)

    def test_what_torch_refuses_is_refused(self):
        x = torch.randn(8, 64, requires_grad=True)
        with adacc.budget("80%"):
            with self.assertRaisesRegex(ValueError, "Unexpected keyword arguments: scale"):
                bound_by_name(lambda y, scale: y * scale, x, scale=2, use_reentrant=True)

    def test_other_threads_keep_torchs(self):
        seen = []

        def other():
            x = torch.randn(64, 64, requires_grad=True)
            y = bound_by_name(lambda z: seen.append(0) or z.sin(), x, use_reentrant=False)
            y.sum().backward()
        with adacc.budget("80%"):
            self.assertIsNot(torchs_code(), PLAIN_CODE)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        self.assertEqual(len(seen), 2)  # ran again

    def test_errors_leave_torch_as_it_was(self):
        def fails(x):
            raise KeyError("not today")

        x = torch.randn(512, 128, requires_grad=True)
        budget = adacc.budget("80%")
        for run in (fails, lambda y: bound_by_name(fails, y, use_reentrant=False),
                    lambda y: bound_by_name(fails, y, use_reentrant=True)):
            with self.assertRaisesRegex(KeyError, "not today"):
                with budget:
                    run(x)
            self.assertIs(torchs_code(), PLAIN_CODE)
            self.assertFalse(hooks_are_there())
        with self.assertRaisesRegex(RuntimeError, "a budget within a budget"):
            with budget:
                with adacc.budget("70%"):
                    pass
        self.assertIs(torchs_code(), PLAIN_CODE)
        self.assertFalse(hooks_are_there())
        # Another budget's turn, after a step that saved nothing; a refusal; and the engine goes on.
        with self.assertRaisesRegex(RuntimeError, "is below the least"):
            train(self.model, [rows(512)] * 3, adacc.budget("1MiB"))
        self.assertIs(torchs_code(), PLAIN_CODE)
        self.assertFalse(hooks_are_there())
        self.model(torch.randn(512, 128)).backward()
        with self.assertRaisesRegex(RuntimeError, "left more often than entered"):
            adacc.saved_tensors().__exit__(None, None, None)


def hooks_are_there():
    """Whether tensors that are saved now are packed by somebody."""
    seen = []

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx.saved_tensors[0].data_ptr())
            return grad * 2
    x = torch.randn(64 * 1024, requires_grad=True)
    y = Saves.apply(x * 1)
    node = y.grad_fn
    try:
        node._raw_saved_tensors[0].register_hooks(lambda t: t, lambda t: t)
    except RuntimeError as why:
        assert "already been set" in str(why), why
        return True
    return False


@unittest.skipIf(MISSING, MISSING)
class Transformers(unittest.TestCase):
    def test_gradient_checkpointing_is_planned(self):
        adacc.memory.count()
        for reentrant in (False, True):
            torch.manual_seed(0)
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
                vocab_size=512, n_positions=128, n_embd=128, n_layer=6, n_head=4, use_cache=False)).train()
            ids = torch.randint(0, 512, (4, 128))

            def step(around=None):
                torch.manual_seed(1)
                model.zero_grad(set_to_none=False)
                if around is None:
                    loss = model(input_ids=ids, labels=ids).loss
                else:
                    with around:
                        loss = model(input_ids=ids, labels=ids).loss
                loss.backward()
                return [p.grad.clone() for p in model.parameters()]
            step()
            exact = step()
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            budget = adacc.budget("60%", "lossless", again=False)
            for _ in range(5):
                mine = step(budget)
            report = budget.report
            self.assertEqual((report.recorded, report.planned, report.diverged), (2, 3, 0), report)
            self.assertLessEqual(max(report.most_bytes, report.recorded_bytes), report.budget_bytes, report)
            self.assertIn("recompute", [s.policy for s in report.shares])
            # The embedding is also the head: reentry sums its two gradients in another order.
            self.assertLess(error(mine, exact), 1e-12)


if __name__ == "__main__":
    unittest.main()
