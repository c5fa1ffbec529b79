# SPDX-License-Identifier: MIT
"""Names of modules: in policies, reports and refusals; and check() of a budget."""
import gc
import json
import threading
import unittest
import weakref

import adacc
import torch
from test_adacc import begin, train
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(channels), nn.Linear(channels, 2 * channels)
        self.act, self.narrow = nn.GELU(), nn.Linear(2 * channels, channels)

    def forward(self, x):
        return x + self.narrow(self.act(self.wide(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, channels=64, blocks=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(channels) for _ in range(blocks))
        self.gate = torch.sigmoid

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * self.gate(x)).square().mean()


def loss_of(model):
    torch.manual_seed(3)
    return model(torch.randn(256, 64) * 1)


class Modules(unittest.TestCase):
    def setUp(self):
        begin(self)

    def test_a_policy_is_told_where_a_tensor_was_saved(self):
        model, seen = Stack(), {}

        def policy(tensor):
            seen.setdefault(tensor.module, []).extend(tensor.savers)
            return "lossless"
        with adacc.saved_tensors(policy, least_bytes=1):
            loss = F.softplus(loss_of(model))
        loss.backward()
        for block in ("blocks.0", "blocks.1"):
            self.assertIn("aten::native_layer_norm", seen[block + ".norm"])
            self.assertIn("aten::gelu", seen[block + ".act"] + seen[block + ".wide"])
            self.assertIn("aten::addmm", seen[block + ".narrow"] + seen[block + ".wide"])
        self.assertIn("aten::sigmoid", seen["Stack"])  # the outermost has its class for a name
        self.assertIn("aten::softplus", seen[""])
        self.assertEqual({name for name in seen if name not in ("", "Stack")} -
                         {name for name, _ in model.named_modules()}, set())

    def test_modules_made_on_the_way_and_threads(self):
        names = []

        class Makes(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Block(64)

            def forward(self, x):
                return self.inner(nn.GELU()(x))

        def policy(tensor):
            names.append(tensor.module)
            return "as_is"

        def run():
            with adacc.saved_tensors(policy, least_bytes=1):
                loss = Makes()(torch.randn(256, 64, requires_grad=True) * 1).sum()
            loss.backward()
        run()
        self.assertEqual({name for name in names if not name.startswith("inner.")}, {"Makes"})
        here, names[:] = sorted(names), []
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.assertEqual(sorted(names), here)

    def test_nothing_of_a_module_or_of_what_it_is_given_is_held(self):
        model = Stack()
        with adacc.saved_tensors("int8", modules=True) as hooks:
            loss = loss_of(model)
        loss.backward()
        self.assertIn("blocks.0.act", hooks.by_module())
        gone = weakref.ref(model)
        del model, loss
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual([hook for kind in ("_global_forward_hooks", "_global_forward_pre_hooks")
                          for hook in getattr(nn.modules.module, kind)], [])

    def test_tables_add_up(self):
        hooks = adacc.saved_tensors("int8", least_bytes=1, modules=True)
        with hooks:
            loss = loss_of(Stack())
        loss.backward()
        rows_of_store, counts = hooks._store.modules(), hooks.statistics
        self.assertEqual(sum(each.raw_bytes for each in rows_of_store), counts.raw_bytes)
        self.assertEqual(sum(each.waiting_bytes for each in rows_of_store), counts.encoded_bytes)
        self.assertRegex(hooks.by_module(), r"(?s)saved +waiting +storages +module\n.*blocks\.[01]\.")
        self.assertRegex(hooks.by_module(2), r"(?s) blocks\.0\n.* blocks\.1(\n|$)")
        self.assertNotIn("blocks.0", hooks.by_module(1))
        for depth in (0, "1", True):
            with self.assertRaisesRegex(ValueError, "depth is how many parts of a module's name count"):
                hooks.by_module(depth)
        # Without being asked nobody looks names up.
        unnamed = adacc.saved_tensors("int8")
        with unnamed:
            loss = loss_of(Stack())
        loss.backward()
        self.assertEqual({each.module for each in unnamed._store.modules()}, {""})

    def test_budgets_report_modules(self):
        budget, model = adacc.budget("60%"), Stack(256, 3)
        train(model, [lambda: torch.randn(512, 256)] * 4, budget)
        report = budget.report
        self.assertEqual(sum(each.raw_bytes for each in report.modules), sum(each.bytes for each in report.shares))
        self.assertEqual(sum(each.storages for each in report.modules), sum(each.storages for each in report.shares))
        self.assertIn("blocks.2.act", {each.module for each in report.modules})
        self.assertRegex(str(report), r"of its time.*; [0-9]+ (as [a-z0-9_ ]+|packed without loss) \([0-9.]+ [KM]iB\)")
        self.assertLess(sum(each.waiting_bytes for each in report.modules),
                        sum(each.raw_bytes for each in report.modules))
        self.assertRegex(report.by_module(2), r"MiB +[0-9.]+ [KM]iB +[0-9]+  blocks\.0")
        self.assertEqual(json.loads(json.dumps(report.as_dict()))["modules"][0]["module"], report.modules[0].module)

    def test_a_step_that_turns_out_to_be_of_another_kind_knows_its_modules(self):
        """A planned step asks for no names: those before the difference are the known kind's."""
        budget, model = adacc.budget("60%"), Stack(256, 3)
        batch = [lambda: torch.randn(512, 256)]
        train(model, batch * 3, budget)
        saved = {each.module: each.storages for each in budget.report.modules}
        model.gate = torch.tanh
        train(model, batch * 2, budget)
        report = budget.report
        self.assertEqual((report.recorded, report.planned, report.diverged), (3, 2, 0), report)
        self.assertEqual(saved, {each.module: each.storages for each in report.modules})

    def test_a_refusal_names_the_module(self):
        with self.assertRaisesRegex(RuntimeError, r"limited by backward of aten::[a-z_]+ in (blocks\.|Stack)"):
            train(Stack(256, 3), [lambda: torch.randn(512, 256)] * 3, adacc.budget("5%"))


class CheckOfBudget(unittest.TestCase):
    def setUp(self):
        begin(self)

    def test_a_planned_step_is_compared(self):
        budget, model = adacc.budget("60%"), Stack(128, 3)
        report = adacc.check(model, lambda mine: mine(torch.ones(512, 128) * torch.linspace(-2, 2, 128)), budget)
        self.assertEqual((budget.report.recorded, budget.report.planned), (2, 1), budget.report)
        self.assertGreater(report.off, 0)
        self.assertLess(report.encoded_bytes, report.raw_bytes)
        self.assertEqual(report.raw_bytes, sum(share.bytes for share in budget.report.shares))
        self.assertRegex(str(report), r"under a budget of [0-9.]+ [KM]iB \(tolerated\): the whole gradient is ")
        self.assertIn("blocks.0", report.by_module(2))
        self.assertEqual(json.loads(json.dumps(report.as_dict()))["modules"][0]["storages"], report.modules[0].storages)
        # It goes on from there.
        again = adacc.check(model, lambda mine: mine(torch.ones(512, 128)), budget)
        self.assertEqual((budget.report.recorded, budget.report.planned), (2, 2), budget.report)
        self.assertEqual(again.storages, report.storages)

    def test_without_loss_it_is_exact(self):
        report = adacc.check(Stack(256, 3), lambda mine: mine(torch.ones(512, 256)),
                             adacc.budget("100%", "lossless"))
        self.assertEqual((report.off, report.ok), (0.0, True))

    def test_a_refusal_leaves_all_as_it_was(self):
        model = Stack(256, 3)
        with self.assertRaisesRegex(RuntimeError, "is below the least"):
            adacc.check(model, lambda mine: mine(torch.ones(512, 256)), adacc.budget("5%"))
        self.assertTrue(all(each.grad is None for each in model.parameters()))
        self.assertTrue(adacc.check(model, lambda mine: mine(torch.ones(512, 256)), adacc.budget("60%")).off < 0.1)


if __name__ == "__main__":
    unittest.main()
