#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/train/evolving.hpp>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "../step/random_model.hpp"

namespace evolving_test {

using namespace adacc;

namespace {

/// Groups along rows: outlying channels beyond the few places widen every group's scale.
using RowInt8 = Int8OutlierWith<Int8Options{.group = whole_row}>;

/// y = x w; backward reads x.
struct Dense {
  static constexpr auto backward_reads = reads::input;
  using input_codecs = CodecList<RowInt8, Bf16>;
  static constexpr std::array<ParameterSpec, 1> parameters(Shape in) {
    return {{{"weight", Shape(in.cols(), in.cols()), Init::uniform(0.2F)}}};
  }
  template <class T>
  void forward(Cpu&, Params<const T> p, View<const T> x, View<T> y, Bytes, Bytes) const {
    const std::size_t n = x.cols();
    for (std::size_t r = 0; r < x.rows(); ++r) {
      const T *in = x.row(r), *w = p[0].data();
      T* out = y.row(r);
      for (std::size_t o = 0; o < n; ++o) out[o] = 0;
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t o = 0; o < n; ++o) out[o] += in[i] * w[i * n + o];
    }
  }
  template <class T>
  void backward(Cpu&, Params<const T> p, View<const T> x, View<const T>, View<const T> dy,
                View<T> dx, Params<T> dp, ConstBytes, Bytes) const {
    const std::size_t n = x.cols();
    for (std::size_t r = 0; r < x.rows(); ++r) {
      const T *in = x.row(r), *dout = dy.row(r), *w = p[0].data();
      T *din = dx.row(r), *dw = dp[0].data();
      for (std::size_t i = 0; i < n; ++i) {
        T sum = 0;
        for (std::size_t o = 0; o < n; ++o) {
          sum += dout[o] * w[i * n + o];
          dw[i * n + o] += in[i] * dout[o];
        }
        din[i] = sum;
      }
    }
  }
};

/// The step from which some channels grow, by a tenth of themselves a step.
std::uint32_t injected_from = 0;

struct GrowingChannels {
  static constexpr auto backward_reads = reads::none;
  static float factor(const Cpu& cpu, std::size_t channel) {
    if (channel % 9 != 4 || cpu.key.step < injected_from) return 1;
    return 1 + 0.1F * static_cast<float>(cpu.key.step - injected_from);
  }
  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor(cpu, i % x.cols());
  }
  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = dy[i] * factor(cpu, i % dy.cols());
  }
};

using Net =
    Network<Sequential<Layer<Dense>, Layer<Dense>, Layer<GrowingChannels>, Repeat<Layer<Dense>>>,
            random_model::HalfSquare>;
constexpr int victim = 2;
const Net net{{{}, {}, {}, Repeat<Layer<Dense>>{8, {}}}, {}};
const Shape shape(128, 64);

CostProfile profile(const Graph& of) {
  CostProfile made = empty_profile(of);
  for (int k = 0; k < of.node_count(); ++k) {
    made.nodes[static_cast<std::size_t>(k)] = {1e-2, 2e-2, 0, 0};
    made.codec_cost(k, made.column(&codec_info<RowInt8>)) = {1e-3 + 1e-6 * k, 1e-3, 1e-3, 2e-3};
    made.codec_cost(k, made.column(&codec_info<Bf16>)) = {0.8e-3 + 1e-6 * k, 0.8e-3, 1e-6, 2e-6};
  }
  // Here int8 is worth its error.
  made.codec_cost(victim, made.column(&codec_info<RowInt8>)).encode = 1e-5;
  made.codec_cost(victim, made.column(&codec_info<RowInt8>)).decode = 1e-5;
  return made;
}

struct Rig {
  EvolvingTraining<> training;
  std::vector<float> x, y;
  Result<Training<>::Outcome> step() {
    return training.step(View<const float>(x.data(), shape), View<const float>(y.data(), shape),
                         1e-4);
  }
};

std::size_t retain_bytes() {
  return make_program(*make_graph(net, shape), retain_all(*make_graph(net, shape)))->peak_bytes();
}

Rig rig(std::size_t budget, double tolerance, std::size_t arena_bytes = 0) {
  const auto graph = make_graph(net, shape);
  REQUIRE_MESSAGE(graph, graph.error.text());
  PlanRequest request;
  request.budget_bytes = budget;
  request.tolerance = tolerance;
  auto made = EvolvingTraining<>::make(net, shape, profile(*graph), request, &plan_exhaustively,
                                       Cpu{}, {}, arena_bytes);
  REQUIRE_MESSAGE(made, made.error.text());
  Rig rig{std::move(*made), std::vector<float>(shape.elems()), std::vector<float>(shape.elems())};
  for (std::size_t i = 0; i < rig.x.size(); ++i) {
    rig.x[i] = 2 * unit_float(random_word({.seed = 1}, i)) - 1;
    rig.y[i] = unit_float(random_word({.seed = 2}, i)) / 8;
  }
  return rig;
}

const CodecInfo* codec(const Rig& rig, int activation) {
  return rig.training.evolution().plan()[activation].codec();
}

}  // namespace

TEST_CASE("growing channel outliers drive their tensor, and it alone, off the codec that fails" *
          doctest::test_suite("one_thread")) {
  injected_from = 40;
  int alone = 0;
  for (const std::size_t percent : {60U, 74U, 92U}) {
    CAPTURE(percent);
    Rig r = rig(retain_bytes() * percent / 100, 1e-2);
    REQUIRE(codec(r, victim) == &codec_info<RowInt8>);
    const Evolution& evolution = r.training.evolution();
    std::uint64_t passed = 0, left = 0;
    for (std::uint64_t at = 0; at < 130; ++at) {
      const auto outcome = r.step();
      REQUIRE_MESSAGE(outcome, outcome.error.text());
      REQUIRE(outcome->finite);
      CHECK(r.training.training().updates == at + 1);
      CHECK(r.training.training().arena().size() == evolution.outcome().peak_bytes);
      CHECK(evolution.outcome().peak_bytes <= evolution.budget_bytes());
      const EvolutionUpdate& update = r.training.last_update();
      CHECK_MESSAGE(!update.failed, update.failed.text());
      if (passed == 0 && evolution.observed_error() > 2 * evolution.planned_error()) passed = at;
      if (!update.changed) continue;
      REQUIRE(left == 0);  // once and for all
      left = at;
      alone += update.changes.size() == 1 ? 1 : 0;
      bool victim_left = false;
      for (const PlanChange& change : update.changes) {
        CHECK(change.step == at);
        victim_left = victim_left || change.activation == victim;
        CHECK(change.reason ==
              (change.activation == victim ? ChangeReason::codec_failed : ChangeReason::made_room));
        if (change.activation == victim) continue;
        Plan undone = evolution.plan();
        undone.policies[static_cast<std::size_t>(change.activation)] = change.from;
        CHECK(make_layout(make_schedule(evolution.graph(), undone)).arena_bytes >
              evolution.budget_bytes());
      }
      CHECK(victim_left);
    }
    CHECK(passed >= injected_from);
    CHECK(left > passed);
    CHECK(left <= passed + 11);  // the check 10 steps later is the second, the boundary follows
  }
  CHECK(alone > 0);
}

TEST_CASE("without outliers nothing changes over 200 steps") {
  injected_from = 1000000;
  Rig r = rig(retain_bytes() * 60 / 100, 1e-2);
  for (int i = 0; i < 200; ++i) {
    REQUIRE(r.step());
    CHECK_FALSE(r.training.last_update().changed);
  }
}

TEST_CASE("a budget cut by half is honoured at the next step, a raise is used, no step is lost") {
  injected_from = 1000000;
  const std::size_t whole = retain_bytes();
  Rig r = rig(whole, 0), plain = rig(whole, 0);  // lossless: the bits must not notice
  for (int i = 0; i < 30; ++i) {
    CAPTURE(i);
    if (i == 10) r.training.set_budget(whole * 6 / 10);
    if (i == 20) r.training.set_budget(whole);
    if (i == 25) r.training.set_budget(100);
    const auto outcome = r.step(), expected = plain.step();
    REQUIRE(outcome);
    REQUIRE(expected);
    CHECK(outcome->loss == expected->loss);
    CHECK(outcome->grad_norm == expected->grad_norm);
    const std::size_t bytes = r.training.training().arena().size();
    CHECK(bytes == r.training.evolution().outcome().peak_bytes);
    CHECK(r.training.last_update().changed == (i == 10 || i == 20));
    CHECK(bytes <= (i >= 10 && i < 20 ? whole * 6 / 10 : whole));
    if (i >= 20) CHECK(bytes == plain.training.training().arena().size());
    const bool refused = static_cast<bool>(r.training.last_update().failed);
    CHECK(refused == (i == 25));
    if (refused)
      CHECK(std::string(r.training.last_update().failed.text()).find("that can be met is") !=
            std::string::npos);
  }
  const auto a = r.training.training().params(), b = plain.training.training().params();
  CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);

  // With codecs, half of it will do.
  Rig lossy = rig(whole, 1e-2);
  REQUIRE(lossy.step());
  lossy.training.set_budget(whole / 2);
  REQUIRE(lossy.step());
  CHECK(lossy.training.last_update().changed);
  CHECK(lossy.training.training().arena().size() <= whole / 2);
}

TEST_CASE("an arena that others borrow stays as large as they need it") {
  injected_from = 1000000;
  const std::size_t whole = retain_bytes();
  Rig r = rig(whole, 1e-2, 2 * whole);
  REQUIRE(r.step());
  r.training.set_budget(whole / 2);
  REQUIRE(r.step());
  CHECK(r.training.training().arena().size() == 2 * whole);
}

TEST_CASE("a step that was watched knows what every codec saw") {
  injected_from = 0;
  Rig r = rig(retain_bytes() * 60 / 100, 1e-2);
  for (int i = 0; i < 5; ++i) REQUIRE(r.step());
  const Step<>& step = r.training.training().compiled();
  for (int k = 0; k < step.graph().node_count(); ++k) {
    const CodecStatistics& seen = step.statistics(k);
    const bool reported =
        codec(r, k) == &codec_info<RowInt8> && step.graph().node(k).read_in_backward;
    CHECK(seen.elements == (reported ? shape.elems() : 0));
    if (reported) CHECK(seen.samples > 0);
  }
}

TEST_CASE("training goes on after a program that does not belong to it was refused") {
  injected_from = 1000000;
  Rig r = rig(retain_bytes(), 0);
  REQUIRE(r.step());
  const Network<Layer<Dense>, random_model::HalfSquare> small{};
  const auto other = make_program(small, shape);
  REQUIRE(other);
  CHECK(r.training.training().switch_to(*other));
  CHECK(r.step());
}

}  // namespace evolving_test
