// SPDX-License-Identifier: MIT
// A recurrent network written by hand, with and without a tape: the same bits, under every budget and length.
#include "adacc/stash/tape_start.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <adacc/codec/int8_outlier.hpp>

namespace tape_test {

using namespace adacc;

constexpr int rows = 8, channels = 16, row = rows * channels, weights = channels * channels;

/// h[t] = softsign(x[t] + h[t-1] w), loss = sum of |h[t] - target|^2 / 2.
struct Net {
  std::vector<float> w = std::vector<float>(weights), dw = w;
  std::vector<float> x, target;
  int length;

  explicit Net(int longest)
      : x(static_cast<std::size_t>(longest * row)), target(row), length(longest) {
    const auto draw = [](std::vector<float>& to, std::uint64_t seed) {
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = unit_float(random_word({.seed = seed}, i)) - 0.5F;
    };
    draw(w, 1), draw(x, 2), draw(target, 3);
  }

  void cell(int t, const float* before, float* z, float* h) const {
    for (int b = 0; b < rows; ++b)
      for (int o = 0; o < channels; ++o) {
        float sum = x[static_cast<std::size_t>(t * row + b * channels + o)];
        for (int i = 0; before != nullptr && i < channels; ++i)
          sum += before[b * channels + i] * w[static_cast<std::size_t>(i * channels + o)];
        z[b * channels + o] = sum;
        h[b * channels + o] = sum / (1 + std::fabs(sum));
      }
  }
  static void loss(const float* h, const float* wanted, float* to) {
    for (int i = 0; i < row; ++i)
      *to += (h[i] - wanted[i]) * (h[i] - wanted[i]) / 2;  // adds: it relies on zero
  }
  /// Adds to the first `count` numbers of dh, or sets them.
  void loss_backward(const float* h, float* dh, bool sets = false, int count = row) const {
    for (int i = 0; i < count; ++i)
      dh[i] = (sets ? 0 : dh[i]) + (h[i] - target[static_cast<std::size_t>(i)]);
  }
  void cell_backward(const float* before, const float* z, const float* dh, float* dbefore,
                     float* dz) {
    for (int i = 0; i < row; ++i) dz[i] = dh[i] / ((1 + std::fabs(z[i])) * (1 + std::fabs(z[i])));
    for (int b = 0; before != nullptr && b < rows; ++b)
      for (int i = 0; i < channels; ++i)
        for (int o = 0; o < channels; ++o) {
          const auto at = static_cast<std::size_t>(i * channels + o);
          dbefore[b * channels + i] += dz[b * channels + o] * w[at];
          dw[at] += before[b * channels + i] * dz[b * channels + o];
        }
  }

  float plain() {
    dw.assign(dw.size(), 0);
    const auto size = static_cast<std::size_t>(length * row);
    std::vector<float> z(size), h(size), dh(size), dz(row);
    float total = 0;
    for (int t = 0; t < length; ++t) {
      cell(t, t ? &h[static_cast<std::size_t>((t - 1) * row)] : nullptr,
           &z[static_cast<std::size_t>(t * row)], &h[static_cast<std::size_t>(t * row)]);
      float one = 0;
      loss(&h[static_cast<std::size_t>(t * row)], target.data(), &one);
      total += one;
    }
    for (int t = length - 1; t >= 0; --t) {
      const auto at = static_cast<std::size_t>(t * row);
      loss_backward(&h[at], &dh[at]);
      cell_backward(t ? &h[at - row] : nullptr, &z[at], &dh[at], t ? &dh[at - row] : nullptr,
                    dz.data());
    }
    return total;
  }
};

/// The same on a tape: two kernels a time step, cell and loss.
struct Taped : Net {
  Tape<> tape;
  std::vector<int> z, h, one;
  Cpu cpu;
  float total = 0;
  int latest = -1;     ///< the last time step that ran or was computed again
  bool takes = false;  ///< backward overwrites z by its gradient
  int sets = 0;        ///< numbers that the step's first backward sets in the gradient of h
  int asks = 0;        ///< the cell's call, counted from 1, that asks for more than there is

  explicit Taped(int longest, bool lossy = false) : Net(longest) {
    const Shape shape(rows, channels);
    const StashListOf<StashCodec<StashModel<>>> codecs =
        lossy ? StashListOf<StashCodec<StashModel<>>>{stash_codec<Int8Outlier>()}
              : StashListOf<StashCodec<StashModel<>>>{};
    for (int t = 0; t < longest; ++t) {
      const StashList reads = t ? StashList{h.back()} : StashList{};
      StashReads saves = reads;
      saves.push_back("z");
      const auto [z_id, h_id] = tape.kernel<2>(
          {.name = "cell",
           .reads = reads,
           .writes = {{"z", shape, codecs}, {"h", shape, TapeOutputs::gradient, codecs}},
           .saves = saves,
           .backward_bytes = row * sizeof(float)},
          [this, t](const TapeCall<float>& k) {
            if (t > latest) latest = t;
            if (--asks == 0) {
              CHECK(k.in(9).empty());
              CHECK(k.out_as<int>(2) == nullptr);
            }
            cell(t, t ? k.in(0).data() : nullptr, k.out(0).data(), k.out(1).data());
          });
      z.push_back(z_id), h.push_back(h_id);
      one.push_back(tape.kernel({.name = "loss",
                                 .reads = {h_id},
                                 .writes = {{"loss", Shape(1), TapeOutputs::zeroed}},
                                 .saves = {h_id}},
                                [this](const TapeCall<float>& k) {
                                  loss(k.in(0).data(), target.data(), k.out(0).data());
                                }));
    }
  }

  Result<Array<View<const float>>> step() {
    dw.assign(dw.size(), 0);
    total = 0;
    if (Error why = tape.begin(cpu)) return why;
    for (int t = 0; t < length; ++t) {
      static_cast<void>(tape.run(2 * t, 2 * t + 2));  // its error comes with end()
      const View<const float> value = tape.value(one[static_cast<std::size_t>(t)]);
      if (value.data() == nullptr) break;
      total += value[0];
    }
    for (int t = length - 1; t >= 0; --t) {
      const auto at = static_cast<std::size_t>(t);
      if (tape.backward(2 * t + 1)) break;
      if (sets > 0 && t == length - 1)
        loss_backward(tape.value(h[at]).data(), tape.grad_to_write(h[at]).data(), true, sets);
      else loss_backward(tape.value(h[at]).data(), tape.grad(h[at]).data());
      if (tape.backward(2 * t)) break;
      float* const dz =
          takes ? tape.take(z[at]).data()
                : static_cast<float*>(static_cast<void*>(tape.backward_workspace().data()));
      if (dz == nullptr) break;
      cell_backward(t ? tape.value(h[at - 1]).data() : nullptr, tape.value(z[at]).data(),
                    tape.grad(h[at]).data(), t ? tape.grad(h[at - 1]).data() : nullptr, dz);
    }
    if (Error why = tape.end()) return why;
    Array<View<const float>> gradients;
    gradients.push_back({dw.data(), Shape(dw.size())});
    return gradients;
  }
  Error start(const TapeStart& how) {
    return tape.start(cpu, how, [&] { return step(); });
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
std::string words(const Error& why) { return why.text(); }
bool says(const Error& why, const char* text) { return words(why).find(text) != std::string::npos; }

/// Starts the tape, with checks, and compares two steps with the gradient of `net`.
void expect_bits(Taped& taped, const Net& net, double percent) {
  const Error why = taped.start({.percent = percent, .check = true});
  REQUIRE_MESSAGE(!why, words(why));
  for (int i = 0; i < 2; ++i) {
    const auto done = taped.step();
    REQUIRE_MESSAGE(done, words(done.error));
    CHECK(same(taped.dw, net.dw));
  }
}

/// A step of one kernel, whose output `h` is its own gradient: the first `count` numbers of it.
Result<Array<View<const float>>> step_of_one(Tape<>& tape, Cpu& cpu, int h, float* dh,
                                             std::size_t count) {
  if (Error why = tape.begin(cpu)) return why;
  static_cast<void>(tape.run());
  if (!tape.backward(0)) std::memcpy(dh, tape.value(h).data(), row * sizeof(float));
  if (Error why = tape.end()) return why;
  Array<View<const float>> gradients;
  gradients.push_back({dh, Shape(count)});
  return gradients;
}

TEST_CASE("a long tape that recomputes several times takes less, with a trainer's bits") {
  constexpr int length = 60;
  Net net(length);
  const float total = net.plain();
  Taped once(length), taped(length);
  CHECK(says(once.start({.percent = 12, .most_runs = 9}), "1 to 8 times"));
  CHECK(says(once.start({.percent = 12}), "smallest"));
  const Error why = taped.start({.percent = 12, .most_runs = 4});
  REQUIRE_MESSAGE(!why, words(why));
  CHECK(is_nested(taped.tape.stash().program().plan));
  CHECK(static_cast<double>(taped.tape.arena_bytes()) <=
        0.12 * static_cast<double>(taped.tape.outcome().retain_peak_bytes));
  for (int i = 0; i < 2; ++i) {
    REQUIRE(taped.step());
    CHECK(taped.total == total);
    CHECK(same(taped.dw, net.dw));
  }
}

TEST_CASE("a tape gives a trainer's bits under every budget") {
  Net net(12);
  const float total = net.plain();
  for (const double percent : {100.0, 70.0, 50.0}) {
    Taped taped(12);
    const Error why = taped.start({.percent = percent, .check = true});
    REQUIRE_MESSAGE(!why, words(why));
    CHECK(static_cast<double>(taped.tape.arena_bytes()) <=
          percent / 100 * static_cast<double>(taped.tape.outcome().retain_peak_bytes));
    for (int i = 0; i < 2; ++i) {
      const auto done = taped.step();
      REQUIRE_MESSAGE(done, words(done.error));
      CHECK(taped.total == total);
      CHECK(same(taped.dw, net.dw));
    }
  }
}

TEST_CASE("a shorter sequence ends forward early, and what was not run has no backward") {
  for (const double percent : {100.0, 50.0}) {
    Taped taped(12);
    REQUIRE(!taped.start({.percent = percent}));
    for (const int length : {12, 1, 5, 11, 12}) {
      Net net(12);
      net.length = taped.length = length;
      taped.latest = -1;
      const float total = net.plain();
      const auto done = taped.step();
      REQUIRE_MESSAGE(done, words(done.error));
      CHECK(taped.total == total);
      CHECK(taped.latest == length - 1);
      CHECK(same(taped.dw, net.dw));
    }
    REQUIRE(!taped.tape.begin(taped.cpu));
    REQUIRE(!taped.tape.run(0, 6));
    const Error why = taped.tape.backward(7);
    CHECK(says(
        why,
        "kernel 7 (loss) has no backward in this step: forward ended before it, with kernel 5"));
    CHECK(words(taped.tape.backward(5)) == words(why));  // it sticks
    CHECK(taped.tape.value(taped.h[2]).data() == nullptr);
    CHECK(words(taped.tape.end()) == words(why));
  }
}

TEST_CASE("the last reader of an activation may overwrite it, under every plan") {
  Net net(12);
  net.plain();
  for (const double percent : {100.0, 70.0, 50.0}) {
    Taped taped(12);
    taped.takes = true;
    expect_bits(taped, net, percent);
  }
}

TEST_CASE("a backward may set a gradient that has no contents yet, and sets it whole") {
  Net net(12);
  net.plain();
  for (const double percent : {100.0, 50.0}) {
    Taped taped(12);
    taped.sets = row;
    expect_bits(taped, net, percent);
    REQUIRE(!taped.tape.begin(taped.cpu));
    REQUIRE(!taped.tape.run());
    REQUIRE(!taped.tape.backward(23));
    // The first call for a gradient decides: memory of other gradients is not cleared.
    float* const dh = taped.tape.grad_to_write(taped.h[11]).data();
    REQUIRE(dh != nullptr);
    std::fill(dh, dh + row, 3.0F);
    CHECK(taped.tape.grad(taped.h[11]).data() == dh);
    CHECK(dh[row - 1] == 3);
    CHECK(taped.tape.grad_to_write(taped.h[11]).data() == nullptr);
    CHECK(says(taped.tape.end(), "the gradient of activation 34 (h) has contents"));
  }
  Taped half(12);
  half.sets = row - 1;
  CHECK(says(half.start({.percent = 100, .check = true}), "gradient"));
}

TEST_CASE("an activation read later is not to be overwritten, nor one that is not there") {
  Taped taped(3);
  REQUIRE(!taped.start({.percent = 100}));
  const auto refused = [&](int k, int id) {
    REQUIRE(!taped.tape.begin(taped.cpu));
    REQUIRE(!taped.tape.run());
    if (k >= 0) REQUIRE(!taped.tape.backward(k));
    CHECK(taped.tape.take(id).data() == nullptr);
    return taped.tape.end();
  };
  Error why = refused(4, taped.h[1]);  // the loss of time step 1 comes behind the cell of step 2
  CHECK_MESSAGE(says(why,
                     "take of h (2 of 3) in backward stage 4 (cell): backward stage 3 (loss) reads "
                     "it later; only the "
                     "last reader may overwrite"),
                words(why));
  why = refused(4, taped.z[1]);
  CHECK_MESSAGE(says(why,
                     "activation 3 (z) is not there: kernel 4 (cell), whose backward is on, does "
                     "not save it"),
                words(why));
  why = refused(-1, taped.z[2]);
  CHECK_MESSAGE(says(why, "take() is for backward"), words(why));
}

TEST_CASE("an activation from which a plan may recompute another later is not to be overwritten") {
  Tape<> tape;
  Cpu cpu;
  float dx[row];
  const Shape shape(rows, channels);
  const auto copy = [](const TapeCall<float>& k) {
    std::memcpy(k.out(0).data(), k.in(0).data(), row * sizeof(float));
  };
  const int x =
      tape.kernel({.name = "input", .writes = {{"x", shape}}}, [](const TapeCall<float>& k) {
        for (int i = 0; i < row; ++i) k.out(0).data()[i] = 1;
      });
  const int y =
      tape.kernel({.name = "first", .reads = {x}, .writes = {{"y", shape}}, .saves = {"y"}}, copy);
  static_cast<void>(
      tape.kernel({.name = "second", .reads = {y}, .saves = {x}}, [](const TapeCall<float>&) {}));
  const auto step = [&] {
    const auto run = [&]() -> Error {
      if (Error why = tape.begin(cpu)) return why;
      if (Error why = tape.run()) return why;
      if (Error why = tape.backward(2)) return why;
      if (tape.take(x).data() != nullptr) tape.take(x).data()[0] = 7;
      return tape.backward(1);
    };
    static_cast<void>(run());
    for (int i = 0; i < row; ++i) dx[i] = 1;
    Array<View<const float>> gradients;
    if (Error why = tape.end()) return Result<Array<View<const float>>>(why);
    gradients.push_back({dx, Shape(row)});
    return Result<Array<View<const float>>>(static_cast<Array<View<const float>>&&>(gradients));
  };
  const Error why = tape.start(cpu, {.percent = 100}, step);
  CHECK_MESSAGE(says(why, "a plan may read it to recompute y for backward stage 1 (first)"),
                words(why));
}

TEST_CASE("budgets change between steps, and errors name the kernel that limits them") {
  Taped taped(12);
  REQUIRE(!taped.start({.percent = 60}));
  Net net(12);
  net.plain();
  const std::size_t whole = taped.tape.outcome().retain_peak_bytes;
  for (const std::size_t bytes : {whole, whole / 2}) {
    REQUIRE(!taped.tape.set_budget(bytes));
    CHECK(taped.tape.arena_bytes() <= bytes);
    REQUIRE(taped.step());
    CHECK(same(taped.dw, net.dw));
  }
  const Error why = taped.tape.set_budget(1000);
  CHECK(says(why, "no plan fits into a budget of 1000 bytes"));
  CHECK((says(why, "limited by backward of cell") || says(why, "limited by backward of loss")));
  CHECK((says(why, " x activation h ") && says(why, " x gradient ")));  // and its bytes
  CHECK(!says(why, "instruction"));
  REQUIRE(taped.step());
  CHECK(same(taped.dw, net.dw));
}

TEST_CASE("a tolerance has codecs probed, and a lent memory is used") {
  Taped taped(12, true);
  std::vector<std::string> lines;
  alignas(64) static std::byte memory[1 << 17];
  const auto log = [](void* user, const char* line) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(line);
  };
  const Error why = taped.start({.percent = 45,
                                 .tolerance = 1e-2,
                                 .memory = Bytes(memory, Shape(sizeof memory)),
                                 .check = false,
                                 .log = log,
                                 .user = &lines});
  REQUIRE_MESSAGE(!why, words(why));
  REQUIRE(lines.size() >= 2);
  CHECK(lines.front().find("tape: probed 1 of ") == 0);
  CHECK(lines.back().find("fullest at the ") != std::string::npos);
  CHECK(lines.back().find("tape: ") == 0);
  Net net(12);
  net.plain();
  REQUIRE(taped.step());
  double off = 0, norm = 0;
  for (std::size_t i = 0; i < net.dw.size(); ++i) {
    const double d = static_cast<double>(taped.dw[i]) - static_cast<double>(net.dw[i]);
    off += d * d, norm += static_cast<double>(net.dw[i]) * static_cast<double>(net.dw[i]);
  }
  CHECK(off <= 2e-2 * norm);
}

TEST_CASE("a budget within a step is refused, and the step goes on") {
  Taped taped(12);
  REQUIRE(!taped.start({.percent = 50}));
  REQUIRE(!taped.tape.begin(taped.cpu));
  REQUIRE(!taped.tape.run());
  CHECK(says(taped.tape.set_budget(taped.tape.outcome().retain_peak_bytes), "comes between steps"));
  CHECK(!taped.tape.backward(taped.tape.kernels() - 1));
  CHECK(!taped.tape.end());
  // Nothing of a step is left to look at, not even of one that ended with forward.
  REQUIRE(!taped.tape.begin(taped.cpu));
  REQUIRE(!taped.tape.run());
  CHECK(taped.tape.value(taped.one.back()).data() != nullptr);
  CHECK(!taped.tape.end());
  CHECK(taped.tape.value(taped.one.back()).data() == nullptr);
  CHECK(taped.tape.end());
  // More than retaining takes is not taken.
  REQUIRE(!taped.tape.set_budget(std::size_t{1} << 50));
  CHECK(taped.tape.arena_bytes() == taped.tape.outcome().retain_peak_bytes);
  Net net(12);
  net.plain();
  REQUIRE(taped.step());
  CHECK(same(taped.dw, net.dw));
}

TEST_CASE("probing that has no time for anything says so") {
  Taped taped(3, true);
  std::vector<std::string> lines;
  const auto log = [](void* user, const char* line) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(line);
  };
  REQUIRE(!taped.start({.percent = 100,
                        .tolerance = 1e-2,
                        .setup_seconds = 1e-9,
                        .check = false,
                        .log = log,
                        .user = &lines}));
  REQUIRE(!lines.empty());
  CHECK(lines.front().find("tape: setup_seconds ended probing: the errors of ") == 0);
}

TEST_CASE("times that drift have zeroed outputs measured anew between steps") {
  struct Clock {
    double now = 0, rate = 1e-3;
    double operator()() { return now += rate; }
  } clock;
  Taped taped(12);
  Net net(12);
  net.plain();
  REQUIRE(!taped.start({.percent = 50, .clock = clock, .check = false, .evolving = true}));
  bool measured = false;
  for (int i = 0; i < 3000 && !measured; ++i) {
    if (i == 10) clock.rate = 1;
    taped.latest = -1;
    const Error why =
        taped.tape.begin(taped.cpu);  // callables run before forward if they are measured
    REQUIRE_MESSAGE(!why, words(why));
    measured = taped.latest >= 0;
    REQUIRE(!taped.tape.end());
    REQUIRE(taped.step());
    CHECK(same(taped.dw, net.dw));
  }
  CHECK(measured);
}

TEST_CASE("mistakes in descriptions and steps are told with the kernel's name") {
  const auto nothing = [](const TapeCall<float>&) {};
  const auto step = [] { return Result<Array<View<const float>>>(Error::say("no step")); };
  Cpu cpu;
  {
    Tape<> tape;
    static_cast<void>(tape.kernel(
        {.name = "head", .writes = {{"y", Shape(4), TapeOutputs::gradient}}, .saves = {"y"}},
        nothing));
    CHECK(says(tape.start(cpu, {.percent = 50}, step),
               "output y of kernel 0 (head) asks for a gradient, and no kernel reads it"));
  }
  {
    Tape<> tape;
    const auto pair = tape.kernel<2>({.name = "norm", .writes = {{"y", Shape(4)}}}, nothing);
    static_cast<void>(pair);
    CHECK(says(tape.start(cpu, {.percent = 50}, step),
               "kernel 0 (norm) writes 1 activations, and kernel<2>"));
  }
  {
    Tape<> tape;
    static_cast<void>(
        tape.kernel({.name = "late", .reads = {3}, .writes = {{"y", Shape(4)}}}, nothing));
    CHECK(says(tape.start(cpu, {.percent = 50}, step), "kernel 0 (late) reads activation 3"));
  }
  Taped taped(3);
  CHECK(says(taped.tape.begin(taped.cpu), "start() has not planned it yet"));
  CHECK(says(taped.tape.end(), "start() has not planned it yet"));
  CHECK(says(taped.tape.end(), "start() has not planned it yet"));
  CHECK(taped.tape.backward_workspace().empty());
  CHECK(says(taped.tape.error(), "start() has not planned it yet"));
  CHECK(taped.tape.arena_bytes() == 0);
  CHECK(says(taped.start({}), "takes a budget"));
  CHECK(says(taped.start({.percent = 50, .budget_bytes = 1 << 20}), "takes a budget"));
  taped.length = 2;
  CHECK(says(taped.start({.percent = 100}), "runs 4 of 6 kernels: it has to run all"));
  taped.length = 3;
  REQUIRE(!taped.start({.percent = 100}));
  REQUIRE(!taped.tape.begin(taped.cpu));
  CHECK(says(taped.tape.run(2, 4), "kernel 0 is the next one, and there are 6"));
  CHECK(taped.tape.end());
  REQUIRE(!taped.tape.begin(taped.cpu));
  CHECK(says(taped.tape.backward(3), "no kernel has run in this step"));
  CHECK(taped.tape.end());
  REQUIRE(!taped.tape.begin(taped.cpu));
  REQUIRE(!taped.tape.run());
  CHECK(taped.tape.grad(taped.z[0]).data() == nullptr);
  CHECK(says(taped.tape.end(), "activation 0 (z) has no gradient"));
  const auto backwards = [&](int first, int second) {
    REQUIRE(!taped.tape.begin(taped.cpu));
    REQUIRE(!taped.tape.run());
    REQUIRE(!taped.tape.backward(first));
    return taped.tape.backward(second);
  };
  CHECK(says(backwards(2, 3),
             "the backward of kernel 3 (loss) comes behind that of kernel 2 (cell)"));
  CHECK(taped.tape.end());
  REQUIRE(!backwards(5, 4));
  CHECK(taped.tape.grad(taped.h[0]).data() == nullptr);
  CHECK(
      says(taped.tape.end(),
           "the gradient of activation 1 (h) begins with the backward of kernel 2 (cell), the last "
           "reader, which is to come"));
  REQUIRE(!backwards(5, 0));
  CHECK(taped.tape.grad(taped.h[2]).data() == nullptr);
  CHECK(
      says(taped.tape.end(),
           "the gradient of activation 7 (h) is gone: the backward of kernel 4 (cell), the maker"));
  CHECK(taped.tape.kernel({.name = "late", .writes = {{"y", Shape(4)}}}, nothing) == -1);
  CHECK(says(taped.tape.begin(taped.cpu), "kernel 6 (late) is added after start()"));
}

TEST_CASE("a tape that keeps nothing is refused, and may still be described") {
  Tape<> tape;
  Cpu cpu;
  float dh[row];
  const auto start = [&] {
    return tape.start(cpu, {.percent = 100}, [&] { return step_of_one(tape, cpu, 0, dh, row); });
  };
  CHECK(says(start(), "the tape has 0 kernels, and none of them writes an activation"));
  const auto ones = [](const TapeCall<float>& k) {
    for (int i = 0; i < row; ++i) k.out(0).data()[i] = 1;
  };
  static_cast<void>(tape.kernel(
      {.name = "ones", .writes = {{"h", Shape(rows, channels)}}, .saves = {"h"}}, ones));
  const Error why = start();
  CHECK_MESSAGE(!why, words(why));
}

TEST_CASE("a callable that asks for more than the kernel reads or writes fails the step") {
  Taped taped(8);
  REQUIRE(!taped.start({.percent = 60}));
  const char* const mistake = "kernel cell asks for out(2), and writes 2 of them";
  taped.asks = 3;
  REQUIRE(!taped.tape.begin(taped.cpu));
  CHECK(says(taped.tape.run(), mistake));
  CHECK(says(taped.tape.end(), mistake));
  taped.asks = 9;  // when backward computes outputs again
  CHECK(says(taped.step().error, mistake));
  REQUIRE(taped.step());
}

TEST_CASE("a callable that relies on memory that nobody wrote is found before the first step") {
  Net net(1);
  Tape<> tape;
  Cpu cpu;
  float dh[row];
  const int h =
      tape.kernel({.name = "sum", .writes = {{"h", Shape(rows, channels)}}, .saves = {"h"}},
                  [&](const TapeCall<float>& k) {
                    for (int i = 0; i < row - 1; ++i)
                      k.out(0).data()[i] = net.x[static_cast<std::size_t>(i)];
                  });
  const auto step = [&] { return step_of_one(tape, cpu, h, dh, row - 1); };
  const Error why = tape.start(cpu, {.percent = 100, .check = true}, step);
  CHECK_MESSAGE(says(why, "what its memory held before"), words(why));
}

TEST_CASE("a kernel that changes memory when it runs again is found, if that memory is watched") {
  for (const bool watched : {true, false})
    for (const bool once : {true, false}) {
      Tape<> tape;
      Cpu cpu;
      float running = 0, dh[row];
      if (watched)
        tape.watch("the running mean",
                   {reinterpret_cast<const std::byte*>(&running), Shape(sizeof running)});
      const int h = tape.kernel(
          {.name = "norm", .writes = {{"h", Shape(rows, channels)}}, .saves = {"h"}, .once = once},
          [&](const TapeCall<float>& k) {
            for (int i = 0; i < row; ++i) k.out(0).data()[i] = static_cast<float>(i);
            running = 0.9F * running + 0.1F;
          });
      const auto step = [&] { return step_of_one(tape, cpu, h, dh, row); };
      const Error why = tape.start(cpu, {.percent = 100, .check = true}, step);
      if (watched && !once)
        CHECK_MESSAGE(
            says(why, "recomputing h changes the running mean, which forward changed already"),
            words(why));
      else CHECK_MESSAGE(!why, words(why));
    }
}

}  // namespace tape_test
