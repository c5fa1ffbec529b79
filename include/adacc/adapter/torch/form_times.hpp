// SPDX-License-Identifier: MIT
/// Costs of the forms of a recorded step's storages on this machine: seconds of encoding and decoding, measured once
/// for each kind. For a long storage a part is measured, in little memory, as the next step may be small. On a device, the
/// host waits for these measurements, between two steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "device_side.hpp"
#include "made_again.hpp"
#include "step_recorder.hpp"
#include "stopwatch.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class FormTimes {
 public:
  explicit FormTimes(const DeviceSide& side) : side_(side) {}

  /// Sets the times of all forms of `step`. Draws from a separate generator.
  void measure(RecordedStep& step) {
    const at::AutoGradMode without_grad(false);
    for (std::size_t i = 0; i < step.elements.size(); ++i) {
      StepStorage& storage = step.record.storages[i];
      const StepElements& elements = step.elements[i];
      if (storage.packed.bytes > 0) set(storage.packed, elements, Keep());
      for (std::size_t f = 0; f < storage.forms.size(); ++f)
        if (storage.forms[f].runs_again()) set_again(storage, storage.forms[f], *elements.made);
        else set(storage.forms[f], elements, elements.forms[f]);
    }
  }

 private:
  using Kind = std::tuple<const CodecInfo*, c10::ScalarType, std::size_t, std::size_t>;

  void set(StepForm& form, const StepElements& elements, Keep keep) {
    const Kind kind{form.codec, elements.type, elements.count, elements.columns};
    auto found = known_.find(kind);
    if (found == known_.end()) found = known_.emplace(kind, time(elements, keep)).first;
    std::tie(form.encode, form.decode) = found->second;
  }

  /// Runs the operators on made-up inputs of the recorded sizes.
  void set_again(const StepStorage& storage, StepForm& form, const MadeAgain& made) {
    std::string kind;
    add_to(kind, made);
    auto found = operators_.find(kind);
    if (found == operators_.end()) {
      std::vector<at::Tensor> inputs;
      const auto given = [&](const GivenTensor& as, const MadeAgain::Source&) {
        inputs.push_back(at::empty_strided(
            as.sizes, as.strides, at::TensorOptions().dtype(as.type).device(side_.device())));
        return inputs.back().fill_(1);
      };
      run_again(made, given);
      std::array<double, 3> seconds{};
      std::size_t work = 0;
      for (double& one : seconds) {
        std::size_t next = 0;
        Stopwatch watch(side_.device());
        side_.lap();
        const std::size_t before = side_.live_bytes();
        watch.mark();
        run_again(made, [&](const auto&...) { return inputs[next++]; });
        watch.mark();
        work = side_.lap().most - before;
        const std::vector<double> laps = watch.laps();
        if (!laps.empty()) one = laps[0];
      }
      std::sort(seconds.begin(), seconds.end());
      found = operators_.emplace(kind, std::pair{std::max(1e-9, seconds[1]), work}).first;
    }
    form.decode = found->second.first;
    form.work_bytes = found->second.second - std::min(found->second.second, storage.bytes);
  }
  /// All that time and bytes depend on.
  static void add_to(std::string& kind, const MadeAgain& made) {
    kind += made.recipe->name;
    for (std::size_t i = 0; i < made.sources.size(); ++i) {
      const GivenTensor& given = made.recipe->given[i];
      kind += '(';
      if (made.sources[i].made != nullptr) add_to(kind, *made.sources[i].made);
      for (const auto* const all : {&given.sizes, &given.strides})
        for (const std::int64_t each : *all) kind += ' ' + std::to_string(each);
      kind += c10::toString(given.type);
      kind += ')';
    }
    kind += std::to_string(made.recipe->bytes);
  }

  std::pair<double, double> time(const StepElements& elements, Keep keep) const {
    at::Generator generator = at::detail::createCPUGenerator(1);
    // A device needs enough work to fill it.
    const std::size_t most = side_.is_cpu() ? 128 * KiB : 4 * MiB;
    const std::size_t some = elements.count <= most || elements.columns > most
                                 ? elements.count
                                 : most - most % elements.columns;
    const double times = static_cast<double>(elements.count) / static_cast<double>(some);
    const auto count = static_cast<std::int64_t>(some);
    const at::Tensor x =
        (keep.codec() != nullptr
             ? at::randn({count}, generator, at::TensorOptions().dtype(at::kFloat))
             : at::randint(0, 2, {count}, generator, at::TensorOptions().dtype(at::kFloat)))
            .to(elements.type)
            .to(side_.device());
    std::array<double, 3> encode{}, decode{};
    EncodedElements encoded;
    for (std::size_t i = 0; i < encode.size(); ++i) {
      Stopwatch watch(side_.device());
      watch.mark();
      if (side_.is_cpu()) encoded.encode(keep, elements.type, x.data_ptr(), some, elements.columns);
      else encoded.encode_on(work(), keep, elements.type, x.data_ptr(), some, elements.columns, {});
      watch.mark();
      if (!encoded.empty()) {
        if (side_.is_cpu()) encoded.decode(x.data_ptr());
        else encoded.decode_on(work(), x.data_ptr());
      }
      watch.mark();
      const std::vector<double> laps = watch.laps();
      if (laps.empty()) continue;
      encode[i] = times * laps[0];
      decode[i] = times * laps[1];
    }
    std::sort(encode.begin(), encode.end());
    std::sort(decode.begin(), decode.end());
    return {std::max(1e-9, encode[1]), std::max(1e-9, decode[1])};
  }

  DeviceWork work() const { return DeviceWork(current_stream(side_.device())); }

  const DeviceSide& side_;
  std::map<Kind, std::pair<double, double>> known_;
  std::map<std::string, std::pair<double, std::size_t>> operators_;  ///< seconds, bytes in all
};

}}}}  // namespace adacc::v0_1::torch::detail
