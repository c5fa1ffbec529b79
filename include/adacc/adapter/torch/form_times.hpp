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
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "device_side.hpp"
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
        set(storage.forms[f], elements, elements.forms[f]);
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
};

}}}}  // namespace adacc::v0_1::torch::detail
