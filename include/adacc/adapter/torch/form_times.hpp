// SPDX-License-Identifier: MIT
/// Costs of the forms of a recorded step's storages on this machine: seconds of encoding and decoding, measured once
/// for each kind. For a long storage a part is measured, in little memory, as the next step may be small. On a device, the
/// host waits for these measurements between two steps. The measured work is queued behind other work: an idle device would
/// wait for the host's launches, and the measurement would be of the launches.
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
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "device_side.hpp"
#include "made_again.hpp"
#include "step_recorder.hpp"
#include "step_seconds.hpp"
#include "stopwatch.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class FormTimes {
 public:
  explicit FormTimes(const DeviceSide& side) : side_(side) {}

  /// Sets the times of all forms of `step`. Draws from a separate generator.
  void measure(RecordedStep& step) {
    const at::AutoGradMode without_grad(false);
    // More than the caches of a GPU: elements are read from memory in a step, too.
    const std::size_t some = std::min<std::size_t>(64 * MiB, step.record.peak() / 8);
    if (!side_.is_cpu() && some >= 2)
      in_front_ = at::empty({static_cast<std::int64_t>(some)},
                            at::TensorOptions().dtype(at::kByte).device(side_.device()));
    for (std::size_t i = 0; i < step.elements.size(); ++i) {
      StepStorage& storage = step.record.storages[i];
      const StepElements& elements = step.elements[i];
      if (storage.packed.bytes > 0) set(storage.packed, elements, Keep());
      for (std::size_t f = 0; f < storage.forms.size(); ++f)
        if (storage.forms[f].runs_again()) set_again(storage, storage.forms[f], *elements.made);
        else set(storage.forms[f], elements, elements.forms[f]);
    }
    in_front_.reset();
  }

 private:
  using Kind = std::tuple<const CodecInfo*, c10::ScalarType, std::size_t, std::size_t>;
  using Seconds = std::pair<double, double>;  ///< of encoding and decoding
  static constexpr int most_copies = 64;      ///< some milliseconds of a GPU

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
        const auto [first, end] = as.extent();
        const at::Tensor memory =
            at::ones({static_cast<std::int64_t>(end - first)},
                     at::TensorOptions().dtype(as.type).device(side_.device()));
        inputs.push_back(given_in(memory.storage(), as, first));
        return inputs.back();
      };
      run_again(made, given);
      std::array<double, 3> seconds{};
      std::size_t work = 0;
      for (double& one : seconds) {
        const std::vector<double> laps = laps_of([&](Stopwatch& watch) {
          std::size_t next = 0;
          side_.lap();
          const std::size_t before = side_.live_bytes();
          watch.mark();
          run_again(made, [&](const auto&...) { return inputs[next++]; });
          watch.mark();
          work = side_.lap().most - before;
        });
        if (!laps.empty()) one = laps[0];
      }
      std::sort(seconds.begin(), seconds.end());
      found = operators_.emplace(kind, std::pair{std::max(1e-9, seconds[1]), work}).first;
    }
    form.decode = found->second.first;
    form.work_bytes = found->second.second - std::min(found->second.second, storage.bytes);
  }
  /// All facts with an effect on time and bytes.
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

  Seconds time(const StepElements& elements, Keep keep) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    // A device needs enough work to fill it.
    const std::size_t most = side_.is_cpu() ? 128 * KiB : 4 * MiB;
    const std::size_t some = elements.count <= most || elements.columns > most
                                 ? elements.count
                                 : most - most % elements.columns;
    const std::size_t few =
        side_.is_cpu() || some == elements.count ? 0 : some / 4 - some / 4 % elements.columns;
    const auto count = static_cast<std::int64_t>(some);
    const at::Tensor x =
        (keep.codec() != nullptr
             ? at::randn({count}, generator, at::TensorOptions().dtype(at::kFloat))
             : at::randint(0, 2, {count}, generator, at::TensorOptions().dtype(at::kFloat)))
            .to(elements.type)
            .to(side_.device());
    const Seconds of_some = time(elements, keep, x, some);
    const Seconds of_few = few > 0 ? time(elements, keep, x, few) : Seconds{};
    const auto of_all = [&](double long_one, double short_one) {
      return std::max(1e-9, extended(short_one, few, long_one, some, elements.count));
    };
    return {of_all(of_some.first, of_few.first), of_all(of_some.second, of_few.second)};
  }
  /// The median of three, for the first `count` elements of x.
  Seconds time(const StepElements& elements, Keep keep, const at::Tensor& x, std::size_t count) {
    std::array<double, 3> encode{}, decode{};
    EncodedElements encoded;
    for (std::size_t i = 0; i < encode.size(); ++i) {
      const std::vector<double> laps = laps_of([&](Stopwatch& watch) {
        watch.mark();
        if (side_.is_cpu())
          encoded.encode(keep, elements.type, x.data_ptr(), count, elements.columns);
        else
          encoded.encode_on(work(), keep, elements.type, x.data_ptr(), count, elements.columns,
                            {true, {}, elements.columns});
        watch.mark();
        if (!encoded.empty()) {
          if (side_.is_cpu()) encoded.decode(x.data_ptr());
          else encoded.decode_on(work(), x.data_ptr());
        }
        watch.mark();
      });
      if (laps.empty()) continue;
      encode[i] = laps[0];
      decode[i] = laps[1];
    }
    std::sort(encode.begin(), encode.end());
    std::sort(decode.begin(), decode.end());
    return {encode[1], decode[1]};
  }

  /// Seconds between the marks of queue(watch). On a device, copies in front last until the host has queued everything.
  template <class Queue>
  std::vector<double> laps_of(const Queue& queue) {
    for (;; copies_ *= 2) {
      Stopwatch watch(side_.device());
      if (in_front_.defined()) {
        const auto half = static_cast<std::size_t>(in_front_.numel()) / 2;
        auto* const data = static_cast<std::byte*>(in_front_.data_ptr());
        for (int i = 0; i < copies_; ++i)
          static_cast<void>(work().copy(data, data + half, half));  // else nothing is in front
      }
      queue(watch);
      const bool waits = in_front_.defined() && watch.has_begun();
      std::vector<double> laps = watch.laps();
      if (!waits || copies_ >= most_copies) return laps;
    }
  }

  DeviceWork work() const { return DeviceWork(current_stream(side_.device())); }

  const DeviceSide& side_;
  at::Tensor in_front_;  ///< copied in front of a measurement; undefined: no copies
  int copies_ = 1;       ///< as many as were needed so far
  std::map<Kind, Seconds> known_;
  std::map<std::string, std::pair<double, std::size_t>> operators_;  ///< seconds, bytes in all
};

}}}}  // namespace adacc::v0_1::torch::detail
