# SPDX-License-Identifier: MIT
"""Small models of transformers with random weights: gradients under `tolerated` against torch's own."""
import contextlib
import unittest

import adacc
import torch

try:
    import transformers
    transformers.logging.set_verbosity_error()
    MISSING = ""
except ImportError as why:
    MISSING = f"there is no transformers ({why})"


def off(mine, exact):
    return float((mine - exact).double().square().sum() / exact.double().square().sum())


@unittest.skipIf(MISSING, MISSING)
class Models(unittest.TestCase):
    def compare(self, model, loss, most=0.05, whole=0.01):
        """Returns statistics under `tolerated`. Gradients that are 0 in exact arithmetic do not count."""
        names, parameters = zip(*((name, p) for name, p in model.named_parameters() if p.requires_grad))

        def gradients(around):
            torch.manual_seed(1)
            with around:
                value = loss()
            return torch.autograd.grad(value, parameters, allow_unused=True)
        exact = gradients(contextlib.nullcontext())
        for mine, theirs in zip(gradients(adacc.saved_tensors("lossless", least_bytes=1)), exact):
            self.assertTrue(theirs is None or torch.equal(mine, theirs))
        hooks = adacc.saved_tensors("tolerated")
        mine = gradients(hooks)
        known = [(a, b, name) for a, b, name in zip(mine, exact, names) if b is not None]
        largest = max(float(b.abs().max()) for _, b, _ in known)
        self.assertLess(off(torch.cat([a.flatten() for a, _, _ in known]),
                            torch.cat([b.flatten() for _, b, _ in known])), whole)
        for a, b, name in known:
            if float(b.abs().max()) > 1e-6 * largest:
                self.assertLess(off(a, b), most, name)
        return hooks.statistics

    def classify(self, model):
        torch.manual_seed(2)
        x, y = torch.randn(8, 3, 112, 112), torch.randint(0, 10, (8,))
        return self.compare(model.train(), lambda: model(pixel_values=x, labels=y).loss)

    def test_falcon_with_biased_scores(self):
        torch.manual_seed(0)
        model = transformers.FalconForCausalLM(transformers.FalconConfig(
            vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, alibi=True,
            attn_implementation="sdpa")).train()
        ids = torch.randint(0, 512, (4, 128))
        statistics = self.compare(model, lambda: model(input_ids=ids, labels=ids).loss)
        self.assertLess(statistics.encoded_bytes, 0.4 * statistics.raw_bytes)

    def test_vision_transformers_at_initialisation(self):
        torch.manual_seed(0)
        config = dict(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, image_size=112, num_labels=10)
        for model in (transformers.ViTForImageClassification(transformers.ViTConfig(
                          patch_size=16, intermediate_size=512, **config)),
                      transformers.Dinov2ForImageClassification(transformers.Dinov2Config(patch_size=14, **config))):
            statistics = self.classify(model)
            self.assertGreater(statistics.declined, 0)  # a class token is no row like the others
            self.assertGreater(statistics.unlike_rows, 0)
            self.assertLess(statistics.encoded_bytes, 0.2 * statistics.raw_bytes)

    def test_resnet(self):
        torch.manual_seed(0)
        statistics = self.classify(transformers.ResNetForImageClassification(transformers.ResNetConfig(
            embedding_size=32, hidden_sizes=[32, 64, 128], depths=[2, 2, 2], layer_type="basic", num_labels=10)))
        self.assertLess(statistics.encoded_bytes, 0.3 * statistics.raw_bytes)

    def test_products_in_front_of_a_linear_layer(self):
        torch.manual_seed(0)
        model = transformers.MambaForCausalLM(transformers.MambaConfig(
            vocab_size=512, hidden_size=128, state_size=16, num_hidden_layers=2, use_cache=False)).train()
        ids = torch.randint(3, 512, (2, 64))
        statistics = self.compare(model, lambda: model(input_ids=ids, labels=ids).loss)
        self.assertGreater(statistics.declined, 0)  # 4 bits are too few for products of normal numbers
        self.assertLess(statistics.encoded_bytes, 0.3 * statistics.raw_bytes)

    def test_an_adapter_on_a_frozen_base_under_autocast(self):
        try:
            import peft
        except ImportError as why:
            self.skipTest(f"there is no peft ({why})")
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=512, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=512))
        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj", "down_proj"])).train()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.05)
        ids = torch.randint(0, 512, (2, 128))
        wrong = []

        def policy(tensor):
            if tensor.dtype == torch.bfloat16 and list(tensor.sizes) in ([256, 256], [128, 256], [512, 256],
                                                                           [256, 512], [256, 128]):
                wrong.append((tensor.savers, tensor.roles, tensor.sizes))
            return "lossless"

        def loss():
            with torch.autocast("cpu", torch.bfloat16):
                return model(input_ids=ids, labels=ids).loss
        with adacc.saved_tensors(policy):
            value = loss()
        value.backward()
        self.assertEqual([each for each in wrong if "weight" in each[1] or not each[1][0]], [])
        self.compare(model, loss)


if __name__ == "__main__":
    unittest.main()
