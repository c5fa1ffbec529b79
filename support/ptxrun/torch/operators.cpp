// SPDX-License-Identifier: MIT
// PyTorch's operators on a CUDA device that has no code for them: each one copies its arguments to the host, runs the CPU's
// operator and copies back what it has written. Memory, views, streams and copies stay PyTorch's own.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <set>

extern "C" cudaError_t ptxrun_finish(cudaStream_t s);

namespace {

using Stack = torch::jit::Stack;

void check(cudaError_t e) { TORCH_CHECK(e == cudaSuccess, "ptxrun: ", cudaGetErrorString(e)); }
cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

int64_t span(const at::Tensor& t) {
  int64_t n = 1;
  for (int64_t d = 0; d < t.dim(); ++d) n += (t.size(d) - 1) * t.stride(d);
  return t.numel() == 0 ? 0 : n;
}
/// The same sizes and strides on the host; of one with gaps, the gaps too.
at::Tensor host_like(const at::Tensor& t) {
  const auto options = at::TensorOptions(t.dtype()).device(at::kCPU);
  if (t.is_non_overlapping_and_dense() || t.numel() == 0)
    return at::empty_strided(t.sizes(), t.strides(), options);
  return at::empty({span(t)}, options).as_strided(t.sizes(), t.strides());
}
void move(const at::Tensor& to, const at::Tensor& from, cudaMemcpyKind kind) {
  if (const auto n = static_cast<size_t>(span(from)) * from.element_size(); n != 0)
    check(cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), n, kind, stream()));
}

/// Host copies of an operator's arguments.
class Copies {
 public:
  at::Tensor of(const at::Tensor& t, bool read = true) {
    if (!t.defined() || !t.is_cuda()) return t;
    TORCH_CHECK(!t.is_conj() && !t.is_neg(), "ptxrun: conjugated tensors");
    auto [at, fresh] = copies_.try_emplace(t.unsafeGetTensorImpl());
    if (!fresh) return at->second.second;
    const at::Tensor h = host_like(t);
    if (read || !t.is_non_overlapping_and_dense()) move(h, t, cudaMemcpyDeviceToHost);
    at->second = {t, h};
    return h;
  }
  /// A written argument goes back, resized as it is now.
  void back(const at::Tensor& t) {
    const auto at = copies_.find(t.unsafeGetTensorImpl());
    if (at == copies_.end()) return;
    const at::Tensor& h = at->second.second;
    if (t.sizes() != h.sizes()) t.resize_(h.sizes());
    if (t.strides() == h.strides()) return move(t, h, cudaMemcpyHostToDevice);
    const at::Tensor same = host_like(t);
    move(same, t, cudaMemcpyDeviceToHost);
    check(ptxrun_finish(stream()));
    same.copy_(h);
    move(t, same, cudaMemcpyHostToDevice);
  }

 private:
  std::map<c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> copies_;
};

/// A result on the current device.
at::Tensor on_device(const at::Tensor& h) {
  if (!h.defined() || !h.is_cpu()) return h;
  const at::Tensor t =
      at::empty_strided(h.sizes(), h.strides(), at::TensorOptions(h.dtype()).device(at::kCUDA));
  move(t, h, cudaMemcpyHostToDevice);
  return t;
}

/// While it lives, the CPU's generator gives what follows from the CUDA generator's seed and offset, which goes on.
class Random {
 public:
  explicit Random(at::Generator device)
      : hold_(lock()), host_(at::globalContext().defaultGenerator(at::kCPU)),
        before_(host_.get_state()) {
    if (!device.defined()) device = at::globalContext().defaultGenerator({at::kCUDA, -1});
    const std::lock_guard<std::mutex> of_device(device.mutex());
    const uint64_t offset = device.get_offset();
    host_.set_current_seed(device.current_seed() * 0x9E3779B97F4A7C15u + offset);
    device.set_offset(offset + 4);
  }
  ~Random() { host_.set_state(before_); }

 private:
  static std::mutex& lock() {
    static std::mutex m;
    return m;
  }
  std::lock_guard<std::mutex> hold_;
  at::Generator host_;
  at::Tensor before_;
};

/// The device of an operator: that of its first tensor there, or the one it is told.
std::optional<c10::Device> device_of(const std::vector<c10::IValue>& given) {
  for (const c10::IValue& v : given) {
    if (v.isTensor() && v.toTensor().defined() && v.toTensor().is_cuda())
      return v.toTensor().device();
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector())
        if (t.is_cuda()) return t.device();
    if (v.isDevice() && v.toDevice().is_cuda() && v.toDevice().has_index()) return v.toDevice();
  }
  return std::nullopt;
}

/// Whether an operator writes all of an argument and reads nothing of it: then it may be memory that nobody has written.
bool only_written(const c10::FunctionSchema& schema, size_t argument) {
  static const std::set<std::string> fills{
      "aten::fill_",   "aten::zero_",       "aten::uniform_",   "aten::normal_",
      "aten::random_", "aten::copy_",       "aten::bernoulli_", "aten::exponential_",
      "aten::eye_",    "aten::log_normal_", "aten::geometric_", "aten::cauchy_"};
  return schema.arguments()[argument].is_out() ||
         (argument == 0 && fills.count(schema.name()) != 0);
}

void on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const size_t n = schema.arguments().size(), base = stack->size() - n;
  const std::vector<c10::IValue> given(stack->begin() + static_cast<int64_t>(base), stack->end());
  const c10::cuda::OptionalCUDAGuard device(device_of(given));
  Copies copies;
  at::Generator generator;
  for (const bool results :
       {false, true})  // of what is an argument and a result, the argument is read
    for (size_t i = 0; i < n; ++i) {
      c10::IValue& v = (*stack)[base + i];
      if (v.isTensor() && only_written(schema, i) == results) v = copies.of(v.toTensor(), !results);
    }
  for (size_t i = 0; i < n; ++i) {
    c10::IValue& v = (*stack)[base + i];
    if (v.isTensor()) {
      continue;
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(copies.of(t));
      v = list;
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
        list.push_back(t ? std::optional(copies.of(*t)) : std::nullopt);
      v = list;
    } else if (v.isDevice() && v.toDevice().is_cuda()) {
      v = c10::Device(at::kCPU);
    } else if (v.isGenerator()) {
      generator = v.toGenerator();
      v = c10::IValue();
    }
  }
  check(ptxrun_finish(stream()));
  {
    const auto tags = op.getTags();
    std::optional<Random> random;
    if (std::find(tags.begin(), tags.end(), at::Tag::nondeterministic_seeded) != tags.end())
      random.emplace(generator);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  const auto writes = [](const c10::Argument& a) {
    return a.alias_info() && a.alias_info()->isWrite();
  };
  for (size_t i = 0; i < n; ++i) {
    if (!writes(schema.arguments()[i])) continue;
    if (given[i].isTensor() && given[i].toTensor().defined()) copies.back(given[i].toTensor());
    if (given[i].isTensorList())
      for (const at::Tensor& t : given[i].toTensorVector()) copies.back(t);
  }
  const size_t results = schema.returns().size(), from = stack->size() - results;
  for (size_t r = 0; r < results; ++r) {
    c10::IValue& v = (*stack)[from + r];
    if (writes(schema.returns()[r])) {  // it is the argument that has this name
      for (size_t i = 0; i < n; ++i)
        if (writes(schema.arguments()[i]) &&
            *schema.arguments()[i].alias_info() == *schema.returns()[r].alias_info())
          v = given[i];
    } else if (v.isTensor()) {
      v = on_device(v.toTensor());
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(on_device(t));
      v = list;
    }
  }
}

/// A copy that is one of bytes, or between devices, is PyTorch's own; one that converts or gathers is not.
at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  const bool bytes = self.dtype() == from.dtype() && self.sizes() == from.sizes() &&
                     ((self.is_contiguous() && from.is_contiguous()) ||
                      (self.strides() == from.strides() && self.is_non_overlapping_and_dense()));
  if (bytes || !self.is_cuda() || !from.is_cuda())
    return at::native::copy_(self, from, non_blocking);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  Stack stack{self, from, non_blocking};
  on_cpu(op, &stack);
  return self;
}

// Attention: the CPU's flash attention behind the signatures of CUDA's, so that what is saved has CUDA's shapes.

at::Tensor word() { return at::empty({2}, at::TensorOptions(at::kUInt64).device(at::kCUDA)); }

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
           at::Tensor, at::Tensor>
flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p, bool causal, bool,
      std::optional<double> scale) {
  TORCH_CHECK(p == 0, "ptxrun: attention with dropout");
  const c10::cuda::CUDAGuard device(q.device());
  Copies c;
  const at::Tensor hq = c.of(q), hk = c.of(k), hv = c.of(v);
  check(ptxrun_finish(stream()));
  auto [out, sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(hq, hk, hv, 0, causal, {}, scale);
  return {on_device(out),
          on_device(sums.contiguous()),
          {},
          {},
          q.sym_size(2),
          k.sym_size(2),
          word(),
          at::empty({}, at::TensorOptions(at::kUInt64).device(at::kCUDA)),
          {}};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_back(
    const at::Tensor& g, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& sums, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  const c10::cuda::CUDAGuard device(q.device());
  Copies c;
  const at::Tensor h[] = {c.of(g), c.of(q), c.of(k), c.of(v), c.of(out), c.of(sums)};
  check(ptxrun_finish(stream()));
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      h[0], h[1], h[2], h[3], h[4], h[5], 0, causal, {}, scale);
  return {on_device(dq), on_device(dk), on_device(dv)};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& bias, bool, double p, bool causal,
    std::optional<double> scale) {
  TORCH_CHECK(!bias, "ptxrun: attention with a bias");
  auto r = flash(q, k, v, p, causal, false, scale);
  const auto number = [] { return at::empty({}, at::TensorOptions(at::kLong).device(at::kCUDA)); };
  return {std::get<0>(r), std::get<1>(r), number(), number()};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_back(
    const at::Tensor& g, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor&, const at::Tensor& out, const at::Tensor& sums, const at::Tensor&,
    const at::Tensor&, double p, std::array<bool, 4>, bool causal, std::optional<double> scale) {
  auto [dq, dk, dv] = flash_back(g, q, k, v, out, sums, {}, {}, 0, 0, p, causal, {}, {}, scale);
  return {dq, dk, dv, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
           at::Tensor, at::Tensor>
cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
      const std::optional<at::Tensor>& bias, bool, double p, bool causal, bool debug,
      std::optional<double> scale) {
  TORCH_CHECK(!bias, "ptxrun: attention with a bias");
  auto r = flash(q, k, v, p, causal, debug, scale);
  const auto number = [] { return at::empty({}, at::TensorOptions(at::kLong).device(at::kCUDA)); };
  return {std::get<0>(r),
          std::get<1>(r).unsqueeze(-1),
          {},
          {},
          std::get<4>(r),
          std::get<5>(r),
          number(),
          number(),
          {}};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> cudnn_back(
    const at::Tensor& g, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& sums, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double p,
    bool causal, std::optional<double> scale) {
  return flash_back(g, q, k, v, out, sums.squeeze(-1), {}, {}, 0, 0, p, causal, {}, {}, scale);
}

/// Whether PyTorch's own implementation does without kernels.
bool kept(const c10::OperatorName& name, const c10::FunctionSchema& schema) {
  static const std::set<std::string> names{"aten::empty",
                                           "aten::empty_strided",
                                           "aten::resize_",
                                           "aten::set_",
                                           "aten::_local_scalar_dense",
                                           "aten::record_stream",
                                           "aten::is_pinned",
                                           "aten::_pin_memory",
                                           "aten::_fused_sdp_choice",
                                           "aten::copy_",
                                           "aten::_efficientzerotensor",
                                           "aten::_scaled_dot_product_flash_attention",
                                           "aten::_scaled_dot_product_flash_attention_backward",
                                           "aten::_scaled_dot_product_efficient_attention",
                                           "aten::_scaled_dot_product_efficient_attention_backward",
                                           "aten::_scaled_dot_product_cudnn_attention",
                                           "aten::_scaled_dot_product_cudnn_attention_backward",
                                           "aten::is_set_to"};
  if (names.count(name.name)) return true;
  for (const c10::Argument& r : schema.returns())
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;  // a view
  return false;
}

void register_all() {
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::CUDA, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema() || !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) ||
        kept(name, op->schema()))
      continue;
    const std::string full =
        name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
  }
  library->impl("copy_", copy);
  library->impl("_scaled_dot_product_flash_attention", flash);
  library->impl("_scaled_dot_product_flash_attention_backward", flash_back);
  library->impl("_scaled_dot_product_efficient_attention", efficient);
  library->impl("_scaled_dot_product_efficient_attention_backward", efficient_back);
  library->impl("_scaled_dot_product_cudnn_attention", cudnn);
  library->impl("_scaled_dot_product_cudnn_attention_backward", cudnn_back);
  static_cast<void>(library.release());  // registered until the process ends
}
const int at_load = (register_all(), 0);

}  // namespace
