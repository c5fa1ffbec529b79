// SPDX-License-Identifier: MIT
// Outputs of a tape's kernels: in place of an input, and of other types.
#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>

#include "tape_chain.hpp"

namespace tape_outputs_test {

using namespace tape_chain;

constexpr std::size_t row_bytes = 32 * Chain::channels * sizeof(float);

TEST_CASE("a kernel changes its input in place, in forward and when it runs again") {
  for (const Softsign how : {Softsign::apart, Softsign::in_place, Softsign::copied})
    for (const double percent : {100.0, 50.0}) {
      Chain chain(32, how);
      const Error why = chain.start({.percent = percent, .check = true});
      REQUIRE_MESSAGE(!why, std::string(why.text()));
      for (int i = 0; i < 2; ++i) {
        chain.shifts = 0;
        REQUIRE(chain.step());
        CHECK(chain.right());
        CHECK((chain.shifts > Chain::layers * row_bytes / sizeof(float)) == (percent < 100));
      }
    }
}

TEST_CASE("an output in the place of its input takes no memory of its own") {
  const auto whole_bytes = [](Softsign how) {
    Chain chain(32, how);
    REQUIRE(!chain.start({.percent = 100}));
    return chain.tape.outcome().retain_peak_bytes;
  };
  CHECK(whole_bytes(Softsign::in_place) == (Chain::layers + 1) * row_bytes - row_bytes);
  CHECK(whole_bytes(Softsign::apart) == (Chain::layers + 1) * row_bytes);
  CHECK(whole_bytes(Softsign::copied) == 2 * Chain::layers * row_bytes);
}

TEST_CASE("an activation changed in place is there until then, and forward does not end between") {
  Chain chain(32, Softsign::in_place);
  REQUIRE(!chain.start({.percent = 100}));
  Tape<>& tape = chain.tape;
  REQUIRE(!tape.begin(chain.cpu));
  REQUIRE(!tape.run(0, 2));
  const float first = tape.value(chain.z[0])[0];
  REQUIRE(!tape.run(2, 3));
  CHECK(tape.value(chain.y[0])[0] == first / (1 + std::fabs(first)));
  CHECK(tape.value(chain.z[0]).data() == nullptr);
  CHECK(says(tape.end(), "activation 1 (z) is not there"));
  CHECK(std::string(tape.policy_of(chain.z[0])) == "overwritten");
  CHECK(std::string(tape.policy_of(chain.y[0])) == "retain");

  REQUIRE(!tape.begin(chain.cpu));
  REQUIRE(!tape.run());
  REQUIRE(!tape.backward(2));
  CHECK(tape.value(chain.z[0]).data() == nullptr);
  CHECK(says(tape.end(), "activation 1 (z) is gone: kernel 2 (softsign) changed it in place"));

  REQUIRE(!tape.begin(chain.cpu));
  REQUIRE(!tape.run(0, 4));
  CHECK(says(tape.backward(2),
             "forward ended with kernel 3 (shift), whose output kernel 4 (softsign) changes in"));
  CHECK(tape.end());
}

TEST_CASE("several kernels in a row change one activation, beside others") {
  // norm makes y and a factor; scale and clip change y. Backward of norm reads the factor, of clip y.
  const Shape shape(4, 8);
  Tape<> tape;
  Cpu cpu;
  float sum = 0, d[32];
  const int x =
      tape.kernel({.name = "input", .writes = {{"x", shape}}}, [](const TapeCall<float>& k) {
        for (std::size_t i = 0; i < 32; ++i) k.out(0)[i] = static_cast<float>(i) - 16;
      });
  const auto [y, factor] = tape.kernel<2>({.name = "norm",
                                           .reads = {x},
                                           .writes = {{"y", shape}, {"factor", Shape(4)}},
                                           .saves = {x, "factor"},
                                           .workspace_bytes = 64},
                                          [&](const TapeCall<float>& k) {
                                            for (std::size_t i = 0; i < 4; ++i)
                                              k.out(1)[i] = 1 / static_cast<float>(i + 1);
                                            for (std::size_t i = 0; i < 32; ++i)
                                              k.out(0)[i] = k.in(0)[i] * k.out(1)[i / 8];
                                          });
  const int scaled =
      tape.kernel({.name = "scale", .reads = {y, x}, .writes = {{"s", TapeInPlace{y}}}},
                  [](const TapeCall<float>& k) {
                    for (std::size_t i = 0; i < 32; ++i) k.out(0)[i] += 2 * k.in(1)[i];
                  });
  const int clipped = tape.kernel({.name = "clip",
                                   .reads = {scaled},
                                   .writes = {{"c", TapeInPlace{scaled}}},
                                   .saves = {"c"},
                                   .workspace_bytes = 256},
                                  [](const TapeCall<float>& k) {
                                    for (std::size_t i = 0; i < 32; ++i)
                                      if (k.out(0)[i] > 9) k.out(0)[i] = 9;
                                  });
  static_cast<void>(tape.kernel({.name = "sum", .reads = {clipped}, .backward_bytes = 4},
                                [&](const TapeCall<float>& k) {
                                  sum = 0;
                                  for (std::size_t i = 0; i < 32; ++i) sum += k.in(0)[i];
                                }));
  const auto step = [&]() -> Result<Array<View<const float>>> {
    if (Error why = tape.begin(cpu)) return why;
    if (Error why = tape.run()) return why;
    if (Error why = tape.backward(3)) return why;
    for (std::size_t i = 0; i < 32; ++i) d[i] = tape.value(clipped)[i] < 9 ? 1.0F : 0.0F;
    if (Error why = tape.backward(2)) return why;
    if (Error why = tape.backward(1)) return why;
    for (std::size_t i = 0; i < 32; ++i) d[i] *= tape.value(factor)[i / 8] + tape.value(x)[i];
    if (Error why = tape.backward(0)) return why;
    if (Error why = tape.end()) return why;
    Array<View<const float>> gradients;
    gradients.push_back({d, Shape(32)});
    return gradients;
  };
  const Error why = tape.start(cpu, {.percent = 100, .check = true}, step);
  REQUIRE_MESSAGE(!why, std::string(why.text()));
  REQUIRE(step());
  float expected = 0;
  for (int i = 0; i < 32; ++i) {
    const auto value = static_cast<float>(i - 16);
    const float of = 1 / static_cast<float>(i / 8 + 1), out = value * of + 2 * value;
    expected += out > 9 ? 9 : out;
    CHECK(d[i] == (out > 9 ? 0 : of + value));
  }
  CHECK(sum == expected);
}

TEST_CASE("outputs have elements of other types, with gradients of real ones") {
  Tape<> tape;
  Cpu cpu;
  constexpr std::size_t count = 21;
  float got[count];
  bool zeros = true;
  const auto ids = tape.kernel<4>(
      {.name = "split",
       .writes = {{"wide", Shape(3, 7), TapeType::f64},
                  {"half", Shape(3, 7), TapeType::f16},
                  {"brain", Shape(3, 7), TapeType::bf16},
                  {"mask", Shape(3, 7), TapeType::bytes, TapeOutputs::zeroed}},
       .saves = {"wide", "half", "brain", "mask"},
       .gradients = true},
      [&](const TapeCall<float>& k) {
        const auto* const mask = k.template out_as<unsigned char>(3);
        for (std::size_t i = 0; i < count; ++i) zeros = zeros && mask[i] == 0;
        for (std::size_t i = 0; i < count; ++i) {
          k.template out_as<double>(0)[i] = 1e-9 * static_cast<double>(i) + 1;
          k.template out_as<unsigned short>(1)[i] = static_cast<unsigned short>(i);
          k.template out_as<unsigned short>(2)[i] = static_cast<unsigned short>(2 * i);
          if (i % 2 == 1) k.template out_as<unsigned char>(3)[i] = 1;
        }
      });
  static_cast<void>(tape.kernel(
      {.name = "use", .reads = {ids[0]}, .backward_bytes = 8},
      [](const TapeCall<float>& k) { static_cast<void>(k.template in_as<double>(0)[count - 1]); }));
  const auto step = [&]() -> Result<Array<View<const float>>> {
    if (Error why = tape.begin(cpu)) return why;
    if (Error why = tape.run()) return why;
    if (Error why = tape.backward(1)) return why;
    for (std::size_t i = 0; i < count; ++i) tape.grad_as<double>(ids[0])[i] += 0.5;
    if (Error why = tape.backward(0)) return why;
    for (std::size_t i = 0; i < count; ++i)
      got[i] = static_cast<float>((tape.value_as<double>(ids[0])[i] - 1) * 1e9 +
                                  tape.grad_as<double>(ids[0])[i]) +
               tape.value_as<unsigned short>(ids[1])[i] + tape.value_as<unsigned short>(ids[2])[i] +
               tape.value_as<unsigned char>(ids[3])[i];
    if (Error why = tape.end()) return why;
    Array<View<const float>> gradients;
    gradients.push_back({got, Shape(count)});
    return gradients;
  };
  const Error why = tape.start(cpu, {.percent = 100, .check = true}, step);
  REQUIRE_MESSAGE(!why, std::string(why.text()));
  REQUIRE(step());
  CHECK(zeros);
  for (std::size_t i = 0; i < count; ++i)
    CHECK(got[i] ==
          doctest::Approx(4.0 * static_cast<double>(i) + 0.5 + static_cast<double>(i % 2)));
}

TEST_CASE("mistakes in outputs are told with the kernel's name") {
  const auto nothing = [](const TapeCall<float>&) {};
  const Shape shape(4, 4);
  using Output = TapeOutput<float, Cpu>;
  const auto refused = [&](const StashList& reads, const StashListOf<Output>& writes) {
    Tape<> tape;
    Cpu cpu;
    static_cast<void>(tape.kernel({.name = "input", .writes = {{"x", shape}}}, nothing));
    tape.kernel_of_any({.name = "k", .reads = reads, .writes = writes}, nothing);
    return tape.start(cpu, {.percent = 50},
                      [] { return Result<Array<View<const float>>>(Error::say("no step")); });
  };
  const auto check = [](const Error& why, const char* text) {
    CHECK_MESSAGE(says(why, text), std::string(why.text()));
  };
  check(refused({}, {{"y", TapeInPlace{0}}}),
        "kernel 1 (k) writes y, which takes the place of activation 0, and the kernel does not "
        "read that one");
  check(refused({0}, {{"y", TapeInPlace{0}}, {"z", TapeInPlace{0}}}),
        "writes z, which takes the place of x, as y does");
  check(refused({0}, {{"y", TapeInPlace{0}, TapeOutputs::zeroed}}),
        "writes y, which is zeroed, and begins as x");
  check(
      refused({0}, {{"y", shape, TapeType::f64, TapeOutputs::plain, {stash_codec<Int8Outlier>()}}}),
      "kernel 1 (k) writes y, of f64, and codecs of this tape encode f32 alone");
  check(refused({0}, {{"y", shape, TapeType::bytes, TapeOutputs::gradient}}),
        "writes y, of bytes, and a gradient is asked for");
  check(refused({0}, {{"y", StashBytes{16}, TapeOutputs::gradient}}),
        "writes y, of bytes, and a gradient is asked for");
  check(refused({0}, {{"y", shape, TapeType::i32, TapeOutputs::gradient}}),
        "writes y, of i32, and a gradient");
  check(refused({0}, {{"y", shape, TapeOutputs::per_item}}),
        "kernel 1 (k) is per item, and start() was not told the items");
}

}  // namespace tape_outputs_test
