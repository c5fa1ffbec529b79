# SPDX-License-Identifier: MIT
"""A part of what operators_of_torch.py does: operators of the list, and some that must lose nothing."""
import unittest

import torch

try:
    import operators_of_torch as operators
    MISSING = ""
    operators.operators()
except ImportError as why:
    MISSING = f"torch's OpInfo does not load here ({why})"


@unittest.skipIf(MISSING, MISSING)
class Operators(unittest.TestCase):
    def run_them(self, names, policies_lose):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)
        count = operators.run(names, samples=2, exactly=True)
        self.assertEqual(count.wrong, [])
        self.assertGreaterEqual(count.operators, len(names) - 1)
        self.assertEqual(bool(count.lossy["int8"]), policies_lose, count.lossy)

    def test_those_of_the_list(self):
        self.run_them(("mul", "bmm", "addmm", "addcmul", "pow", "softmax", "log_softmax", "tanh", "sigmoid", "exp",
                       "nn.functional.linear", "nn.functional.layer_norm", "nn.functional.batch_norm",
                       "nn.functional.instance_norm", "nn.functional.gelu", "nn.functional.silu",
                       "nn.functional.relu", "nn.functional.conv2d", "nn.functional.scaled_dot_product_attention",
                       "nn.functional.multi_head_attention_forward", "kron"), True)

    def test_those_that_are_not(self):
        self.run_them(("amax", "amin", "aminmax", "median", "logsumexp", "div", "sqrt", "log", "atan2", "cumprod",
                       "prod", "norm", "std", "scatter_reduce", "index_reduce", "cdist", "linalg.inv", "xlogy",
                       "nn.functional.mse_loss", "nn.functional.huber_loss", "nn.functional.ctc_loss",
                       "nn.functional.grid_sample", "nn.functional.prelu", "nn.functional.hardtanh"), False)


if __name__ == "__main__":
    unittest.main()
