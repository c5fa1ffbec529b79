// SPDX-License-Identifier: MIT
// What a codec says of its own blob that rows are lost is kept otherwise, where the arena has room for it.
#include <doctest/doctest.h>

#include <adacc/codec/bf16.hpp>
#include <adacc/codec/codec_list.hpp>

#include <string>
#include <vector>

#include "../rough_codec.hpp"
#include "../test_size.hpp"
#include "step_run.hpp"

namespace declining_test {

using namespace adacc;
using namespace step_run;
using rough::Content;
using rough::Fine;
using rough::Fussy;
using rough::Gloomy;
using rough::Picky;
using rough::Rough;

namespace {

/// y = x, but every other row is much smaller than the one before it. Where it takes more bytes for itself
/// than what comes behind it, it leaves room in the arena.
struct Uneven {
  std::size_t bytes = 0;
  static constexpr const char* name = "uneven";
  static constexpr auto backward_reads = reads::none;
  static constexpr Reads reads_when(Wanted) { return reads::none; }
  constexpr LayerNeeds needs(Shape, NeedsQuery query) const {
    return {.workspace = query.pass == Pass::forward ? bytes : 0};
  }

  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    std::memset(call.workspace.data(), 0x11, call.workspace.size());
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] = call.x[i] * (i / call.x.cols() % 2 == 0 ? T(1) : T(1e-3));
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    for (std::size_t i = 0; !call.dx.empty() && i < call.dx.size(); ++i) call.dx[i] = call.dy[i];
  }
};

/// y = x, with a step's worst instruction.
struct Bulky {
  static constexpr const char* name = "bulky";
  static constexpr auto backward_reads = reads::none;
  static constexpr LayerNeeds needs(Shape in, NeedsQuery query) {
    return {.workspace = query.pass == Pass::forward ? 4 * in.elems() * bytes_of(query.scalar) : 0};
  }

  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    std::memset(call.workspace.data(), 0x11, call.workspace.size());
    std::memcpy(call.y.data(), call.x.data(), call.x.size() * sizeof(T));
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    std::memcpy(call.dx.data(), call.dy.data(), call.dy.size() * sizeof(T));
  }
};

/// y = x |x|, whose backward tolerates `Codecs` on its input.
template <class... Codecs>
struct Square {
  static constexpr const char* name = "square";
  static constexpr auto split = Split::rows;
  static constexpr auto backward_reads = reads::input;
  using input_codecs = CodecList<Codecs...>;
  template <class T>
  void forward(Cpu&, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * (x[i] < 0 ? -x[i] : x[i]);
  }
  template <class T>
  void backward(Cpu&, View<const T> x, View<const T> dy, View<T> dx) const {
    for (std::size_t i = 0; i < x.size(); ++i) dx[i] = dy[i] * 2 * (x[i] < 0 ? -x[i] : x[i]);
  }
};

using random_model::HalfSquare;
using random_model::Shift;
constexpr Shape shape(64, 32);
constexpr std::size_t raw = 64 * 32 * sizeof(float);

/// Two activations go through `Codec`, both of which are uneven. About `spare` bytes of the arena are free
/// while they wait.
template <class Codec, class... Others>
auto net_of(std::size_t spare) {
  using Reader = Square<Codec, Others...>;
  using Net =
      Network<Sequential<Layer<Shift>, Layer<Uneven, Compress<Codec>>,
                         Layer<Reader, Compress<Codec>>, Layer<Reader>, Layer<Bulky>, Layer<Shift>>,
              HalfSquare>;
  return Net{{{}, {Uneven{5 * raw + spare}}, {}, {}, {}, {}}, {}};
}
constexpr int first = 1, second = 2;

struct Ran : Outcome {
  Declined of_first, of_second;
  DeclinedCounts counts;
  std::size_t peak = 0;
};

Result<double> sliced(Step<>& step, Cpu& cpu, View<const float> x, View<const float> y,
                      std::size_t parts) {
  auto cursor = Cursor<>::make(step);
  if (const Error why = cursor->begin(x, y)) return why;
  for (;;) {
    const auto slice = cursor->run(cpu, parts);
    if (!slice) return slice.error;
    if (slice->ended) return cursor->loss();
  }
}

/// A step; what it uses of the arena, over several patterns of what was there.
template <class Net>
Ran run(const Net& net, const Program& program, int workers = 1, bool judges = true,
        std::size_t slice = 0) {
  Ran ran;
  ran.peak = program.peak_bytes();
  std::size_t used = 0;
  for (const int pattern : {0x5A, 0xC3, 0x7E}) {
    static_cast<Outcome&>(ran) = run_program(
        net, program, workers, pattern,
        [&](Step<>& step, Cpu& cpu, View<const float> x, View<const float> y) -> Result<double> {
          step.judge_encodes(judges);
          const Result<double> loss =
              slice == 0 ? step.run(cpu, x, y) : sliced(step, cpu, x, y, slice);
          ran.of_first = step.declined(first);
          ran.of_second = step.declined(second);
          ran.counts = step.declined_counts();
          return loss;
        });
    if (ran.used > used) used = ran.used;
    CHECK(ran.guard_intact);
  }
  ran.used = used;
  return ran;
}

template <class Net>
Program program_of(const Net& net, const GraphOptions& options = {}) {
  auto program = make_program(net, shape, options);
  REQUIRE_MESSAGE(program, program.error.text());
  return *program;
}
template <class Net>
Program retained(const Net& net) {
  const Program program = program_of(net);
  return *make_program(program.graph, retain_all(program.graph));
}

}  // namespace

TEST_CASE("what loses rows is kept exactly where there is room, in an arena as large as promised") {
  const auto net = net_of<Rough>(16 * raw);
  const Program program = program_of(net);
  const Ran exact = run(net, retained(net)), ran = run(net, program);
  CHECK(ran.of_first.kept == KeptAs::exactly);
  CHECK(ran.of_second.kept == KeptAs::exactly);
  CHECK(ran.counts == DeclinedCounts{2, 0, 0});
  CHECK(ran.of_first.errors.rows == 64);
  CHECK(ran.of_first.errors.over == 32);
  CHECK(ran.of_first.errors.worst > 0.9);
  CHECK(same_bits(ran, exact));
  CHECK(ran.used == ran.peak);
  // As the plan has it, the gradient is another one.
  const Ran blind = run(net, program, 1, false);
  CHECK(blind.counts.total() == 0);
  CHECK(blind.of_first.errors.rows == 0);
  CHECK_FALSE(same_bits(blind, exact));
  CHECK(blind.used == blind.peak);
}

TEST_CASE("neither threads nor slices make a difference") {
  for (const std::size_t spare : {std::size_t{0}, raw / 2, raw, 3 * raw, 16 * raw})
    for (const int parts : {1, 5}) {
      CAPTURE(spare);
      CAPTURE(parts);
      const auto net = net_of<Rough, Bf16>(spare);
      const Program program = program_of(net, {.workers = 3, .parts = parts});
      const Ran one = run(net, program);
      CHECK(one.counts.total() == 2);
      for (const int workers : {2, 3}) CHECK(same_bits(one, run(net, program, workers)));
      for (const std::size_t slice : {std::size_t{1}, std::size_t{3}}) {
        const Ran sliced = run(net, program, 1, true, slice);
        CHECK(same_bits(one, sliced));
        CHECK(sliced.counts == one.counts);
        CHECK(sliced.of_first.errors.over == one.of_first.errors.over);
      }
    }
}

TEST_CASE("with less room the next milder codec keeps it, and with none the report says so") {
  bool milder = false, over = false, exactly = false, mixed = false;
  for (std::size_t spare = 0; spare <= 8 * raw; spare += raw / 8) {
    CAPTURE(spare);
    const auto net = net_of<Rough, Gloomy, Bf16>(spare);
    const Program program = program_of(net);
    const Ran ran = run(net, program);
    CHECK(ran.counts.total() == 2);
    CHECK(ran.used == ran.peak);
    for (const Declined& of : {ran.of_first, ran.of_second}) {
      CHECK(of.errors.over == 32);
      CHECK((of.codec != nullptr) == (of.kept == KeptAs::milder));
      // Gloomy is milder than Rough and rougher than Bf16, and never passes.
      if (of.codec != nullptr) CHECK(of.codec == &codec_info<Bf16>);
    }
    milder = milder || ran.counts.milder == 2;
    exactly = exactly || ran.counts.exactly == 2;
    // Two that want the same room: the first has it.
    mixed =
        mixed || (ran.of_first.kept == KeptAs::exactly && ran.of_second.kept != KeptAs::exactly);
    if (ran.counts.milder == 2) {
      Plan plan = program.plan;
      plan.policies[first] = plan.policies[second] = compress(&codec_info<Bf16>);
      CHECK(same_bits(ran, run(net, *make_program(program.graph, plan))));
    }
    if (ran.counts.over_bound == 2) {
      over = true;
      CHECK(same_bits(ran, run(net, program, 1, false)));
    }
  }
  CHECK(milder);
  CHECK(exactly);
  CHECK(mixed);
  CHECK(over);
}

TEST_CASE("a milder codec that does not pass leaves the blob that was planned") {
  std::size_t tried = 0;
  for (std::size_t spare = 0; spare <= 2 * raw; spare += raw / 8) {
    CAPTURE(spare);
    const auto net = net_of<Rough, Gloomy>(spare);
    const Program program = program_of(net);
    const Ran ran = run(net, program);
    if (ran.counts.over_bound != 2) continue;
    ++tried;
    CHECK(same_bits(ran, run(net, program, 1, false)));
  }
  CHECK(tried >= 4);
}

TEST_CASE("what passes has the bits of steps in which nobody judges") {
  using Net = Network<Sequential<Layer<Shift>, Layer<Square<Rough>, Compress<Rough>>,
                                 Layer<Square<Rough>>, Layer<Shift>>,
                      HalfSquare>;
  const Net net{};
  const Program program = program_of(net);
  REQUIRE(program.declinables.size() == 1);
  const Ran ran = run(net, program);
  CHECK(ran.counts.total() == 0);
  CHECK(ran.of_first.kept == KeptAs::as_planned);
  CHECK(ran.of_first.errors.rows == 64);
  CHECK(same_bits(ran, run(net, program, 1, false)));
}

TEST_CASE(
    "programs without such codecs have nothing to decline, and what step has no code for is said") {
  const auto net = net_of<Bf16>(0);
  CHECK(program_of(net).declinables.empty());
  const auto judged = net_of<Rough>(0);
  CHECK(detail::needs_declining(program_of(judged)));
  const auto made =
      Step<float, Cpu, StepAbilities<true, true, true, true>>::make(judged, program_of(judged));
  REQUIRE_FALSE(made);
  CHECK(std::string(made.error.text()) ==
        "the program has codecs that judge their rows, and this Step has no code for that (its "
        "Abilities)");
}

TEST_CASE("a step that follows another begins anew") {
  const auto net = net_of<Rough>(16 * raw);
  const Program program = program_of(net);
  auto step = Step<>::make(net, program);
  REQUIRE(step);
  const std::size_t elems = step->graph().parameter_elems;
  Aligned arena(step->arena_bytes()), params(elems * 4), gradients(elems * 4), x(raw);
  std::memset(params.data, 0, params.size);
  auto* const values = reinterpret_cast<float*>(x.data);
  REQUIRE_FALSE(step->bind({arena.data, Shape(step->arena_bytes())},
                           {reinterpret_cast<float*>(params.data), Shape(elems)},
                           {reinterpret_cast<float*>(gradients.data), Shape(elems)}));
  const View<const float> input(values, shape);
  Cpu cpu;
  const auto gradients_of = [&] {
    std::memset(gradients.data, 0, gradients.size);
    REQUIRE(step->run(cpu, input, input));
    return std::vector<std::byte>(gradients.data, gradients.data + elems * 4);
  };
  const auto uneven = [&] {
    for (std::size_t i = 0; i < 64 * 32; ++i) values[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
  };
  uneven();
  const auto declined = gradients_of();
  CHECK(step->declined_counts().exactly == 2);
  CHECK(step->program().exact[first]);
  // Small rows are zero here: none is lost.
  for (std::size_t i = 0; i < 64 * 32; ++i)
    if (i / 32 % 2 == 1) values[i] = 0;
  gradients_of();
  CHECK(step->declined_counts().total() == 0);
  CHECK(step->declined(first).errors.rows == 64);
  CHECK_FALSE(step->program().exact[first]);
  uneven();
  CHECK(gradients_of() == declined);
  CHECK(step->program().exact[first]);
}

TEST_CASE("random networks: the gradients of a plan that has in it what became of each activation" *
          doctest::test_suite("one_thread")) {
  DeclinedCounts all;
  std::size_t tiles = 0, by_parts = 0, mixed = 0, for_unlike_rows = 0;
  constexpr unsigned share = test_sanitized ? 4 : 1;
  for (unsigned seed = 0; seed < 400 / share; ++seed) {
    CAPTURE(seed);
    const auto network = random_model::draw(seed, false);
    const Shape in(8 + seed % 60, 2 * (1 + seed % 7));
    const int parts = 1 + static_cast<int>(seed % 5);
    auto made = make_program(network, in, {.workers = 3, .parts = parts});
    REQUIRE(made);
    std::mt19937 random(seed);
    Plan plan = made->plan;
    for (std::size_t k = 0; k + 1 < plan.policies.size(); ++k)
      if (random() % 2 == 0)
        plan.policies[k] = compress((seed + k) % 5 == 0 ? &codec_info<Fussy> : &codec_info<Picky>);
    // Gloomy's blobs are tried, and never stay; Fine's do.
    const std::size_t gloomy = made->graph.candidates.size();
    made->graph.candidates.push_back(&codec_info<Gloomy>);
    made->graph.candidates.push_back(&codec_info<Fine>);
    for (Node& node : made->graph.nodes) {
      const std::size_t begin = gloomy + random() % 2;
      node.candidates = {begin, begin + 1 + (begin == gloomy ? random() % 2 : 0)};
    }
    auto program = make_program(made->graph, plan);
    if (!program || program->declinables.empty()) continue;
    // Most leave little room: some of these get more, as who lends a larger arena might.
    const std::size_t more = seed % 3 == 0 ? 0 : random() % (seed % 3 == 1 ? 8 * KiB : 64 * KiB);
    program->layout.arena_bytes += more;
    DeclinedCounts counts;
    Plan became = plan;
    const auto outcome_of = [&](const Program& of, int workers, int pattern, std::size_t slice,
                                bool judges = true) {
      auto table = make_dispatch<float, Cpu>(network);
      table.add_codec<Picky>();
      table.add_codec<Fussy>();
      table.add_codec<Fine>();
      table.add_codec<Gloomy>();
      return run_made(
          Step<>::make(static_cast<Dispatch<float, Cpu>&&>(table), of), of, workers, pattern,
          [&](Step<>& step, Cpu& cpu, View<const float> x, View<const float> y) -> Result<double> {
            step.judge_encodes(judges);
            if (slice > 0) return sliced(step, cpu, x, y, slice);
            const auto loss = step.run(cpu, x, y);
            if (!judges) return loss;
            counts = step.declined_counts();
            for (std::size_t k = 0; k < plan.policies.size(); ++k) {
              const Declined now = step.declined(static_cast<int>(k));
              if (now.kept == KeptAs::exactly) became.policies[k] = retain();
              if (now.kept == KeptAs::milder) became.policies[k] = compress(now.codec);
              for_unlike_rows += now.codec == &codec_info<Content> ? 1 : 0;
              // Only where the activation is never in memory as a whole.
              const bool fussy = plan.policies[k].codec() == &codec_info<Fussy>;
              const Declinable* const mine =
                  find_declinable(step.program().declinables, static_cast<int>(k));
              if (fussy && mine != nullptr && mine->movable) CHECK(now.kept != KeptAs::over_bound);
            }
            return loss;
          });
    };
    std::size_t used = 0;
    Outcome ran;
    for (const int pattern : {0x5A, 0xC3, 0x7E}) {
      ran = outcome_of(*program, 1, pattern, 0);
      CHECK(ran.guard_intact);
      used = ran.used > used ? ran.used : used;
    }
    if (more == 0) CHECK(used == program->peak_bytes());
    CHECK(same_bits(ran, outcome_of(*program, 3, 0x5A, 0)));
    CHECK(same_bits(ran, outcome_of(*program, 2, 0x5A, 1 + seed % 3)));
    const auto other = make_program(program->graph, became);
    REQUIRE_MESSAGE(other, other.error.text());
    CHECK(same_bits(ran, outcome_of(*other, 1, 0x5A, 0, false)));
    all = all + counts;
    mixed += counts.exactly > 0 && counts.milder > 0 && counts.over_bound > 0 ? 1 : 0;
    for (const Declinable& one : program->declinables) {
      tiles += one.movable ? 0 : 1;
      by_parts += one.movable && one.by_parts ? 1 : 0;
    }
  }
  CHECK(all.exactly > 500 / share);
  CHECK(all.milder > 100 / share);
  CHECK(all.over_bound > 500 / share);
  CHECK(mixed > 20 / share);
  CHECK(for_unlike_rows > 100 / share);
  CHECK(tiles > 100 / share);
  CHECK(by_parts > 100 / share);
}

}  // namespace declining_test
