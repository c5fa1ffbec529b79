// SPDX-License-Identifier: MIT
/// The codecs' kernels on CUDA devices, from a file made by nvcc elsewhere: loaded and launched by the driver, so
/// neither CUDA's headers nor its runtime are asked for.
///
/// The file is python/src/adacc/kernels.cu as a fat binary or as PTX. PTX is compiled by the driver for the device at
/// hand, once; a fat binary may have code of several devices besides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/DynamicLibrary.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "../../core/config.hpp"
#include "device_codec.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

namespace detail {

/// Whether this version of libtorch tells a stream's handle.
template <class Guard>
concept TellsStreams = requires(const Guard& guard, c10::Stream of) {
  guard.getStreamNativeHandle(of);
};

template <class Guard>
void* handle_of(const Guard& guard, c10::Stream stream) {
  if constexpr (TellsStreams<Guard>) return guard.getStreamNativeHandle(stream);
  else return nullptr;
}

}  // namespace detail

class CudaKernels final : public DeviceKernels {
 public:
  /// `image` is kept. The driver is asked at the first launch.
  explicit CudaKernels(std::string image) : image_(std::move(image)) {}

  /// Makes `image` the kernels of all CUDA tensors. False: this version of libtorch does not tell streams' handles.
  static bool install(std::string image) {
    if constexpr (!detail::TellsStreams<c10::impl::VirtualGuardImpl>) return false;
    // Never destroyed: threads of libtorch outlive static objects.
    device_kernels(c10::DeviceType::CUDA) = new CudaKernels(std::move(image));
    return true;
  }

  Error launch(const std::string& name, std::size_t blocks, void** arguments,
               c10::Stream stream) override {
    void* kernel = nullptr;
    if (Error error = find(name, stream.device(), kernel)) return error;
    constexpr std::size_t most = 0x7FFFFFFF;
    return said("did not start", name, stream.device(),
                driver_->launch(
                    kernel, static_cast<unsigned>(std::min(blocks, most)), 1, 1,
                    static_cast<unsigned>(DeviceWork::threads), 1, 1, 0,
                    detail::handle_of(c10::impl::VirtualGuardImpl(stream.device_type()), stream),
                    arguments, nullptr));
  }
  Error copy(void* to, const void* from, std::size_t bytes, c10::Stream stream) override {
    if (Error error = load(stream.device())) return error;
    return said(
        "did not start", "a copy", stream.device(),
        driver_->copy(
            reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from), bytes,
            detail::handle_of(c10::impl::VirtualGuardImpl(stream.device_type()), stream)));
  }
  bool is_captured(c10::Stream stream) override {
    const Driver& driver = this->driver();
    int status = 0;
    return driver.captures != nullptr &&
           driver.captures(
               detail::handle_of(c10::impl::VirtualGuardImpl(stream.device_type()), stream),
               &status) == 0 &&
           status != 0;
  }

 private:
  // The driver's functions, as its documentation has them; all of its handles are pointers, and its results numbers.
  struct Driver {
    explicit Driver() : library("libcuda.so.1") {
      using Address = int(const char*, void**, int, std::uint64_t, int*);
      auto* const address = reinterpret_cast<Address*>(library.sym("cuGetProcAddress_v2"));
      const auto get = [&](const char* name, auto*& function) {
        void* found = nullptr;
        if (address(name, &found, 12000, 0, nullptr) == 0)
          function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
      };
      get("cuLibraryLoadData", load);
      get("cuLibraryGetKernel", kernel);
      get("cuLaunchKernel", launch);
      get("cuMemcpyDtoDAsync", copy);
      get("cuGetErrorString", text);
      get("cuStreamIsCapturing", captures);
      get("cuDeviceGet", device);
      get("cuDeviceGetAttribute", attribute);
    }
    bool complete() const {
      return load && kernel && launch && copy && text && device && attribute;
    }

    at::DynamicLibrary library;
    int (*load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned) = nullptr;
    int (*kernel)(void**, void*, const char*) = nullptr;
    int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void*, void**, void**) = nullptr;
    int (*copy)(std::uintptr_t, std::uintptr_t, std::size_t, void*) = nullptr;
    int (*text)(int, const char**) = nullptr;
    int (*captures)(void*, int*) = nullptr;
    int (*device)(int*, int) = nullptr;
    int (*attribute)(int*, int, int) = nullptr;
  };

  Error said(const char* did, const std::string& name, c10::Device device, int status) const {
    constexpr int no_binary =
        209;  // for the device; the driver may say so when a kernel is asked for, or starts
    if (status == 0) return {};
    if (status == no_binary) return no_code_for(device);
    const char* text = nullptr;
    driver_->text(status, &text);
    return Error::say("adacc: CUDA ", did, " ", name.c_str(), ": ",
                      text != nullptr ? text : "an unknown error");
  }
  Error no_code_for(c10::Device device) const {
    constexpr int major_capability = 75, minor_capability = 76;
    const int number = device.index();
    int at = 0, high = 0, low = 0;
    if (driver_->device(&at, number) == 0) {
      driver_->attribute(&high, major_capability, at);
      driver_->attribute(&low, minor_capability, at);
    }
    const std::string architecture = "sm_" + std::to_string(10 * high + low);
    return Error::say("adacc: the codecs' kernels have no code for device ", number, ", ",
                      architecture.c_str(),
                      ": they are for sm_80 and later; for devices later than this file's code, ",
                      "its PTX asks for a driver that knows them");
  }

  Driver& driver() {
    const std::lock_guard lock(mutex_);
    if (driver_ == nullptr) driver_ = std::make_unique<Driver>();
    return *driver_;
  }
  Error load(c10::Device device) {
    driver();
    const std::lock_guard lock(mutex_);
    if (!driver_->complete())
      return Error::say("adacc: the CUDA driver is older than 12.0, which loads kernels by name");
    if (library_ != nullptr) return {};
    const int status =
        driver_->load(&library_, image_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (status != 0) library_ = nullptr;
    return said("did not load", "the codecs' kernels", device, status);
  }

  Error find(const std::string& name, c10::Device device, void*& kernel) {
    if (Error error = load(device)) return error;
    const std::lock_guard lock(mutex_);
    void*& known = kernels_[name];
    if (known == nullptr) {
      constexpr int not_found = 500;
      const int status = driver_->kernel(&known, library_, (prefix + name).c_str());
      if (status != 0) known = nullptr;
      if (status == not_found)
        return Error::say("adacc: the file of kernels is not of this version of adacc: it has no ",
                          name.c_str());
      if (status != 0) return said("did not find", name, device, status);
    }
    kernel = known;
    return {};
  }

  static inline const std::string prefix = "adacc_" + std::to_string(ADACC_VERSION_MAJOR) + "_" +
                                           std::to_string(ADACC_VERSION_MINOR) + "_" +
                                           std::to_string(ADACC_VERSION_PATCH) + "_";

  const std::string image_;
  std::mutex mutex_;
  std::unique_ptr<Driver> driver_;
  void* library_ = nullptr;
  std::unordered_map<std::string, void*> kernels_;
};

}}}  // namespace adacc::v0_1::torch
