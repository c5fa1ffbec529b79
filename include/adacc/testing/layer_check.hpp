// SPDX-License-Identifier: MIT
/// The check of a layer functor against its contract; see gradient_check.hpp.
///
/// Every promise has a run of its own, which differs from the first run in one thing: old contents of memory, place of
/// dx, number of workers. So a failure names its cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/cpu.hpp"
#include "check_base.hpp"
#include "permuted_executor.hpp"
#include "split_check.hpp"

namespace adacc { inline namespace v0_1 { namespace testing::detail {

template <class F>
class LayerCheck : CheckBase {
  using X = input_type_of<F, double>;
  using Traits = layer_traits<F>;
  static constexpr bool tokens = !std::is_same_v<X, double>;
  static_assert(!tokens || std::is_same_v<X, std::int32_t>,
                "adacc: gradient_check knows layers whose input_type is the scalar or int32_t");

 public:
  LayerCheck(const F& f, Shape in, const GradientCheckOptions& options)
      : CheckBase(options), f_(f), in_(in) {}

  GradientCheckResult run() {
    if (prepare()) {
      const bool trained = check_mode(true);
      if (trained) check_mode(false);
    }
    return finish();
  }

 private:
  /// Old contents of memory, and forms of the calls.
  struct How {
    unsigned char y_fill = 0xFF;
    unsigned char dx_fill = 0xFF;
    unsigned char workspace_fill = 0xFF;
    double gradient_start = 0;
    bool in_place = false;
    bool without_dx = false;
    bool again = false;  ///< forward runs twice, the second time with aux_holds
    Wanted wanted{};
  };
  struct Computed {
    GuardedBlock y{0}, aux{0}, dx{0}, gradients{0};
  };

  bool prepare() {
    const Error invalid = Traits::needs(f_, in_, {Dtype::f64}).error;
    if (invalid) return fail(invalid);
    out_ = Traits::output_shape(f_, in_);
    if (in_.elems() == 0 || out_.elems() == 0)
      return fail(Error::say("the input or the output has no elements"));
    place_parameters(f_, in_);
    x_ = GuardedBlock(in_.elems() * sizeof(X));
    if constexpr (tokens) {
      if (!options_.tokens.empty() && options_.tokens.size() != in_.elems())
        return fail(Error::say("options.tokens has ", options_.tokens.size(),
                               " elements, the "
                               "input shape ",
                               in_.elems()));
      std::size_t vocab = options_.vocab;
      if constexpr (requires { f_.vocab; }) {
        if (vocab == 0) vocab = static_cast<std::size_t>(f_.vocab);
      }
      if (vocab == 0) vocab = 2;
      const RandomKey tokens_key{options_.seed, 0, 0, 1, Purpose::probe};
      for (std::size_t i = 0; i < in_.elems(); ++i)
        x_.as<X>()[i] = options_.tokens.empty() ? static_cast<X>(random_word(tokens_key, i) % vocab)
                                                : options_.tokens[i];
    } else {
      if (!options_.x.empty() && options_.x.size() != in_.elems())
        return fail(Error::say("options.x has ", options_.x.size(), " elements, the input shape ",
                               in_.elems()));
      fill_normal(x_.as<double>(), in_.elems(), options_.seed, 1, options_.input_scale);
      for (std::size_t i = 0; i < options_.x.size(); ++i) x_.as<double>()[i] = options_.x[i];
    }
    kept_x_ = copy(x_);
    dy_ = GuardedBlock(out_.elems() * sizeof(double));
    fill_normal(dy_.as<double>(), out_.elems(), options_.seed, 2, 1);
    kept_dy_ = copy(dy_);
    return true;
  }

  Cpu context(bool training) const {
    Cpu cpu;
    cpu.training = training;
    cpu.key = key();
    cpu.lengths = options_.lengths;
    return cpu;
  }

  GuardedBlock workspace(const Cpu& cpu, Pass pass, unsigned char fill) const {
    return GuardedBlock(Traits::needs(f_, in_, {Dtype::f64, cpu.workers(), pass}).workspace, fill);
  }

  std::size_t packed(Pass pass) const {
    return Traits::needs(f_, in_, {Dtype::f64, 1, pass}).packed;
  }

  bool within(const GuardedBlock& block, const char* call, const char* what) {
    if (block.intact()) return true;
    return fail(Error::say(call, " wrote outside ", what, ", which has ", block.size(), " bytes"));
  }

  bool forward(Cpu& cpu, GuardedBlock& y, GuardedBlock& aux, unsigned char workspace_fill,
               bool again = false) {
    GuardedBlock scratch = workspace(cpu, Pass::forward, workspace_fill);
    call_forward(f_, cpu,
                 ForwardCall<double, X>{.x = {x_.template as<X>(), in_},
                                        .y = {y.as<double>(), out_},
                                        .params = parameters(),
                                        .aux = aux.bytes(),
                                        .workspace = scratch.bytes(),
                                        .again = again,
                                        .aux_holds = again});
    return within(scratch, "forward", "its workspace") && within(y, "forward", "y") &&
           within(aux, "forward", "aux");
  }

  bool run(Cpu cpu, const How& how, Computed& computed) {
    const std::size_t y_bytes = out_.elems() * sizeof(double);
    const std::size_t dx_bytes = tokens ? 0 : in_.elems() * sizeof(double);
    computed.y = GuardedBlock(y_bytes, how.y_fill);
    computed.aux = GuardedBlock(Traits::needs(f_, in_, {Dtype::f64}).aux);
    computed.dx = how.in_place ? copy(dy_) : GuardedBlock(dx_bytes, how.dx_fill);
    computed.gradients = gradient_block(how.gradient_start);
    if (!forward(cpu, computed.y, computed.aux, how.workspace_fill)) return false;
    if (how.again) {
      computed.y = GuardedBlock(y_bytes, how.y_fill);
      if (!forward(cpu, computed.y, computed.aux, how.workspace_fill, true)) return false;
    }

    // Tensors not read by backward are empty; code that reads them anyway finds NaN.
    const Reads reads = Traits::reads_when(f_, how.wanted);
    const bool reads_x = reads_input(reads), reads_y = reads_output(reads);
    const GuardedBlock no_x(in_.elems() * sizeof(X)), no_y(y_bytes);
    const View<const X> x(reads_x ? x_.as<X>() : no_x.as<X>(), reads_x ? in_ : Shape());
    const View<const double> y(reads_y ? computed.y.template as<double>() : no_y.as<double>(),
                               reads_y ? out_ : Shape());
    const View<const double> dy(how.in_place ? computed.dx.template as<double>() : dy_.as<double>(),
                                out_);
    const bool wants_dx = !tokens && !how.without_dx && how.wanted.dx;
    const View<double> dx =
        wants_dx ? View<double>(computed.dx.template as<double>(), in_) : View<double>();
    const GuardedBlock y_before = copy(computed.y), aux_before = copy(computed.aux);
    const bool has_dx = wants_dx || tokens || !Traits::has_reads_when;
    GuardedBlock scratch =
        workspace(cpu, has_dx ? Pass::backward : Pass::backward_without_dx, how.workspace_fill);
    call_backward(f_, cpu,
                  BackwardCall<double, X>{.x = x,
                                          .y = y,
                                          .dy = dy,
                                          .dx = dx,
                                          .params = parameters(),
                                          .dparams = gradients(computed.gradients),
                                          .aux = computed.aux.bytes(),
                                          .workspace = scratch.bytes()});
    if (!within(scratch, "backward", "its workspace") || !within(computed.dx, "backward", "dx") ||
        !within(computed.aux, "backward", "aux"))
      return false;
    if (!gaps_intact(computed.gradients))
      return fail(Error::say("backward wrote outside a parameter's gradient"));
    if (!(computed.y == y_before) || !(computed.aux == aux_before))
      return fail(Error::say("backward changed y or aux, which it may only read"));
    if (!(x_ == kept_x_) || !(values_ == kept_values_) || !(dy_ == kept_dy_) || !x_.intact() ||
        !values_.intact() || !dy_.intact())
      return fail(Error::say("forward or backward changed x, dy or a parameter"));
    return true;
  }

  bool check_mode(bool training) {
    const char* mode = training ? "" : " in evaluation";
    Computed base, other;
    const Cpu serial = context(training);
    if (!run(serial, {}, base)) return false;

    if (!run(serial, {.y_fill = 0x3F}, other)) return false;
    if (!(other.y == base.y) || !(other.aux == base.aux))
      return fail(
          Error::say("a second forward with the same input and key wrote other bits into "
                     "y or aux",
                     mode, ", or left some of y unwritten"));
    if (!run(serial, {.y_fill = 0x3F, .again = true}, other)) return false;
    if (!same(base, other))
      return fail(Error::say("a forward that was told that aux holds has other results", mode));
    if (!run(serial, {.workspace_fill = 0x3F}, other)) return false;
    if (!same(base, other))
      return fail(Error::say("the results depend on what the workspace held before", mode));
    if (!run(serial, {.dx_fill = 0x3F}, other)) return false;
    if (!(other.dx == base.dx))
      return fail(Error::say("dx depends on what it held before", mode,
                             ": backward must overwrite "
                             "all of it"));
    if (!run(serial, {.gradient_start = 1.5}, other)) return false;
    if (!check_accumulation(base.gradients, other.gradients, 1.5)) return false;
    if constexpr (!tokens && Traits::facts().dx_overwrites_dy) {
      if (in_.elems() != out_.elems())
        return fail(Error::say("dx_overwrites_dy is declared, but dx has ", in_.elems(),
                               " elements and dy ", out_.elems()));
      if (!run(serial, {.in_place = true}, other)) return false;
      if (!same(base, other))
        return fail(
            Error::say("dx_overwrites_dy is declared, but backward gives other bits if "
                       "dx is dy",
                       mode));
    }
    if constexpr (!tokens && Traits::has_reads_when) {
      if (!run(serial, {.without_dx = true}, other)) return false;
      if (!(other.gradients == base.gradients))
        return fail(
            Error::say("reads_when is declared, but without dx the parameter "
                       "gradients have other bits",
                       mode));
    }
    if constexpr (Traits::has_reads_when)
      if (!check_wanted(serial, base)) return false;
    if (!Traits::facts().draws_numbers && !check_key(training, base)) return false;
    if (!check_workers(training, base)) return false;

    // Finite differences in evaluation are news only if evaluation differs.
    if (training || !(base.y == trained_y_)) {
      compare(context(training), base);
      if (!result_.passed) return false;
    }
    if constexpr (Traits::split() != Split::none)
      if (!check_split(training, base)) return false;
    if (!run(serial, {}, other)) return false;
    if (!same(base, other))
      return fail(Error::say("the results changed after calls with other inputs", mode,
                             ": a layer keeps no state"));
    if (training) trained_y_ = copy(base.y);
    return true;
  }

  /// If some gradients are not wanted, the others keep their bits, with fewer tensors to read.
  bool check_wanted(const Cpu& cpu, const Computed& base) {
    Computed other;
    bool holds = true;
    for_each_choice([&](Wanted wanted) {
      const int read = static_cast<int>(Traits::reads_when(f_, wanted));
      if ((read & ~static_cast<int>(Traits::backward_reads())) != 0)
        holds = fail(Error::say("reads_when names more than backward_reads"));
      if (!holds || (tokens && wanted.dx)) return;
      holds = run(cpu, {.wanted = wanted}, other);
      if (holds &&
          !(same_wanted(other.gradients, base.gradients) && (!wanted.dx || other.dx == base.dx)))
        holds = fail(
            Error::say("reads_when is declared, but if some gradients are not wanted, others have "
                       "other bits"));
    });
    return holds;
  }

  /// A recording of kernels need not be made anew for another key.
  bool check_key(bool training, const Computed& base) {
    Cpu cpu = context(training);
    ++cpu.key.step;
    Computed other;
    if (!run(cpu, {}, other)) return false;
    return same(base, other) ||
           fail(Error::say("with another random key the results have other bits, and draws_numbers "
                           "is not declared"));
  }

  bool check_workers(bool training, const Computed& base) {
    for (const int workers : {1, 2, options_.workers}) {
      PermutedExecutor executor(workers, options_.seed);
      Cpu cpu{ExecutorRef(executor)};
      cpu.training = training;
      cpu.key = key();
      cpu.lengths = options_.lengths;
      Computed other;
      if (!run(cpu, {}, other)) return false;
      if (executor.nested() > 0)
        return fail(Error::say("a tile called parallel, which the executor contract forbids"));
      if (!same(base, other))
        return fail(Error::say("with ", workers, workers == 1 ? " worker" : " workers",
                               " and tiles in another order the results have other bits"));
    }
    return true;
  }

  /// In parts, a layer that can be split computes the same as whole, but for the order of sums. Numbers kept from part to
  /// part change no bit.
  bool check_split(bool training, const Computed& base) {
    for (const std::size_t parts : {std::size_t{2}, std::size_t{3}}) {
      Computed cut, kept;
      if (!run_in_parts(training, parts, false, base, cut)) return false;
      const double *a = cut.gradients.template as<double>(),
                   *b = base.gradients.template as<double>();
      bool close = nearly_same(cut.y, base.y) && nearly_same(cut.dx, base.dx);
      for (const Parameter& p : params_)
        close = close && nearly(a + p.offset, b + p.offset, p.shape.elems());
      if (!close)
        return fail(Error::say("split is ", name_of(Traits::split()), ", but ", parts,
                               " parts of the ", in_, " input do not add up to the whole"));
      if (packed(Pass::forward) + packed(Pass::backward) != 0) {
        if (!run_in_parts(training, parts, true, base, kept)) return false;
        if (!same(cut, kept))
          return fail(Error::say("with memory for packed weights, ", parts, " parts of the ", in_,
                                 " input have other bits than without"));
      }
    }
    return true;
  }

  bool run_in_parts(bool training, std::size_t parts, bool keeps, const Computed& base,
                    Computed& outcome) {
    outcome.y = GuardedBlock(base.y.size());
    outcome.dx = GuardedBlock(base.dx.size());
    outcome.gradients = gradient_block(0);
    SplitRun<F, X> run(
        f_, context(training),
        {parameters(),
         {x_.template as<X>(), in_},
         {dy_.as<double>(), out_},
         {outcome.y.template as<double>(), out_},
         tokens ? View<double>() : View<double>(outcome.dx.template as<double>(), in_),
         gradients(outcome.gradients)},
        parts, keeps);
    if (const Error why = run.run()) return fail(why);
    return gaps_intact(outcome.gradients) ||
           fail(Error::say("backward wrote outside a parameter's gradient"));
  }

  static bool nearly_same(const GuardedBlock& a, const GuardedBlock& b) {
    return nearly(a.as<double>(), b.as<double>(), b.size() / sizeof(double));
  }

  static bool same(const Computed& a, const Computed& b) {
    return a.y == b.y && a.aux == b.aux && a.dx == b.dx && a.gradients == b.gradients;
  }

  void compare(Cpu cpu, const Computed& base) {
    GuardedBlock y(base.y.size()), aux(base.aux.size());
    // Backward computes the gradient of sum(dy * y), the objective. The unchanged y is subtracted first: unchanged
    // elements then cancel exactly.
    const auto objective = [&] {
      forward(cpu, y, aux, 0xFF);
      double sum = 0;
      for (std::size_t i = 0; i < out_.elems(); ++i)
        sum += dy_.as<double>()[i] * (y.as<double>()[i] - base.y.template as<double>()[i]);
      return sum;
    };
    if constexpr (!tokens)
      compare_with_differences(result_, options_, "dx", x_.template as<double>(),
                               base.dx.template as<double>(), in_.elems(), objective);
    compare_parameters(base.gradients, objective);
  }

  const F& f_;
  Shape in_, out_;
  GuardedBlock x_{0}, dy_{0}, kept_x_{0}, kept_dy_{0}, trained_y_{0};
};

}}}  // namespace adacc::v0_1::testing::detail
