// SPDX-License-Identifier: MIT
/// checkpoint() with inputs on other devices than the CPU: what their random numbers and autocast were, on
/// CUDA devices that are nothing but a generator each.
#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "support.hpp"

namespace torch_checkpoint_devices_test {

using namespace torch_tests;
using guest::checkpoint;

/// Counts.
struct Counter final : c10::GeneratorImpl {
  explicit Counter(at::Device device)
      : GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(std::uint64_t seed) override { count = seed; }
  std::uint64_t current_seed() const override { return count; }
  std::uint64_t seed() override { return count; }
#if TORCH_VERSION_MAJOR >= 2
  void set_offset(std::uint64_t) override {}
  std::uint64_t get_offset() const override { return 0; }
#endif
  void set_state(const c10::TensorImpl& state) override {
    std::memcpy(&count, state.data(), sizeof count);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state = at::empty({sizeof count}, at::TensorOptions().dtype(at::kByte));
    std::memcpy(state.data_ptr(), &count, sizeof count);
    return state.getIntrusivePtr();
  }
  Counter* clone_impl() const override { return new Counter(device()); }

  std::uint64_t count = 0;
};

constexpr int devices = 2;

const at::Generator& counter(int device) {
  static const std::vector<at::Generator> all = [] {
    std::vector<at::Generator> made;
    for (int i = 0; i < devices; ++i)
      made.push_back(
          at::make_generator<Counter>(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(i))));
    return made;
  }();
  TORCH_CHECK(device < devices, "there is no such device");
  return all[static_cast<std::size_t>(device)];
}

/// A number that each call makes another one.
double draw(int device) { return 1 + static_cast<double>(++counter(device).get<Counter>()->count); }

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
#if TORCH_VERSION_MAJOR >= 2
  void init() const override {}
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return counter(device);
  }
#else
  void initCUDA() const override {}
  const at::Generator& getDefaultCUDAGenerator(c10::DeviceIndex device) const override {
    return counter(device);
  }
#endif
};

/// An empty tensor there.
at::Tensor on(at::Device device) {
  c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, device), nullptr,
                       false);
  return at::detail::make_tensor<at::TensorImpl>(std::move(nothing),
                                                 c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                 caffe2::TypeMeta::Make<float>());
}
at::Device cuda(int device) { return {at::kCUDA, static_cast<c10::DeviceIndex>(device)}; }

struct Autocast {
  bool on;
  at::ScalarType type;
  bool operator==(const Autocast&) const = default;

#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
  static Autocast now() {
    return {at::autocast::is_autocast_enabled(at::kCUDA),
            at::autocast::get_autocast_dtype(at::kCUDA)};
  }
  void set() const {
    at::autocast::set_autocast_enabled(at::kCUDA, on);
    at::autocast::set_autocast_dtype(at::kCUDA, type);
  }
#else
  static Autocast now() {
    return {at::autocast::is_enabled(), at::autocast::get_autocast_gpu_dtype()};
  }
  void set() const {
    at::autocast::set_enabled(on);
    at::autocast::set_autocast_gpu_dtype(type);
  }
#endif
};

TEST_CASE("random numbers are as they were on each device that an input is on") {
  const at::Tensor x = parameter(at::randn({16}));
  const auto run = [&](const auto& around, bool watched = true) {
    for (int i = 0; i < devices; ++i) counter(i).get<Counter>()->count = 7;
    const auto fn = [](const at::Tensor& y, const at::Tensor&, const at::Tensor&) {
      return (y * draw(0)).sin() * draw(1);
    };
    const at::Tensor loss = around(fn).sum();
    const double between = draw(0);
    const std::vector<at::Tensor> gradient = gradients(loss, {x});
    CHECK((draw(0) == between + 1) == watched);  // backward draws nothing that others would see
    return gradient;
  };
  const at::Tensor first = on(cuda(0)), second = on(cuda(1));
  const auto plain = run([&](const auto& fn) { return fn(x, first, second); });
  CHECK(same_bits(plain, run([&](const auto& fn) { return checkpoint(fn, x, first, second); })));
  CHECK(same_bits(plain, run([&](const auto& fn) { return checkpoint(fn, x, second, first); })));
  // A device that no input is on is not watched.
  CHECK(
      !same_bits(plain, run([&](const auto& fn) { return checkpoint(fn, x, second, x); }, false)));
}

TEST_CASE("autocast is as it was on the device that an input is on") {
  const at::Tensor x = parameter(at::randn({16}));
  const Autocast before = Autocast::now(), there{true, at::kBFloat16};
  std::vector<Autocast> seen;
  there.set();
  const at::Tensor loss = checkpoint(
      [&](const at::Tensor& y, const at::Tensor&) {
        seen.push_back(Autocast::now());
        return y.sin().sum();
      },
      x, on(cuda(0)));
  before.set();
  gradients(loss, {x});
  REQUIRE(seen.size() == 2);
  for (const Autocast& one : seen) CHECK((one == there));
  CHECK((Autocast::now() == before));
}

TEST_CASE(
    "where nothing can be kept an input is refused, and where nothing is computed it passes") {
  const at::Tensor x = parameter(at::randn({16}));
  const auto fn = [](const at::Tensor& y, const at::Tensor&) { return y.sin().sum(); };
  const std::string words = words_of([&] { checkpoint(fn, x, on(cuda(devices))); });
  CHECK(mentions(words, "random numbers on cuda:2, where an input is, cannot be kept"));
  CHECK(mentions(words, "there is no such device"));
  const at::Tensor loss = checkpoint(fn, x, at::empty({3}, at::TensorOptions().device(at::kMeta)));
  CHECK(same_bits(gradients(loss, {x})[0], x.cos().detach()));
}

}  // namespace torch_checkpoint_devices_test

// One of libtorch_cuda's, if that is linked, stays behind.
namespace at {
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED,
                                 torch_checkpoint_devices_test::Hooks)
}  // namespace at
