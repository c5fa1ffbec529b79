// SPDX-License-Identifier: MIT
#include <adacc/optimizer/moments.hpp>

#include <doctest/doctest.h>

#include <adacc/core/block.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace moments_test { namespace {

using namespace adacc;

constexpr std::size_t lanes = moment_lanes;

RandomKey key_of(std::uint64_t seed, std::uint32_t step = 1, std::uint32_t parameter = 2) {
  return RandomKey{.seed = seed, .step = step, .activation = parameter}.with_purpose(
      Purpose::moments);
}

/// Numbers kept in a form and taken out again.
template <class Form, bool non_negative>
struct Kept {
  std::size_t elems;
  Block<std::byte> state;

  explicit Kept(std::size_t size)
      : elems(size),
        state(*Block<std::byte>::make(state_bytes(Form::form, size, Dtype::f32), "m")) {}
  void keep(const std::vector<float>& x, std::uint64_t seed) {
    for (std::size_t i = 0; i < elems; i += lanes) {
      const std::size_t count = elems - i < lanes ? elems - i : lanes;
      Form::template close<non_negative, 0>(state.data(), elems, i, count, x.data() + i,
                                            RandomHalves(key_of(seed), i));
    }
  }
  std::vector<float> get() {
    std::vector<float> x(elems);
    float buffer[lanes];
    for (std::size_t i = 0; i < elems; i += lanes) {
      const std::size_t count = elems - i < lanes ? elems - i : lanes;
      const float* values =
          Form::template open<non_negative>(state.data(), elems, i, count, buffer);
      std::memcpy(x.data() + i, values, count * sizeof(float));
    }
    return x;
  }
  std::vector<float> there_and_back(const std::vector<float>& x, std::uint64_t seed) {
    keep(x, seed);
    return get();
  }
};

/// Magnitudes over six orders, both signs unless squares are wanted; a last block that is not whole.
std::vector<float> numbers(bool squares) {
  std::vector<float> x(3 * lanes + 37);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double t = static_cast<double>(i);
    const double value = std::sin(0.7 * t) * std::pow(10.0, -3 + 3 * std::sin(0.1 * t));
    x[i] = static_cast<float>(squares ? value * value : value);
  }
  return x;
}

/// What is kept is one of two neighbours, at most `relative` of the number or `absolute` of the
/// block's largest apart, and the mean of many is the number itself.
template <class Form, bool non_negative>
void rounds_without_bias(double relative, double absolute) {
  const std::vector<float> x = numbers(non_negative);
  Kept<Form, non_negative> kept(x.size());
  std::vector<double> sum(x.size());
  constexpr int times = 4000;
  for (int n = 0; n < times; ++n) {
    const std::vector<float> y = kept.there_and_back(x, static_cast<std::uint64_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += static_cast<double>(y[i]);
    if (n > 0) continue;
    // Kept again, it stays, whatever is drawn.
    CHECK(kept.there_and_back(y, 12345) == y);
  }
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double largest = 0;
    for (std::size_t j = i / lanes * lanes; j < x.size() && j < (i / lanes + 1) * lanes; ++j)
      largest = std::fmax(largest, std::fabs(static_cast<double>(x[j])));
    const double value = static_cast<double>(x[i]);
    const double step = std::fmax(relative * std::fabs(value), absolute * largest);
    // 5 standard deviations of a mean of draws that are a step apart, but for those rounded up.
    const double mean = sum[i] / times;
    if (non_negative && value < step) {
      CHECK((mean > 0) == (value > 0));
      CHECK(mean <= 2 * step);
    } else {
      worst = std::fmax(worst, std::fabs(mean - value) / step);
    }
  }
  CHECK(worst < 2.5 / std::sqrt(times));
}

TEST_CASE("rounding has no bias, and what has a code keeps it") {
  rounds_without_bias<Bf16Moments, false>(1.0 / 128, 0);
  rounds_without_bias<Int8Moments, false>(1.0 / 8, 1.0 / 3952);
  rounds_without_bias<Int8Moments, true>(1.0 / 8, 1.0 / 1015792);
}

TEST_CASE("int8: zeros, the largest, outliers, and second moments that may not vanish") {
  std::vector<float> x(2 * lanes);
  Kept<Int8Moments, false> kept(x.size());
  CHECK(kept.there_and_back(x, 1) == x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 1e-3F : -1e-3F;
  CHECK(kept.there_and_back(x, 1) == x);  // the largest of a block has a code
  x[5] = 0.5F;  // 500 times the others: these come back to an eighth of themselves
  const std::vector<float> y = kept.there_and_back(x, 1);
  CHECK(y[5] == 0.5F);
  for (std::size_t i = 0; i < x.size(); ++i)
    CHECK(std::fabs(static_cast<double>(y[i] / x[i]) - 1) <= 0.13);

  std::vector<float> v(lanes, 1e-12F);
  v[3] = 1;
  v[4] = 0;
  Kept<Int8Moments, true> second(lanes);
  const std::vector<float> w = second.there_and_back(v, 1);
  CHECK(w[3] == 1);
  CHECK(w[4] == 0);
  for (const std::size_t i : {std::size_t{0}, std::size_t{5}, lanes - 1})
    CHECK(static_cast<double>(w[i]) == doctest::Approx(1.0 / 1015792));
  // Numbers whose squares underflow, and denormal ones.
  for (const float tiny : {1e-40F, 1e-33F})
    for (const float value : second.there_and_back(std::vector<float>(lanes, tiny), 1))
      CHECK(value == 0);
}

TEST_CASE("a NaN or an infinity stays visible") {
  // The second NaN has a payload that an addition carries into its sign.
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), detail::bits_as<float>(std::uint32_t{0x7FFFFFFF}),
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(2 * lanes, 0.25F);
    x[3] = bad;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const std::vector<float> half = Kept<Bf16Moments, false>(x.size()).there_and_back(x, seed);
      CHECK(std::isnan(half[3]) == std::isnan(bad));
      CHECK_FALSE(std::isfinite(half[3]));
      CHECK(half[4] == 0.25F);
    }
    const std::vector<float> y = Kept<Int8Moments, false>(x.size()).there_and_back(x, 1);
    for (std::size_t i = 0; i < lanes; ++i) CHECK_FALSE(std::isfinite(y[i]));
    CHECK(y[lanes] == 0.25F);
  }
}

TEST_CASE("random bits are a function of seed, update, parameter and element alone") {
  const auto words = [](const RandomKey& key, std::size_t first) {
    const RandomHalves halves(key, first);
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < lanes; ++i)
      all.push_back(halves.get<0>(i) << 16 | halves.get<1>(i));
    return all;
  };
  const auto base = words(key_of(1), 0);
  CHECK(words(key_of(1), 0) == base);
  for (const auto& other : {words(key_of(2), 0), words(key_of(1, 2), 0), words(key_of(1, 1, 3), 0),
                            words(key_of(1), lanes)}) {
    int same = 0;
    for (std::size_t i = 0; i < lanes; ++i) same += other[i] == base[i] ? 1 : 0;
    CHECK(same == 0);
  }
  // These bits are promised: a run that is resumed elsewhere goes on with them.
  CHECK(base[0] == 1874577620);
  CHECK(base[127] == 4076443416);
}

TEST_CASE("moments are converted between forms, to the nearest") {
  const std::vector<float> x = numbers(false);
  const std::size_t elems = x.size();
  const auto memory = [&](StateForm form) {
    return *Block<std::byte>::make(state_bytes(form, elems, Dtype::f32), "state");
  };
  Block<std::byte> full = memory(StateForm::full), back = memory(StateForm::full);
  std::memcpy(full.data(), x.data(), elems * sizeof(float));
  for (const StateForm form : {StateForm::full, StateForm::bf16, StateForm::int8}) {
    CAPTURE(name_of(form));
    Block<std::byte> kept = memory(form);
    detail::convert_state<false, float>(StateForm::full, full.data(), form, kept.data(), elems);
    detail::convert_state<false, float>(form, kept.data(), StateForm::full, back.data(), elems);
    const double bound = form == StateForm::full   ? 0
                         : form == StateForm::bf16 ? 1.0 / 256
                                                   : 1.0 / 16;
    for (std::size_t i = 0; i < elems; ++i) {
      float y = 0;
      std::memcpy(&y, back.data() + i * sizeof y, sizeof y);
      const double step = form == StateForm::int8 ? 1e-3 : 0;  // of even steps, near 0
      CHECK(std::fabs(static_cast<double>(y - x[i])) <=
            bound * std::fabs(static_cast<double>(x[i])) + step);
    }
  }
}

}}  // namespace moments_test
