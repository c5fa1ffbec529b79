// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>

#include <cstring>
#include <vector>

namespace exact_test {

using namespace adacc;

namespace {

template <bool Lossless>
struct Halves {
  static constexpr const char* name = Lossless ? "lossless" : "lossy";
  static constexpr bool lossless = Lossless;
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype dtype) {
    return rows * cols * bytes_of(dtype);
  }
  template <class T>
  static Error encode(Cpu&, View<const T> x, Bytes blob) {
    std::memcpy(blob.data(), x.data(), x.size() * sizeof(T));
    return {};
  }
  template <class T>
  static Error decode(Cpu&, ConstBytes blob, View<T> x) {
    std::memcpy(x.data(), blob.data(), x.size() * sizeof(T));
    return {};
  }
};
using Lossy = Compress<Halves<false>>;
using Lossless = Compress<Halves<true>>;

/// What the backward of every Probe was told, last layer first.
std::vector<int> told;
/// What its forward was told of aux, in order.
std::vector<bool> holds;

struct Probe {
  static constexpr auto backward_reads = reads::both;
  void forward(Cpu&, const ForwardCall<float>& call) const {
    holds.push_back(call.aux_holds);
    std::memcpy(call.y.data(), call.x.data(), call.x.size() * sizeof(float));
  }
  void backward(Cpu&, const BackwardCall<float>& call) const {
    told.push_back((call.exact_input ? 1 : 0) + (call.exact_output ? 2 : 0));
    std::memmove(call.dx.data(), call.dy.data(), call.dy.size() * sizeof(float));
  }
};
struct Sum {
  static constexpr auto backward_reads = reads::none;
  void forward(Cpu&, View<const float> x, View<float> y) const {
    std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
  }
  void backward(Cpu&, View<const float> dy, View<float> dx) const {
    std::memmove(dx.data(), dy.data(), dy.size() * sizeof(float));
  }
};
struct Loss {
  double forward(Cpu&, const LossCall<float>&) const { return 0; }
  double forward_backward(Cpu&, const LossCall<float>& call) const {
    std::memset(call.dx.data(), 0, call.x.size() * sizeof(float));
    return 0;
  }
};

template <class Model>
Array<bool> exact() {
  const auto graph = make_graph(Network<Model, Loss>{}, Shape(4, 4));
  REQUIRE(graph);
  return exact_in_backward(*graph, plan_from_types(*graph));
}

}  // namespace

TEST_CASE("retained and losslessly compressed activations are exact, lossy ones are not") {
  const auto e = exact<Sequential<Layer<Probe, Retain>, Layer<Probe, Lossless>, Layer<Probe, Lossy>,
                                  Layer<Probe, Retain>>>();
  CHECK(e[0]);
  CHECK(e[1]);
  CHECK_FALSE(e[2]);
  CHECK(e[3]);
}

TEST_CASE("a recomputed activation inherits the error of all that it is made from") {
  const auto chain =
      exact<Sequential<Layer<Probe, Recompute>, Layer<Probe, Recompute>, Layer<Probe, Lossy>,
                       Layer<Probe, Recompute>, Layer<Probe, Recompute>, Layer<Probe, Retain>,
                       Layer<Probe, Recompute>>>();
  const bool expected[] = {true, true, false, false, false, true, true};
  for (std::size_t i = 0; i < 7; ++i) CHECK(chain[i] == expected[i]);

  // The sum's other source is lossy, its chain is not.
  const auto sum = exact<
      Sequential<Layer<Probe, Lossy>, Residual<Layer<Probe, Retain>, Layer<Sum, Recompute>>>>();
  CHECK(sum[1]);
  CHECK_FALSE(sum[2]);
  const auto exact_sum = exact<
      Sequential<Layer<Probe, Lossless>, Residual<Layer<Probe, Retain>, Layer<Sum, Recompute>>>>();
  CHECK(exact_sum[2]);
}

TEST_CASE("exactness is known in constant expressions") {
  constexpr auto lossy = [] {
    using Model = Sequential<Layer<Probe, Lossy>, Layer<Probe, Recompute>>;
    const auto graph = make_graph(Network<Model, Loss>{}, Shape(4, 4));
    return exact_in_backward(*graph, plan_from_types(*graph))[1];
  };
  static_assert(!lossy());
}

namespace {

/// One step; what the layers were told is in `told` and `holds`.
template <class Model>
void run_step() {
  const Network<Model, Loss> net{};
  const Shape shape(4, 4);
  auto program = make_program(net, shape);
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  std::vector<float> x(16, 1.0F);
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> arena(step->arena_bytes() / 64 + 1);
  REQUIRE_FALSE(step->bind({arena[0].bytes, Shape(64 * arena.size())}, View<const float>{}, {}));
  const View<const float> view(x.data(), shape);
  told.clear();
  holds.clear();
  Cpu cpu;
  REQUIRE(step->run(cpu, view, view));
}

}  // namespace

TEST_CASE("every layer's backward is told whether what it reads is exact") {
  // The third runs forward again on what backward reads, so its output belongs to its input.
  run_step<Sequential<Layer<Probe, Retain>, Layer<Probe, Lossy>, Layer<Probe, Recompute>,
                      Layer<Probe, Retain>, Layer<Probe, Lossless>>>();
  REQUIRE(told.size() == 5);
  CHECK(told[4] == 3);  // the first layer: the step's input is always exact
  CHECK(told[3] == 1);
  CHECK(told[2] == 3);
  CHECK(told[1] == 2);
  CHECK(told[0] == 3);
}

TEST_CASE("a forward that runs again is told whether aux is what it would write") {
  // Again run the last, on what came through a codec with loss, and then the second, on what was kept.
  run_step<Sequential<Layer<Probe, Retain>, Layer<Probe, Recompute>, Layer<Probe, Lossy>,
                      Layer<Probe, Recompute>>>();
  CHECK(holds == std::vector<bool>{false, false, false, false, false, true});
}

}  // namespace exact_test
