// SPDX-License-Identifier: MIT
/// The check of a loss against its contract; see gradient_check.hpp. Built like a layer's check.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/cpu.hpp"
#include "check_base.hpp"
#include "permuted_executor.hpp"
#include "split_check.hpp"

namespace adacc { inline namespace v0_1 { namespace testing::detail {

template <class L>
class LossCheck : CheckBase {
  using Target = target_type_of<L, double>;
  using Call = LossCall<double, Target>;
  using Traits = layer_traits<L>;

 public:
  LossCheck(const L& loss, Shape in, View<const Target> targets,
            const GradientCheckOptions& options)
      : CheckBase(options), loss_(loss), in_(in), targets_(targets) {}

  GradientCheckResult run() {
    if (prepare()) examine();
    return finish();
  }

 private:
  struct How {
    unsigned char dx_fill = 0xFF;
    unsigned char workspace_fill = 0xFF;
    double gradient_start = 0;
    bool in_place = false;
  };
  struct Computed {
    double evaluated = 0, loss = 0;
    GuardedBlock dx{0}, gradients{0};
  };

  bool prepare() {
    const Error invalid = Traits::needs(loss_, in_, {Dtype::f64}).error;
    if (invalid) return fail(invalid);
    const Shape expected = Traits::target_shape(loss_, in_);
    if (in_.elems() == 0 || targets_.size() != expected.elems())
      return fail(Error::say("there are ", targets_.size(), " targets and ", in_.elems(),
                             " inputs; expected ", expected.elems(), " targets"));
    if (!options_.x.empty() && options_.x.size() != in_.elems())
      return fail(Error::say("options.x has ", options_.x.size(), " elements, the input shape ",
                             in_.elems()));
    place_parameters(loss_, in_);
    x_ = GuardedBlock(in_.elems() * sizeof(double));
    fill_normal(x_.as<double>(), in_.elems(), options_.seed, 1, options_.input_scale);
    for (std::size_t i = 0; i < options_.x.size(); ++i) x_.as<double>()[i] = options_.x[i];
    kept_x_ = copy(x_);
    return true;
  }

  Cpu context() const {
    Cpu cpu;
    cpu.key = key();
    return cpu;
  }

  bool evaluate(Cpu& cpu, unsigned char workspace_fill, double& loss) {
    GuardedBlock scratch(
        Traits::needs(loss_, in_, {Dtype::f64, cpu.workers(), Pass::forward}).workspace,
        workspace_fill);
    Cpu::Loss sum;
    sum.clear();
    call_loss(loss_, cpu,
              Call{.x = {x_.as<double>(), in_},
                   .targets = targets_,
                   .params = parameters(),
                   .workspace = scratch.bytes()},
              sum);
    loss = sum.value();
    if (scratch.intact()) return true;
    return fail(
        Error::say("forward wrote outside its workspace, which has ", scratch.size(), " bytes"));
  }

  bool run(Cpu cpu, const How& how, Computed& computed) {
    if (!evaluate(cpu, how.workspace_fill, computed.evaluated)) return false;
    computed.dx = how.in_place ? copy(x_) : GuardedBlock(in_.elems() * sizeof(double), how.dx_fill);
    computed.gradients = gradient_block(how.gradient_start);
    GuardedBlock scratch(
        Traits::needs(loss_, in_, {Dtype::f64, cpu.workers(), Pass::backward}).workspace,
        how.workspace_fill);
    const View<double> dx(computed.dx.template as<double>(), in_);
    const View<const double> x =
        how.in_place ? View<const double>(dx) : View<const double>(x_.as<double>(), in_);
    Cpu::Loss sum;
    sum.clear();
    call_loss_gradient(loss_, cpu,
                       Call{.x = x,
                            .targets = targets_,
                            .dx = dx,
                            .params = parameters(),
                            .dparams = gradients(computed.gradients),
                            .workspace = scratch.bytes()},
                       sum);
    computed.loss = sum.value();
    if (!scratch.intact())
      return fail(Error::say("forward_backward wrote outside its workspace, which has ",
                             scratch.size(), " bytes"));
    if (!computed.dx.intact())
      return fail(Error::say("forward_backward wrote outside dx, which has ", computed.dx.size(),
                             " bytes"));
    if (!gaps_intact(computed.gradients))
      return fail(Error::say("forward_backward wrote outside a parameter's gradient"));
    if (!(x_ == kept_x_) || !(values_ == kept_values_) || !x_.intact() || !values_.intact())
      return fail(Error::say("the loss changed x or a parameter"));
    return true;
  }

  static bool same(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }
  static bool same(const Computed& a, const Computed& b) {
    return same(a.evaluated, b.evaluated) && same(a.loss, b.loss) && a.dx == b.dx &&
           a.gradients == b.gradients;
  }

  bool examine() {
    const Cpu serial = context();
    Computed base, other;
    if (!run(serial, {}, base)) return false;
    if (!(std::fabs(base.loss - base.evaluated) <= 1e-9 * (1 + std::fabs(base.loss))))
      return fail(
          Error::say("forward and forward_backward return different losses, or ones that "
                     "are not finite"));
    if (!run(serial, {}, other)) return false;
    if (!same(base, other))
      return fail(Error::say("a second call with the same input and key gave other bits"));
    if (!run(serial, {.workspace_fill = 0x3F}, other)) return false;
    if (!same(base, other))
      return fail(Error::say("the results depend on what the workspace held before"));
    if (!run(serial, {.dx_fill = 0x3F}, other)) return false;
    if (!(other.dx == base.dx))
      return fail(
          Error::say("dx depends on what it held before: forward_backward must overwrite "
                     "all of it"));
    if (!run(serial, {.gradient_start = 1.5}, other)) return false;
    if (!check_accumulation(base.gradients, other.gradients, 1.5)) return false;
    if constexpr (Traits::facts().dx_overwrites_x) {
      if (!run(serial, {.in_place = true}, other)) return false;
      if (!same(base, other))
        return fail(
            Error::say("dx_overwrites_x is declared, but forward_backward gives other "
                       "bits if dx is x"));
    }
    if constexpr (Traits::has_reads_when) {
      bool holds = true;
      for_each_choice([&](Wanted wanted) {
        if (!holds || !wanted.dx) return;
        holds = run(serial, {}, other);
        if (holds && !(other.dx == base.dx && same_wanted(other.gradients, base.gradients)))
          holds = fail(
              Error::say("reads_when is declared, but if parameters are frozen, other gradients "
                         "have other bits"));
      });
      if (!holds) return false;
    }
    for (const int workers : {1, 2, options_.workers}) {
      PermutedExecutor executor(workers, options_.seed);
      Cpu cpu{ExecutorRef(executor)};
      cpu.key = key();
      if (!run(cpu, {}, other)) return false;
      if (executor.nested() > 0)
        return fail(Error::say("a tile called parallel, which the executor contract forbids"));
      if (!same(base, other))
        return fail(Error::say("with ", workers, workers == 1 ? " worker" : " workers",
                               " and tiles in another order the results have other bits"));
    }
    Cpu evaluation = context();
    evaluation.training = false;
    double first = 0, second = 0;
    if (!evaluate(evaluation, 0xFF, first) || !evaluate(evaluation, 0x3F, second)) return false;
    if (!std::isfinite(first) || !same(first, second))
      return fail(Error::say("in evaluation the loss is not finite, or not the same twice"));

    Cpu cpu = serial;
    const auto objective = [&] {
      double loss = 0;
      evaluate(cpu, 0xFF, loss);
      return loss - base.evaluated;
    };
    compare_with_differences(result_, options_, "dx", x_.as<double>(),
                             base.dx.template as<double>(), in_.elems(), objective);
    compare_parameters(base.gradients, objective);
    if (!result_.passed || !check_split(base)) return false;
    if (!run(serial, {}, other)) return false;
    if (!same(base, other))
      return fail(
          Error::say("the results changed after calls with other inputs: a loss keeps no "
                     "state"));
    return true;
  }

  /// In parts, a loss returns shares whose sum is the whole, and the same gradients.
  bool check_split(const Computed& base) {
    if constexpr (Traits::split() == Split::none) return true;
    const Cut cut = make_cut(Traits::split(), items_of(Traits::split(), in_), 3, 0, 0);
    if (targets_.size() % cut.items != 0)
      return fail(Error::say("split is ", name_of(Traits::split()), " and x ", in_, " has ",
                             cut.items, " items, but there are ", targets_.size(), " targets"));
    GuardedBlock sums = gradient_block(0);
    Cpu::Loss losses, evaluations;
    losses.clear(), evaluations.clear();
    bool close = true;
    Cpu cpu = context();
    for (std::size_t part = 0; part < cut.parts(); ++part) {
      const Shape in = cut.shape(in_, cut.count(part));
      const std::size_t first = cut.offset(in_.elems(), cut.first(part));
      const std::size_t first_target = cut.offset(targets_.size(), cut.first(part));
      const View<const double> x(x_.as<double>() + first, in);
      const View<const Target> targets(targets_.data() + first_target,
                                       cut.parts() == 1
                                           ? targets_.shape()
                                           : Shape(targets_.size() / cut.items * cut.count(part)));
      const auto workspace = [&](Pass pass) {
        return GuardedBlock(Traits::needs(loss_, in, {Dtype::f64, cpu.workers(), pass}).workspace);
      };
      GuardedBlock scratch = workspace(Pass::forward), more = workspace(Pass::backward);
      GuardedBlock dx(in.elems() * sizeof(double));
      Call call{.x = x,
                .targets = targets,
                .params = parameters(),
                .workspace = scratch.bytes(),
                .part = {cut.first(part), cut.count(part), cut.items},
                .divisor = divisor()};
      call_loss(loss_, cpu, call, evaluations);
      call.dx = {dx.as<double>(), in};
      call.dparams = gradients(sums);
      call.workspace = more.bytes();
      call_loss_gradient(loss_, cpu, call, losses);
      if (!scratch.intact() || !more.intact() || !dx.intact() || !gaps_intact(sums))
        return fail(Error::say("a part of the loss wrote outside its memory"));
      close = close && nearly(dx.as<double>(), base.dx.template as<double>() + first, in.elems());
    }
    const double loss = losses.value(), evaluated = evaluations.value();
    close = close && nearly(&loss, &base.loss, 1) && nearly(&evaluated, &base.evaluated, 1);
    for (const Parameter& p : params_)
      close = close && nearly(sums.as<double>() + p.offset,
                              base.gradients.template as<double>() + p.offset, p.shape.elems());
    if (close) return true;
    return fail(Error::say("split is ", name_of(Traits::split()), ", but ", cut.parts(),
                           " parts of the ", in_,
                           " input do not add up to the whole: each part's "
                           "loss and dx are its share of the mean over all"));
  }

  /// The divisor of all parts, as a step gives it: 0 if targets are no classes.
  std::size_t divisor() const {
    if constexpr (std::is_same_v<Target, std::int32_t>) {
      if (Traits::target_classes(loss_, in_) == 0) return 0;
      const std::size_t counted = count_targets(targets_).counted;
      return counted == 0 ? 1 : counted;
    } else {
      return 0;
    }
  }

  const L& loss_;
  Shape in_;
  View<const Target> targets_;
  GuardedBlock x_{0}, kept_x_{0};
};

}}}  // namespace adacc::v0_1::testing::detail
