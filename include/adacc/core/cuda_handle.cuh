// SPDX-License-Identifier: MIT
/// Streams, events, memory and handles of libraries on a CUDA device, owned.
#pragma once

namespace adacc { inline namespace v0_1 { namespace detail {

/// Owns a handle of the CUDA runtime or of one of its libraries; the destructor calls `give_back(handle)`.
template <class Handle, auto give_back>
class CudaHandle {
 public:
  CudaHandle() = default;
  CudaHandle(CudaHandle&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    Handle handle = handle_;
    handle_ = other.handle_;
    other.handle_ = handle;
    return *this;
  }
  ~CudaHandle() {
    if (handle_ != nullptr) static_cast<void>(give_back(handle_));
  }
  Handle get() const { return handle_; }
  /// The place for a call to create a handle; there must be none yet.
  Handle* place() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

}}}  // namespace adacc::v0_1::detail
