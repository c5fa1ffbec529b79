// SPDX-License-Identifier: MIT
/// checkpoint(): the bits of a run without it, nested, encoded outside, and what it refuses.
#include <string>

#include <ATen/autocast_mode.h>

#include "support.hpp"

namespace torch_checkpoint_test {

using namespace torch_tests;
using guest::checkpoint;

struct Net {
  at::Tensor w1 = parameter(at::randn({128, 512}) * 0.1),
             w2 = parameter(at::randn({512, 128}) * 0.1);
  int calls = 0;

  at::Tensor block(const at::Tensor& x) {
    ++calls;
    return x + at::dropout(at::gelu(x.matmul(w1)), 0.2, true).matmul(w2);
  }
};

template <class Forward>
std::vector<at::Tensor> gradients_with(Net& net, const Forward& forward) {
  at::manual_seed(9);
  const at::Tensor x = parameter(at::randn({256, 128}));
  const at::Tensor loss = forward(x).square().mean() + at::rand({}).item<double>();
  auto all = gradients(loss, {net.w1, net.w2, x}, /*retain=*/true);
  all.push_back(loss.detach());
  CHECK(
      same_bits(all[0], gradients(loss, {net.w1})[0]));  // again, from the graph that was retained
  return all;
}

TEST_CASE("the bits of a run without, nested and under hooks that lose nothing") {
  at::manual_seed(1);
  Net net;
  const auto block = [&](const at::Tensor& x) { return net.block(x); };
  const auto plain = gradients_with(net, [&](const at::Tensor& x) { return block(block(x)); });
  net.calls = 0;
  CHECK(same_bits(plain, gradients_with(net, [&](const at::Tensor& x) {
                    return checkpoint(block, checkpoint(block, x));
                  })));
  CHECK(net.calls == 6);  // each once, and again in each of two backwards
  CHECK(same_bits(
      plain, gradients_with(net, [&](const at::Tensor& x) {
        return checkpoint(
            [&](const at::Tensor& y) { return checkpoint(block, checkpoint(block, y)); }, x);
      })));
  CHECK(same_bits(plain, gradients_with(net, [&](const at::Tensor& x) {
                    const guest::SavedTensors guard(guest::lossless, {.least_bytes = 1});
                    return checkpoint(block, checkpoint(block, x));
                  })));
  CHECK(same_bits(plain, gradients_with(net, [&](const at::Tensor& x) {
                    const auto with_hooks = [&](const at::Tensor& y) {
                      const guest::SavedTensors inside(guest::lossless, {.least_bytes = 1});
                      return net.block(y);
                    };
                    return checkpoint(with_hooks, checkpoint(with_hooks, x));
                  })));
}

TEST_CASE("inputs are encoded by hooks outside, and memory is that of the inputs") {
  guest::MemoryCount::install();
  at::manual_seed(1);
  Net net;
  const std::size_t before = guest::MemoryCount::live_bytes();
  const auto held = [&](const auto& around) {
    at::Tensor loss;
    {
      [[maybe_unused]] const auto guard = around();
      at::Tensor x = at::randn({256, 128});
      for (int i = 0; i < 4; ++i)
        x = checkpoint([&](const at::Tensor& y) { return net.block(y); }, x);
      loss = x.sum();
    }
    return guest::MemoryCount::live_bytes() - before;
  };
  const std::size_t inputs = 4 * 256 * 128 * sizeof(float), random_state = 4 * 8192;
  CHECK(held([] { return 0; }) < inputs + random_state);
  CHECK(held([] { return std::make_unique<guest::SavedTensors>(guest::int8); }) <
        inputs * 3 / 10 + random_state);
  CHECK(guest::MemoryCount::live_bytes() == before);
}

TEST_CASE("several inputs, none, undefined ones, and any result") {
  const at::Tensor a = parameter(at::randn({3})), b = at::randn({3});
  const auto twice =
      checkpoint([](const at::Tensor& x, const at::Tensor& y,
                    const at::Tensor& none) { return std::make_pair(x * y * x, none.defined()); },
                 a, b, at::Tensor());
  CHECK(!twice.second);
  CHECK(gradients(twice.first.sum(), {a})[0].allclose(2 * a * b));
  const at::Tensor captured = checkpoint([&] { return (a * a).sum(); });
  CHECK(same_bits(gradients(captured, {a})[0], (a * 2).detach()));
  const at::NoGradGuard none;
  CHECK(!checkpoint([&](const at::Tensor& x) { return x * a; }, b).requires_grad());
}

TEST_CASE("double backward, and a backward inside") {
  const at::Tensor a = parameter(at::randn({64}));
  const auto penalty = [](const at::Tensor& x) {
    const at::Tensor inner = gradients(x.sin().square().sum(), {x}, false, true)[0];
    return (inner.square() * x).sum();
  };
  const auto second = [&](const at::Tensor& loss) {
    return gradients(gradients(loss, {a}, false, true)[0].square().sum(), {a});
  };
  CHECK(same_bits(gradients(penalty(a * 1), {a}), gradients(checkpoint(penalty, a * 1), {a})));
  const auto cube = [](const at::Tensor& x) { return (x * x * x.cos()).sum(); };
  CHECK(same_bits(second(cube(a)), second(checkpoint(cube, a))));
}

TEST_CASE("autocast is as it was, and its casts do not stay") {
  at::manual_seed(1);
  Net net;
  const at::Tensor x = parameter(at::randn({64, 128}));
  const auto on = [](bool yes) {
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
    at::autocast::set_autocast_enabled(at::kCPU, yes);
#else
    at::autocast::set_cpu_enabled(yes);
#endif
  };
  const auto run = [&](bool checkpointed) {
    at::manual_seed(2);
    on(true);
    at::autocast::increment_nesting();
    const auto block = [&](const at::Tensor& y) { return net.block(y); };
    const at::Tensor loss = (checkpointed ? checkpoint(block, x) : block(x)).sum();
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    on(false);
    return gradients(loss, {net.w1, net.w2, x});
  };
  const auto plain = run(false);
  CHECK(same_bits(plain, run(true)));
  {
    const at::NoGradGuard none;
    net.w1.mul_(2);
  }
  CHECK(!same_bits(plain, run(true)));  // not the weight that a recomputation had cast
}

TEST_CASE("a function that does something else the second time is refused") {
  const at::Tensor a = parameter(at::randn({64}));
  const auto words = [&](auto fn) {
    const at::Tensor loss = checkpoint(fn, a);
    try {
      gradients(loss, {a});
    } catch (const c10::Error& why) {
      return std::string(why.what());
    }
    return std::string();
  };
  int calls = 0;
  const std::string fewer =
      words([&](const at::Tensor& x) { return calls++ == 0 ? x.sin().cos().sum() : x.sum(); });
  CHECK(fewer.find("it saved 0 tensors where it had saved 2") != std::string::npos);
  calls = 0;
  const std::string other = words(
      [&](const at::Tensor& x) { return (calls++ == 0 ? x : x.slice(0, 0, 32)).sin().sum(); });
  CHECK(other.find("sizes [32] where it had saved a Float tensor of sizes [64]") !=
        std::string::npos);
  calls = 0;
  const std::string thrown = words([&](const at::Tensor& x) {
    TORCH_CHECK(calls++ == 0, "no second time");
    return x.sin().sum();
  });
  CHECK(thrown.find("no second time") != std::string::npos);
}

}  // namespace torch_checkpoint_test
