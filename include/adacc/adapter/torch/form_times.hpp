// SPDX-License-Identifier: MIT
/// Costs of the forms of a recorded step's storages on this machine: seconds of encoding and decoding, measured once
/// for each kind. For a long storage a part is measured, in little memory, as the next step may be small.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "../../core/steady_clock.hpp"
#include "step_recorder.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class FormTimes {
 public:
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

  static std::pair<double, double> time(const StepElements& elements, Keep keep) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    constexpr std::size_t most = 128 * KiB;
    const std::size_t some = elements.count <= most || elements.columns > most
                                 ? elements.count
                                 : most - most % elements.columns;
    const double times = static_cast<double>(elements.count) / static_cast<double>(some);
    const auto count = static_cast<std::int64_t>(some);
    const at::Tensor x =
        (keep.codec() != nullptr
             ? at::randn({count}, generator, at::TensorOptions().dtype(at::kFloat))
             : at::randint(0, 2, {count}, generator, at::TensorOptions().dtype(at::kFloat)))
            .to(elements.type);
    std::array<double, 3> encode{}, decode{};
    EncodedElements encoded;
    for (std::size_t i = 0; i < encode.size(); ++i) {
      const double start = steady_seconds();
      encoded.encode(keep, elements.type, x.data_ptr(), some, elements.columns);
      const double middle = steady_seconds();
      if (!encoded.empty()) encoded.decode(x.data_ptr());
      encode[i] = times * (middle - start);
      decode[i] = times * (steady_seconds() - middle);
    }
    std::sort(encode.begin(), encode.end());
    std::sort(decode.begin(), decode.end());
    return {std::max(1e-9, encode[1]), std::max(1e-9, decode[1])};
  }

  std::map<Kind, std::pair<double, double>> known_;
};

}}}}  // namespace adacc::v0_1::torch::detail
