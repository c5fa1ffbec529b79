// SPDX-License-Identifier: MIT
/// Writes a checkpoint of a small training, or reads one of another platform and goes on from there.
///
/// The notes of the checkpoint say which bits the parameters have: the reader must have the same.
#include <adacc/core/number_text.hpp>
#include <adacc/train.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

using namespace adacc;

constexpr Shape shape(64, 2);

/// A hash of the parameters' bits (FNV-1a).
template <class Training>
std::string bits_of(const Training& training) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto params = training.params();
  for (std::size_t i = 0; i < params.size(); ++i)
    hash = (hash ^ detail::bits_as<std::uint32_t>(params[i])) * 0x100000001b3U;
  return NumberText::hexadecimal(hash).c_str();
}

/// Learns y = a * b; the mean loss of the last ten updates.
template <class Training>
double learn(Training& training, int updates) {
  alignas(64) static float x[64 * 2], y[64];
  double sum = 0;
  for (int i = 0; i < updates; ++i) {
    const auto step = static_cast<std::uint32_t>(training.data_position++);
    for (std::size_t e = 0; e < 128; ++e) x[e] = unit_float(random_word({.step = step}, e));
    for (std::size_t r = 0; r < 64; ++r) y[r] = x[2 * r] * x[2 * r + 1];
    const auto done =
        training.step(View<const float>(x, shape), View<const float>(y, Shape(64, 1)), 1e-2);
    if (!done) return 1e9;
    if (i >= updates - 10) sum += done->loss / 10;
  }
  return sum;
}

int fail(const char* why) {
  std::printf("exchange: %s\n", why);
  return 1;
}

int run(bool write, const std::string& path) {
  const Network net{Sequential{layer(Linear{.out = 32}), layer(Gelu{}), layer(Linear{.out = 1})},
                    MeanSquaredError{}};
  auto training = Training<>::make(net, shape, {});
  if (!training) return fail(training.error.text());
  if (write) {
    const double loss = learn(*training, 100);
    if (const Error why = training->save(path, bits_of(*training))) return fail(why.text());
    return std::printf("loss %.6f, parameters %s\n", loss, bits_of(*training).c_str()), 0;
  }
  const auto info = training->load(path);
  if (!info) return fail(info.error.text());
  if (info->notes != bits_of(*training))
    return fail("the parameters have other bits than they were saved with");
  const double loss = learn(*training, 50);
  if (!(loss < 0.01)) return fail("training does not go on where it was");
  return std::printf("parameters %s, loss then %.6f\n", info->notes.c_str(), loss), 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what == "write" || what == "read") return run(what == "write", argv[2]);
  return std::puts("usage: exchange write|read FILE"), 2;
}
