# SPDX-License-Identifier: MIT
"""Amounts, decorators, dicts, words, the version: what people expect of a package for PyTorch."""
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

import adacc
import torch
from adacc import _amounts
from test_adacc import Net, rows, train

try:
    import accelerate  # noqa: F401
    import transformers
    transformers.logging.set_verbosity_error()
    MISSING = ""
except ImportError as why:
    MISSING = f"there is no transformers with accelerate ({why})"


class Amounts(unittest.TestCase):
    def test_how_people_write_them(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for amount in ("4 gb", "2.5 GiB", "2.5gib", "30MiB", "30 MB", "1TiB", ".5kB", "12B", "40 %", " 40% ", "37.5%",
                           "100%", 31457280):
                adacc.budget(amount)
        adacc.memory.count()
        budget = adacc.budget("0.25 GB")
        train(Net(2), [rows(256)] * 3, budget)
        self.assertEqual(budget.report.budget_bytes, 250_000_000)

    def test_what_is_no_amount_says_what_is_possible(self):
        for amount, kind, words in (
                ("120%", ValueError, "at most 100% of its peak .* or bytes, such as 4GiB"),
                ("4 G", ValueError, "unknown unit; .* B, kB, MB, GB, TB .*KiB, MiB, GiB, TiB .* as in 50%"),
                ("3 apples", ValueError, "unknown unit"), ("0GB", ValueError, "is not more than nothing"),
                ("-4GB", ValueError, "does not start with a number"), ("", ValueError, "does not start with a number"),
                ("1e400 GB", ValueError, "a budget is a number with"), (True, TypeError, "is bytes, or text.*not True"),
                (0, ValueError, "1 byte or more"), (0.4, TypeError, "is bytes, or text.*not 0.4"),
                (None, TypeError, "is bytes, or text")):
            with self.assertRaisesRegex(kind, words, msg=repr(amount)):
                adacc.budget(amount)

    def files(self, folder, texts):
        for name, text in texts.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def test_auto_of_control_groups(self):
        gib, page = 2**30, os.sysconf("SC_PAGE_SIZE")
        statm = f"9 {gib // page} 0 0 0 0 0\n"
        with tempfile.TemporaryDirectory() as folder:
            self.files(folder, {"2/meminfo": "MemTotal: 99 kB\nMemAvailable: 33554432 kB\n", "2/self/statm": statm,
                                "2/self/cgroup": "0::/jobs/mine\n",
                                "g2/jobs/mine/memory.max": "max\n",
                                "g2/jobs/memory.max": f"{8 * gib}\n", "g2/jobs/memory.current": f"{5 * gib}\n",
                                "g2/jobs/memory.stat": f"anon 1\ninactive_file {2 * gib}\n",
                                "g2/memory.max": f"{64 * gib}\n", "g2/memory.current": "0\n"})
            amount, words = _amounts.auto_amount(f"{folder}/2", f"{folder}/g2")
            self.assertEqual(amount, 5 * gib * 9 // 10)  # the parent's limit, without what it holds but caches
            self.assertEqual(words, "auto: 4.5 GiB are nine tenths of 5.0 GiB, the control group's 8.0 GiB without "
                                    "the 3.0 GiB in use")
            # Version 1, in a container that does not see its own path; and usage cannot be read.
            self.files(folder, {"1/meminfo": "MemAvailable: 33554432 kB\n", "1/self/statm": statm,
                                "1/self/cgroup": "3:cpu:/a\n2:memory,x:/docker/1234\n",
                                "g1/memory/memory.limit_in_bytes": f"{4 * gib}\n"})
            self.assertEqual(_amounts.auto_amount(f"{folder}/1", f"{folder}/g1")[0], 3 * gib * 9 // 10)
            self.files(folder, {"g1/memory/memory.limit_in_bytes": "9223372036854771712\n"})
            amount, words = _amounts.auto_amount(f"{folder}/1", f"{folder}/g1")
            self.assertEqual(amount, 32 * gib * 9 // 10)
            self.assertRegex(words, "free memory$")
            self.files(folder, {"g1/memory/memory.limit_in_bytes": f"{gib}\n"})
            with self.assertRaisesRegex(RuntimeError, "'auto' finds nothing left: the control group's 1.0 GiB"):
                _amounts.auto_amount(f"{folder}/1", f"{folder}/g1")
            with self.assertRaisesRegex(RuntimeError, "there is neither; say bytes"):
                _amounts.auto_amount(f"{folder}/none", f"{folder}/none")

    def test_auto_is_said_in_the_report(self):
        adacc.memory.count()
        budget = adacc.budget("auto")
        train(Net(), [rows(256)] * 4, budget)
        self.assertEqual(budget.report.planned, 2, budget.report)
        self.assertRegex(str(budget.report), r"auto: [0-9.]+ [GM]iB are nine tenths of ")


class Decorators(unittest.TestCase):
    def test_both_stand_in_front_of_functions(self):
        adacc.memory.count()
        hooks = adacc.saved_tensors("int8", least_bytes=1)
        model = Net(2)

        @hooks
        def step(batch, *, scale=1.0):
            """Words."""
            return model(batch * scale)
        step(torch.randn(64, 128), scale=0.5).backward()
        self.assertGreater(hooks.statistics.encoded, 0)
        self.assertEqual((step.__name__, step.__doc__), ("step", "Words."))

        budget = adacc.budget("80%")
        forward = budget(model)  # whatever can be called
        for _ in range(4):
            forward(torch.randn(512, 128)).backward()
        self.assertEqual((budget.report.recorded, budget.report.planned), (2, 2), budget.report)

        @adacc.saved_tensors("int8")
        def fails():
            raise KeyError("not today")
        with self.assertRaisesRegex(KeyError, "not today"):
            fails()
        packed = hooks.statistics.packed
        model(torch.randn(64, 128)).backward()
        self.assertEqual(hooks.statistics.packed, packed)

    def test_what_they_cannot_be_in_front_of(self):
        def generator():
            yield 1

        async def coroutine():
            return 1
        for function in (generator, coroutine):
            with self.assertRaisesRegex(TypeError, f"{function.__name__} is a generator or a coroutine: use 'with'"):
                adacc.saved_tensors()(function)

        @adacc.saved_tensors
        def step(x):
            return x
        with self.assertRaisesRegex(TypeError, r"made with parentheses: @adacc.saved_tensors\(...\)"):
            step(torch.zeros(1))


class Reports(unittest.TestCase):
    def test_dicts_and_words(self):
        adacc.memory.count()
        budget = adacc.budget("70%")
        train(Net(2), [rows(256)] * 4, budget)
        report = json.loads(json.dumps(budget.report.as_dict()))
        self.assertEqual(report["planned"], 2)
        self.assertEqual(report["budget_bytes"], budget.report.budget_bytes)
        self.assertEqual(sum(share["bytes"] for share in report["shares"]),
                         sum(share.bytes for share in budget.report.shares))
        hooks = adacc.saved_tensors("int8", least_bytes=1)
        with hooks:
            loss = Net(2)(torch.randn(256, 128))
        loss.backward()
        counts = hooks.statistics
        self.assertEqual(counts.as_dict()["encoded"], counts.encoded)
        self.assertEqual(set(counts.as_dict()) - set(dir(counts)), set())
        self.assertRegex(repr(counts), rf"Statistics: {counts.encoded} of {counts.storages} storages encoded, "
                                       r"[0-9.]+ MiB in [0-9.]+ [KM]iB; .*left alone: [0-9]+ of parameters")

    def test_one_version(self):
        try:
            installed = importlib.metadata.version("adacc")
        except importlib.metadata.PackageNotFoundError:  # run without being installed, in a checkout
            header = pathlib.Path(__file__).parents[2] / "include/adacc/core/config.hpp"
            installed = ".".join(re.findall(r"#define ADACC_VERSION_(?:MAJOR|MINOR|PATCH) ([0-9]+)",
                                            header.read_text()))
        self.assertEqual(adacc.__version__, installed)

    def test_the_environment(self):
        said = subprocess.run([sys.executable, "-m", "adacc"], check=True, capture_output=True, text=True).stdout
        for words in (f"adacc +{re.escape(adacc.__version__)}, built for torch .* instructions",
                      f"torch +{re.escape(torch.__version__)}", "python +3", "threads +[0-9]+ of [0-9]+", "allocator",
                      "memory +auto: "):
            self.assertRegex(said, words)


class OtherTorch(unittest.TestCase):
    def said(self, code):
        code = f"import sys, torch\n{code}\ntry:\n    import adacc; print('imported')\nexcept ImportError as why:\n    print(why)"
        return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    def test_another_minor_version_is_an_error_in_words(self):
        minor = ".".join(torch.__version__.split(".")[:2])
        for version in (minor + ".99", minor + ".0+cpu"):
            self.assertEqual(self.said(f"torch.__version__ = '{version}'"), "imported\n")
        self.assertRegex(self.said("torch.__version__ = '1.12.1'"),
                         rf"adacc is built for torch {re.escape(minor)}\..*, and this is torch 1\.12\.1: install a wheel "
                         r"of adacc that was built for this one, or build it: pip install --no-build-isolation ")

    def test_one_that_does_not_load_the_native_part_too(self):
        self.assertRegex(self.said("sys.modules['adacc._native'] = None"),
                         r"adacc is built for torch .*, and this is torch .*, which does not load it \(.*adacc\._native.*\): ")


class WithoutTransformers(unittest.TestCase):
    def test_its_absence_is_said_when_it_is_asked_for(self):
        code = ("import sys; sys.modules['transformers'] = None\n"
                "import adacc; adacc.saved_tensors()\n"
                "try:\n    adacc.Callback\nexcept ImportError as why:\n    print(why)")
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        self.assertIn("adacc.Callback is for the Trainer of transformers, which does not import", said)
        code = "import sys, adacc; adacc.saved_tensors(); print('transformers' in sys.modules)"
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        self.assertEqual(said.strip(), "False")
        with self.assertRaisesRegex(AttributeError, "module 'adacc' has no attribute 'Callbac'"):
            adacc.Callbac


@unittest.skipIf(MISSING, MISSING)
class Trainer(unittest.TestCase):
    def trainer(self, *callbacks, model=None, **arguments):
        torch.manual_seed(0)
        model = model or transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=512, n_positions=64, n_embd=128, n_layer=3, n_head=4, use_cache=False))
        ids = torch.randint(0, 512, (48, 64))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return transformers.Trainer(
            model=model, train_dataset=[{"input_ids": row, "labels": row} for row in ids],
            args=transformers.TrainingArguments(
                output_dir=folder.name, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=4,
                report_to=[], use_cpu=True, logging_steps=1, save_strategy="no", disable_tqdm=True, **arguments),
            callbacks=list(callbacks))

    def losses(self, trainer):
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    def test_each_step_is_within(self):
        adacc.memory.count()
        plain = self.losses(self.trainer())
        hooks = adacc.saved_tensors("lossless", least_bytes=1)
        self.assertEqual(self.losses(self.trainer(adacc.Callback(hooks))), plain)
        self.assertGreater(hooks.statistics.encoded, 5)
        packed = hooks.statistics.packed
        torch.randn(64, 64, requires_grad=True).sin().sum().backward()
        self.assertEqual(hooks.statistics.packed, packed)
        budget = adacc.budget("95%", "lossless", recorded_steps=1)
        self.assertEqual(self.losses(self.trainer(adacc.Callback(budget))), plain)
        self.assertGreater(budget.report.planned, 0, budget.report)

    def test_errors_leave_it(self):
        class Fails(transformers.GPT2LMHeadModel):
            def forward(self, *args, **kwargs):
                super().forward(*args, **kwargs)
                raise KeyError("not today")

        hooks = adacc.saved_tensors("int8", least_bytes=1)
        callback = adacc.Callback(hooks)
        model = Fails(transformers.GPT2Config(vocab_size=512, n_positions=64, n_embd=128, n_layer=1, n_head=4))
        x = torch.randn(64, 64, requires_grad=True)

        def is_left():
            packed = hooks.statistics.packed
            x.sin().sum().backward()
            return hooks.statistics.packed == packed
        with self.assertRaisesRegex(KeyError, "not today"):
            self.trainer(callback, model=model, remove_unused_columns=False).train()
        self.assertGreater(hooks.statistics.packed, 0)
        self.assertTrue(is_left())
        self.assertEqual(len(model._forward_hooks), 0)
        # A batch without a column that this model names, within a step: until the next training, or leave().
        with self.assertRaisesRegex(ValueError, "The batch received was empty"):
            self.trainer(callback, model=model).train()
        callback.leave()
        self.assertTrue(is_left())
        self.assertEqual(len(model._forward_hooks), 0)
        with self.assertRaisesRegex(RuntimeError, "is below the least"):
            self.trainer(adacc.Callback(adacc.budget("1MiB"))).train()
        self.assertTrue(is_left())
        with self.assertRaisesRegex(TypeError, "takes a saved_tensors or a budget, .* not a str"):
            adacc.Callback("40%")


if __name__ == "__main__":
    unittest.main()
