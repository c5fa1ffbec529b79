// SPDX-License-Identifier: MIT
/// 200 random small modules: the same gradients, to the bit, as without hooks, and nothing is left.
#include <optional>
#include <string>

#include "random_module.hpp"

namespace torch_modules_test {

using namespace torch_tests;
constexpr unsigned modules = 200;

struct Outcome {
  std::vector<at::Tensor> gradients;
  bool refused = false;  ///< autograd said that a saved tensor was changed in place
};

template <class Loss>
Outcome gradients_of(const RandomModule& module, const Loss& loss) {
  try {
    return {gradients(loss(), module.leaves())};
  } catch (const c10::Error& why) {
    const std::string words = why.what();
    INFO(words);
    REQUIRE(words.find("modified by an inplace") != std::string::npos);
    return {{}, true};
  }
}

Outcome guarded(RandomModule& module, const guest::Policy& policy) {
  return gradients_of(module, [&] {
    const guest::SavedTensors guard(policy, {.least_bytes = 1});
    return module.loss();
  });
}

TEST_CASE("lossless policies change no bit, and refuse what autograd refuses") {
  unsigned refused = 0;
  for (unsigned seed = 0; seed < modules; ++seed) {
    CAPTURE(seed);
    RandomModule module(seed);
    const Outcome plain = gradients_of(module, [&] { return module.loss(); });
    const Outcome same = guarded(module, guest::lossless);
    CHECK(plain.refused == same.refused);
    CHECK(same_bits(plain.gradients, same.gradients));
    if (plain.refused) ++refused;
    if (plain.refused) CHECK(module.may_break());
  }
  CHECK(refused > 3);
}

TEST_CASE("lossy policies err a little, and leave no bytes behind") {
  guest::MemoryCount::install();
  unsigned far = 0, lossy = 0;
  for (unsigned seed = 0; seed < modules; ++seed) {
    CAPTURE(seed);
    const std::size_t before = guest::MemoryCount::live_bytes();
    for (const guest::Policy& policy :
         {guest::Policy(guest::int8), guest::Policy(guest::tolerated)}) {
      RandomModule module(seed);
      const Outcome plain = gradients_of(module, [&] { return module.loss(); });
      const Outcome near = guarded(module, policy);
      CHECK(plain.refused == near.refused);
      if (plain.refused) continue;
      const double error = relative_error(near.gradients, plain.gradients);
      if (error > 0) ++lossy;
      if (!(error < 0.05)) ++far;
    }
    CHECK(guest::MemoryCount::live_bytes() == before);
  }
  MESSAGE(lossy, " of ", 2 * modules, " lost something, ", far, " more than 5 %");
  // Some are ill-conditioned: batch norm of what hardly varies, say.
  CHECK(lossy > modules);
  CHECK(far * 20 < lossy);
}

TEST_CASE("checkpointed modules have the same bits") {
  for (unsigned seed = 0; seed < modules; ++seed) {
    CAPTURE(seed);
    RandomModule module(seed);
    if (module.may_break()) continue;
    const Outcome plain = gradients_of(module, [&] { return module.loss(); });
    const Outcome again =
        gradients_of(module, [&] { return guest::checkpoint([&] { return module.loss(); }); });
    CHECK(same_bits(plain.gradients, again.gradients));
  }
}

}  // namespace torch_modules_test
