// SPDX-License-Identifier: MIT
/// Attention on a CUDA device by cuDNN 9, lent to contexts (layer/cuda/lent_attention.cuh).
///
///     auto cudnn = CudnnAttention::make();                          // loads libcudnn.so.9, on the current device
///     auto graph = make_graph<Cuda>(net, shape, {.scalar = Dtype::bf16, .attention = cudnn->get()});
///     Cuda cuda(stream, &products, cudnn->get());
///
/// Graphs of cuDNN's are built when a graph of ours is made: about half a second for new sizes. Backward is the
/// deterministic one. On a Hopper GPU its workspace has 2 bytes for each score, batch x heads x time x time; cuDNN 9.25
/// has a slower algorithm, linear in time, for workspaces above the bytes in the environment variable
/// CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT. Arenas count workspaces. Memory of cuDNN's own is not counted: its code on the
/// device. Heads have up to 256 channels, a multiple of 8, and groups of query heads may share keys and values.
///
/// Needs cuDNN's headers and cudnn-frontend 1.23 or later, exceptions, and a linker's dl. libcudnn.so.9 is loaded at run
/// time, and for cudnn-frontend libcudart.so.13 or .12, too: a program starts without them. One cuDNN is loaded
/// in a process, the first that is asked for. The header compiles as host code: nvcc is not needed.
#pragma once

#include <cuda_runtime_api.h>

#if defined(CUDNN_FRONTEND_VERSION) && !defined(NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING)
#error "adacc: include adacc/adapter/cudnn.cuh before cudnn_frontend.h: it loads cuDNN at run time"
#endif
#if !defined(NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING)
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#endif
#if !defined(CUDNN_FRONTEND_SKIP_JSON_LIB)
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#endif
#include <cudnn_frontend.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "../core/error.hpp"
#include "../layer/cuda/lent_attention.cuh"

namespace cudnn_frontend {
/// The loaded library: cudnn-frontend declares this, and leaves the definition to programs.
inline void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace adacc { inline namespace v0_1 {

struct CudnnAttentionOptions {
  const char* library = "libcudnn.so.9";  ///< a name for the loader, or a path
  /// For graphs that are built without a device: properties of one in cuDNN's JSON, and its compute capability.
  const char* device_properties = nullptr;
  int capability = 90;
};

class CudnnAttention final : public CudaAttention {
 public:
  using Options = CudnnAttentionOptions;

  /// For streams of the current device.
  static Result<std::unique_ptr<CudnnAttention>> make(const Options& options = {}) {
    namespace fe = cudnn_frontend;
    std::unique_ptr<CudnnAttention> attention(new CudnnAttention);
    const Error why = guarded([&] {
      if (const Error lost = attention->load(options.library)) return lost;
      if (options.device_properties == nullptr) return attention->open_device();
      attention->capability_ = options.capability;
      const std::string json = options.device_properties;
      attention->properties_ = std::make_shared<fe::DeviceProperties>();
      return said("the device", attention->properties_->deserialize(
                                    std::vector<std::uint8_t>(json.begin(), json.end())));
    });
    if (why) return why;
    return attention;
  }
  ~CudnnAttention() override {
    plans_.clear();
    if (handle_ != nullptr) static_cast<void>(cudnn_frontend::detail::destroy_handle(handle_));
  }

  const char* name() const override { return name_.c_str(); }

 protected:
  void take_up(std::size_t number, Answer& answer) override {
    plans_.resize(number + 1);
    plans_[number] = std::make_unique<Plans>();
    Plans& plans = *plans_[number];
    const Sizes& s = answer.sizes;
    const Error why = guarded([&] {
      if (const Error no = build(plans.forward, s, false, answer.forward_bytes)) return no;
      return build(plans.backward, s, true, answer.backward_bytes);
    });
    if (why)
      answer.refused = Error::say(name(), " does not take ", s.heads, " heads of ", s.channels,
                                  " channels (", s.kv_heads, " of keys and values) over ", s.batch,
                                  " x ", s.time, " positions: ", why.text());
  }
  Error run_forward(std::size_t number, const Forward& call) override {
    Graph& graph = plans_[number]->forward;
    graph.place(of_queries, call.qkv, answers()[number].sizes);
    graph.place(of_out, call.out);
    graph.place(of_sums, call.sums);
    return run(graph, call.stream, call.workspace);
  }
  Error run_backward(std::size_t number, const Backward& call) override {
    Graph& graph = plans_[number]->backward;
    graph.place(of_queries, call.qkv, answers()[number].sizes);
    graph.place(of_out, call.out);
    graph.place(of_sums, call.sums);
    graph.place(of_out_gradient, call.dout);
    graph.place(of_query_gradients, call.dqkv, answers()[number].sizes);
    return run(graph, call.stream, call.workspace);
  }

 private:
  /// Names of tensors in cuDNN's graphs. Keys and values are the next two behind queries, for gradients, too.
  enum Tensor : std::int64_t {
    of_queries = 1,
    of_out = 4,
    of_sums,
    of_out_gradient,
    of_query_gradients
  };

  /// A graph of cuDNN's, with its plan, and places of its tensors.
  struct Graph {
    cudnn_frontend::graph::Graph graph;
    std::unordered_map<std::int64_t, void*> places;

    void place(std::int64_t tensor, const void* data) { places[tensor] = const_cast<void*>(data); }
    /// Queries, keys and values.
    void place(std::int64_t tensor, const bfloat16* rows, const Sizes& s) {
      place(tensor, rows);
      place(tensor + 1, rows + s.heads * s.channels);
      place(tensor + 2, rows + (s.heads + s.kv_heads) * s.channels);
    }
  };
  struct Plans {
    Graph forward, backward;
  };

  CudnnAttention() = default;

  /// The error of `work`, returned or thrown.
  template <class Work>
  static Error guarded(const Work& work) {
    try {
      return work();
    } catch (const std::exception& thrown) {
      return Error::say(first_line(thrown.what()).c_str());
    } catch (...) {
      return Error::say("something was thrown");
    }
  }
  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
  static Error said(const char* what, cudnn_frontend::error_t status) {
    if (status.is_good()) return {};
    return Error::say(what, ": ", first_line(status.get_message()).c_str());
  }

  Error load(const char* library) {
    void*& loaded = cudnn_frontend::cudnn_dlhandle;
    if (loaded == nullptr) loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) {
      const char* const why = dlerror();
      return Error::say("cuDNN cannot be loaded: ", why == nullptr ? library : why,
                        ". Name its folder in LD_LIBRARY_PATH, or train with our own kernels");
    }
    const std::size_t version = cudnn_frontend::detail::get_backend_version();
    name_ = "cuDNN " + std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) +
            '.' + std::to_string(version % 100);
    if (version >= 90000) return {};
    return Error::say(name(), " was loaded, and cuDNN 9 or later is needed");
  }

  Error open_device() {
    int device = 0, minor = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
      status = cudaDeviceGetAttribute(&capability_, cudaDevAttrComputeCapabilityMajor, device);
    if (status == cudaSuccess)
      status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return Error::say(name(), ": there is no current device: CUDA says ",
                        cudaGetErrorString(status));
    }
    capability_ = 10 * capability_ + minor;
    return make_handle();
  }

  Error make_handle() {
    // Loaded here, or the first step would miss the library: cudnn-frontend asks whether a stream is captured.
    static_cast<void>(cudnn_frontend::detail::get_cuda_symbol(
        cudnn_frontend::detail::CudaLibrary::CUDART, "cudaRuntimeGetVersion"));
    if (cudnn_frontend::detail::create_handle(&handle_) == CUDNN_STATUS_SUCCESS) return {};
    handle_ = nullptr;
    return Error::say(name(), " makes no handle on the current device");
  }

  /// A tensor of (batch, heads, time, channels), whose rows lie `row` elements apart.
  template <class Attributes>
  static Attributes& shape(Attributes& tensor, std::int64_t number, const Sizes& s,
                           std::size_t heads, std::size_t row) {
    const auto at = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    return tensor.set_uid(number)
        .set_dim({at(s.batch), at(heads), at(s.time), at(s.channels)})
        .set_stride({at(s.time * row), at(s.channels), at(row), 1});
  }
  template <class Attributes>
  static Attributes& shape_of_sums(Attributes& tensor, const Sizes& s) {
    const auto at = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    return tensor.set_uid(of_sums)
        .set_dim({at(s.batch), at(s.heads), at(s.time), 1})
        .set_stride({at(s.heads * s.time), at(s.time), 1, 1})
        .set_data_type(cudnn_frontend::DataType_t::FLOAT);
  }

  /// Builds a graph and its plan; workspace_bytes is their workspace.
  Error build(Graph& to, const Sizes& s, bool backward, std::size_t& workspace_bytes) {
    namespace fe = cudnn_frontend;
    using Attributes = fe::graph::Tensor_attributes;
    fe::graph::Graph& graph = to.graph;
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(capability_);
    if (properties_ != nullptr) graph.set_device_properties(properties_);
    const std::size_t row = (s.heads + 2 * s.kv_heads) * s.channels, out_row = s.heads * s.channels;
    const auto input = [&](std::int64_t number, std::size_t heads, std::size_t stride) {
      Attributes attributes;
      return graph.tensor(shape(attributes, number, s, heads, stride));
    };
    const auto queries = input(of_queries, s.heads, row);
    const auto keys = input(of_queries + 1, s.kv_heads, row);
    const auto values = input(of_queries + 2, s.kv_heads, row);
    const float scale = 1 / std::sqrt(static_cast<float>(s.channels));
    if (!backward) {
      const auto how = fe::graph::SDPA_attributes()
                           .set_name("forward")
                           .set_generate_stats(true)
                           .set_attn_scale(scale)
                           .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                           .set_diagonal_band_right_bound(0);
      auto [out, sums] = graph.sdpa(queries, keys, values, how);
      shape(out->set_output(true), of_out, s, s.heads, out_row);
      shape_of_sums(sums->set_output(true), s);
    } else {
      const auto out = input(of_out, s.heads, out_row);
      const auto out_gradient = input(of_out_gradient, s.heads, out_row);
      Attributes attributes;
      const auto sums = graph.tensor(shape_of_sums(attributes, s));
      const auto how = fe::graph::SDPA_backward_attributes()
                           .set_name("backward")
                           .set_attn_scale(scale)
                           .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                           .set_diagonal_band_right_bound(0)
                           .set_deterministic_algorithm(true);
      auto [dq, dk, dv] = graph.sdpa_backward(queries, keys, values, out, out_gradient, sums, how);
      shape(dq->set_output(true), of_query_gradients, s, s.heads, row);
      shape(dk->set_output(true), of_query_gradients + 1, s, s.kv_heads, row);
      shape(dv->set_output(true), of_query_gradients + 2, s, s.kv_heads, row);
    }
    const char* const pass = backward ? "backward" : "forward";
    if (const Error why = said(pass, graph.validate())) return why;
    // Heuristic A's first plan that builds: the same each time with one version of cuDNN on one kind of device.
    if (const Error why = said(pass, handle_ != nullptr ? graph.build_operation_graph(handle_)
                                                        : graph.build_operation_graph()))
      return why;
    if (const Error why = said(pass, graph.create_execution_plans({fe::HeurMode_t::A}))) return why;
    if (const Error why =
            said(pass, handle_ != nullptr ? graph.check_support(handle_) : graph.check_support()))
      return why;
    if (const Error why =
            said(pass, handle_ != nullptr ? graph.build_plans(handle_) : graph.build_plans()))
      return why;
    std::int64_t bytes = 0;
    const Error why = said(pass, graph.get_workspace_size(bytes));
    workspace_bytes = detail::library_room(static_cast<std::size_t>(bytes));
    return why;
  }

  Error run(Graph& graph, cudaStream_t stream, void* workspace) {
    return guarded([&] {
      if (handle_ == nullptr)
        if (const Error why = make_handle()) return why;
      if (!has_stream_ || stream != stream_) {
        if (cudnn_frontend::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS)
          return Error::say(name(), " does not take the stream");
        stream_ = stream;
        has_stream_ = true;
      }
      return said(name(), graph.graph.execute(handle_, graph.places, workspace));
    });
  }

  std::string name_ = "cuDNN";
  int capability_ = 0;  ///< 90: 9.0
  cudnnHandle_t handle_ = nullptr;
  std::shared_ptr<cudnn_frontend::DeviceProperties> properties_;
  cudaStream_t stream_ = nullptr;
  bool has_stream_ = false;
  std::vector<std::unique_ptr<Plans>> plans_;  ///< by number of the answer
};

}}  // namespace adacc::v0_1
