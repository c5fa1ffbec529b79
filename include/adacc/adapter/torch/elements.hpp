// SPDX-License-Identifier: MIT
/// Elements of a tensor in fewer bytes, in the form chosen by a policy.
///
/// A codec takes rows and columns. A saved tensor has strides and may be a view, and only the saved part of the
/// storage is encoded. Columns are the innermost dimensions, merged until there are 128 of them; a remainder shorter
/// than a row is retained. Half precision, unknown to codecs, passes through floats, 64 Ki elements at a time, with
/// little extra memory.
///
/// Blobs are tensors of libtorch, so libtorch's counts and limits of memory include them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "keep.hpp"
#include "lossless.hpp"
#include "row_reports.hpp"
#include "side_rows.hpp"
#include "threads.hpp"
#include "tolerance.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Columns of the codec's matrix made of `n` neighbouring elements of `tensor`'s storage.
inline std::size_t codec_columns(const at::Tensor& tensor, std::size_t n) {
  constexpr std::size_t enough = 128, most = 8192, fewest_rows = 16;
  const at::Tensor whole = tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
  std::vector<std::pair<std::size_t, std::size_t>> dims;  // stride, size
  for (std::int64_t d = 0; d < whole.dim(); ++d)
    if (whole.size(d) > 1)
      dims.emplace_back(static_cast<std::size_t>(whole.stride(d)),
                        static_cast<std::size_t>(whole.size(d)));
  std::sort(dims.begin(), dims.end());
  std::size_t cols = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != cols || cols >= enough || cols * size > most) break;
    cols *= size;
  }
  return cols < 32 || n / cols < fewest_rows ? enough : cols;
}

/// Requirements on an encoding of elements.
struct ElementDemands {
  /// The largest squared error by square: of a row where each row counts alone, and of all. The gradient of a linear
  /// layer's weight has about the error of the layer's input. Normal numbers in 4 bits have an error of 0.008;
  /// products of two such numbers, 0.016.
  static constexpr double most_of_row = 0.05, most_of_all = 0.0125;

  bool watched = false;  ///< otherwise no check is made
  Demands what;
  std::size_t row = 1;  ///< elements of a row, a part of the codec's

  /// The codec to use in the place of the planned one.
  const TensorCodec& codec(const TensorCodec& planned) const {
    return watched && what.gates ? keeping_gates(planned) : planned;
  }

  /// The error of an open gate next to zero is a step, rather than at most half of one.
  double share() const { return what.gates ? 4 : 1; }
  bool met_by(const EncodingError& error) const {
    return error.numbers && share() * error.whole <= most_of_all &&
           (what.rows == 0 || error.row <= most_of_row) &&
           (what.step == 0 || error.step <= what.step) &&
           (what.mean_square == 0 || error.mean_square <= static_cast<double>(what.mean_square));
  }
};

/// The form in the place of `keep` on a device, where the host looks at no values. If each row counts, scales serve one
/// row each. If a demand depends on values, the form has the next milder number of bits, up to 16. No form is known for
/// demands on 1 - x. A device checks the rows of such a form (side_rows.hpp), and has room for few failures.
inline Keep unjudged(Keep keep, const Demands& demands) {
  const auto by_rows = [](Keep some) {
    return some.has_form_for_unlike_rows() ? some.milder() : some;
  };
  if (keep.codec() == nullptr) return keep;
  if (demands.complement) return {};
  if (keep.codec() == &tensor_codec<Bf16>) return keep;
  if (demands.step != 0 || demands.mean_square != 0) keep = by_rows(keep).milder();
  return demands.rows != 0 ? by_rows(keep) : keep;
}

/// Consecutive elements, encoded.
class EncodedElements {
 public:
  /// True if there is nothing here.
  bool empty() const { return !blob_.defined() && !left(); }
  std::size_t bytes() const {
    return blob_.defined() ? static_cast<std::size_t>(blob_.numel()) : bytes_left_;
  }
  /// The memory of the blob.
  at::Storage storage() const { return blob_.storage(); }
  /// Gives the blob's memory away; until come_back() nothing can be decoded.
  void leave() {
    bytes_left_ = bytes();
    blob_.reset();
  }
  bool left() const { return bytes_left_ > 0; }
  void come_back(const at::Storage& storage) {
    blob_ = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(device_));
    blob_.set_(storage, 0, {static_cast<std::int64_t>(std::exchange(bytes_left_, 0))}, {1});
  }
  /// Whether decode returns the bits given to encode.
  bool lossless() const { return codec_ == nullptr || codec_->info->lossless; }
  /// The codec's name, or, without a codec, "bits", "narrow" or "none".
  const char* form() const {
    return empty()             ? "none"
           : codec_ != nullptr ? codec_->info->name
           : form_.bits == 1   ? "bits"
                               : "narrow";
  }

  /// Bytes of `n` elements of `type` in rows of `cols` elements, under `codec`; 0 if the codec does not take them.
  static std::size_t bytes_under(const TensorCodec& codec, c10::ScalarType type, std::size_t n,
                                 std::size_t cols, c10::Device device = c10::Device(at::kCPU)) {
    EncodedElements elements;
    elements.type_ = type, elements.n_ = n, elements.cols_ = cols, elements.device_ = device;
    return elements.has_numbers() ? elements.bytes_with(codec) : 0;
  }
  /// Bytes in use beside the elements and the blob, while one is made from the other by a codec.
  static std::size_t work_bytes(c10::ScalarType type, std::size_t n, std::size_t cols,
                                c10::Device device) {
    EncodedElements elements;
    elements.type_ = type, elements.n_ = n, elements.cols_ = cols, elements.device_ = device;
    return elements.is_half() ? elements.buffer_rows() * cols * sizeof(float) : 0;
  }

  /// Encodes `n` elements at `x`, in rows of `cols` elements, as `keep` says. Stays empty if no bytes would be saved.
  /// Returns false, and stays empty, if the codec takes the elements, but does not meet `demands`.
  bool encode(Keep keep, c10::ScalarType type, const void* x, std::size_t n, std::size_t cols,
              const ElementDemands& demands = {}) {
    type_ = type, n_ = n, cols_ = cols, codec_ = nullptr;
    if (keep.untouched() || n == 0) return true;
    Threads threads;
    Cpu cpu{ExecutorRef(threads)};
    form_ = lossless_form(cpu, x, n, elem_bytes(), c10::isIntegralType(type, true),
                          c10::isSignedType(type));
    if (form_.bits != 0 && form_.bytes(n) < n * elem_bytes()) {
      allocate(form_.bytes(n));
      pack_lossless(cpu, form_, x, n, elem_bytes(), blob_.data_ptr());
      return true;
    }
    if (keep.codec() == nullptr || !has_numbers()) return true;
    const TensorCodec& codec = demands.codec(*keep.codec());
    const std::size_t total = bytes_with(codec);
    if (total == 0 || total >= n_ * elem_bytes()) return true;
    allocate(total);
    const at::Tensor floats = buffer();
    const Outcome how =
        encode_with(cpu, codec, x, static_cast<std::byte*>(blob_.data_ptr()), demands,
                    floats.defined() ? static_cast<float*>(floats.data_ptr()) : nullptr);
    if (how == Outcome::encoded) codec_ = &codec;
    else blob_.reset();  // the codec does not take such a tensor, which is retained
    return how != Outcome::declined;
  }

  /// encode() on a device, queued on the current stream. The host looks at no value: floating-point numbers wait in the
  /// codec's bytes, booleans in bits, and for all other types nothing is encoded. If the demands are watched, the device
  /// checks the rows, keeps failed rows exactly as far as there is room, and reports to `checked` (null: no report).
  void encode_on(const DeviceWork& work, Keep keep, c10::ScalarType type, const void* x,
                 std::size_t n, std::size_t cols, const ElementDemands& demands,
                 std::optional<detail::CheckedStorage>* checked = nullptr) {
    type_ = type, n_ = n, cols_ = cols, codec_ = nullptr, device_ = work.device();
    if (keep.untouched() || n == 0) return;
    if (type == c10::ScalarType::Bool) {
      form_ = {1, 0, 1};
      if (form_.bytes(n) >= n) return;
      allocate(form_.bytes(n));
      return demand(work.launch("pack_bits", div_up(form_.bytes(n), DeviceWork::threads), n, x,
                                blob_.data_ptr()));
    }
    if (keep.codec() == nullptr || !has_numbers() || type == c10::ScalarType::Double) return;
    const TensorCodec& codec = demands.codec(*keep.codec());
    const std::size_t total = codec.encode_on != nullptr ? bytes_with(codec) : 0;
    if (total == 0 || total >= n_ * elem_bytes()) return;
    allocate(total);
    auto* to = static_cast<std::byte*>(blob_.data_ptr());
    const SideRows side = side_rows(codec);
    std::byte* const kept = side.room > 0 ? to + total - side.bytes : nullptr;
    const bool checks = kept != nullptr && demands.watched;
    if (checks && checked != nullptr) {
      checked->emplace(work.is_captured());
      (*checked)->room = side.room;
      (*checked)->rows = n_ / cols_;
      (*checked)->most_of_all = ElementDemands::most_of_all / demands.share();
    }
    const at::Tensor floats = buffer();
    for_each_piece(codec, [&](std::size_t first, Shape shape, std::size_t bytes) {
      const void* const exact = static_cast<const std::byte*>(x) + first * elem_bytes();
      const void* here = exact;
      if (floats.defined()) {
        demand(work.launch("half_to_float", div_up(shape.elems(), DeviceWork::threads),
                           shape.elems(), exact, floats.data_ptr()));
        here = floats.data_ptr();
      }
      demand(codec.encode_on(work, working_type(), here, shape, Bytes(to, Shape(bytes)),
                             first == 0 ? kept : nullptr));
      if (checks) {
        const auto report =
            checked != nullptr && *checked ? (*checked)->place() : detail::RowReports::Place();
        demand(check_rows(work, codec, demands,
                          {.exact = exact,
                           .encoded = here,
                           .blob = to,
                           .shape = shape,
                           .first = first / cols_,
                           .side = side,
                           .kept = kept,
                           .report = report}));
      }
      to += align_up(bytes);
    });
    demand(work.copy(to, static_cast<const std::byte*>(x) + n_ * elem_bytes() - tail_bytes(),
                     tail_bytes()));
    codec_ = &codec;
  }

  /// decode() after encode_on(), on the same stream.
  void decode_on(const DeviceWork& work, void* x) const {
    if (codec_ == nullptr)
      return demand(
          work.launch("unpack_bits", div_up(n_, DeviceWork::threads), n_, blob_.data_ptr(), x));
    const auto* from = static_cast<const std::byte*>(blob_.data_ptr());
    const at::Tensor floats = buffer();
    for_each_piece(*codec_, [&](std::size_t first, Shape shape, std::size_t bytes) {
      void* const to = static_cast<std::byte*>(x) + first * elem_bytes();
      void* const here = floats.defined() ? floats.data_ptr() : to;
      demand(codec_->decode_on(work, working_type(), ConstBytes(from, Shape(bytes)), here, shape));
      if (floats.defined())
        demand(work.launch("float_to_half", div_up(shape.elems(), DeviceWork::threads),
                           shape.elems(), here, to));
      from += align_up(bytes);
    });
    demand(work.copy(static_cast<std::byte*>(x) + n_ * elem_bytes() - tail_bytes(), from,
                     tail_bytes()));
    const SideRows side = side_rows(*codec_);
    if (side.room == 0) return;
    const std::byte* const kept =
        static_cast<const std::byte*>(blob_.data_ptr()) + bytes() - side.bytes;
    demand(
        work.launch("put_rows", std::min(side.room, most_put_blocks), side, kept, row_words(), x));
  }

  /// Whether encode() would not decline. Takes no memory of libtorch.
  static bool stands(const TensorCodec& codec, c10::ScalarType type, const void* x, std::size_t n,
                     std::size_t cols, const ElementDemands& demands) {
    EncodedElements trial;
    trial.type_ = type, trial.n_ = n, trial.cols_ = cols;
    if (!trial.has_numbers()) return true;
    Threads threads;
    Cpu cpu{ExecutorRef(threads)};
    const std::size_t total = trial.bytes_with(codec);
    if (total == 0) return true;
    std::vector<std::byte> memory(total + alignment);
    std::vector<float> floats(trial.is_half() ? trial.buffer_rows() * cols : 0);
    void* place = memory.data();
    std::size_t space = memory.size();
    return trial.encode_with(cpu, demands.codec(codec), x,
                             static_cast<std::byte*>(std::align(alignment, total, place, space)),
                             demands, floats.data()) != Outcome::declined;
  }

  /// Writes the elements to `x`, 64-byte aligned.
  void decode(void* x) const {
    Threads threads;
    Cpu cpu{ExecutorRef(threads)};
    if (codec_ == nullptr)
      return unpack_lossless(cpu, form_, blob_.data_ptr(), n_, elem_bytes(), x);
    const auto* from = static_cast<const std::byte*>(blob_.data_ptr());
    const at::Tensor floats = buffer();
    for_each_piece(*codec_, [&](std::size_t first, Shape shape, std::size_t bytes) {
      std::byte* to = static_cast<std::byte*>(x) + first * elem_bytes();
      const ConstBytes blob(from, Shape(bytes));
      void* here = floats.defined() ? floats.data_ptr() : to;
      const Error why = codec_->decode(cpu, working_type(), blob, here, shape);
      TORCH_CHECK(!why, "adacc: ", why.text());
      if (floats.defined())
        to_half(cpu, static_cast<const float*>(here), shape.elems(),
                static_cast<c10::Half*>(static_cast<void*>(to)));
      from += align_up(bytes);
    });
    std::memcpy(static_cast<std::byte*>(x) + n_ * elem_bytes() - tail_bytes(), from, tail_bytes());
  }

 private:
  std::size_t elem_bytes() const { return c10::elementSize(type_); }
  /// Elements behind the last whole row stay as they are.
  std::size_t tail_bytes() const { return n_ % cols_ * elem_bytes(); }
  /// An encode that fails leaves nothing behind, and the exception leaves through the operator.
  void demand(const Error& error) {
    if (error) blob_.reset();
    std::as_const(*this).demand(error);
  }
  void demand(const Error& error) const { TORCH_CHECK(!error, error.text()); }
  /// Whether codecs take the type, directly or through floats.
  bool has_numbers() const {
    using enum c10::ScalarType;
    return type_ == Float || type_ == Double || type_ == BFloat16 || type_ == Half;
  }
  bool is_half() const { return type_ == c10::ScalarType::Half; }
  c10::ScalarType working_type() const { return is_half() ? c10::ScalarType::Float : type_; }
  Dtype dtype() const {
    switch (working_type()) {
      case c10::ScalarType::Double: return Dtype::f64;
      case c10::ScalarType::BFloat16: return Dtype::bf16;
      default: return Dtype::f32;
    }
  }

  /// Calls piece(first element, shape, bytes of the piece's blob) for all rows.
  template <class Piece>
  void for_each_piece(const TensorCodec& codec, const Piece& piece) const {
    const std::size_t rows = n_ / cols_, step = is_half() ? piece_rows() : rows;
    for (std::size_t r = 0; r < rows; r += step) {
      const std::size_t here = std::min(step, rows - r);
      piece(r * cols_, Shape(here, cols_), codec.info->encoded_bytes(here, cols_, dtype()));
    }
  }
  /// On a device, a piece is three launches.
  std::size_t piece_rows() const {
    const std::size_t elements = device_.is_cpu() ? 64 * KiB : MiB;
    return std::max<std::size_t>(1, elements / (64 * cols_)) * 64;  // codecs like blocks of 64 rows
  }

  std::size_t buffer_rows() const {
    return std::min(piece_rows(), std::max<std::size_t>(1, n_ / cols_));
  }

  /// 0: the codec does not take such elements.
  std::size_t bytes_with(const TensorCodec& codec) const {
    if (codec.info->encoded_bytes(1, 1, dtype()) == 0) return 0;
    std::size_t total = tail_bytes();
    for_each_piece(codec, [&](std::size_t, Shape, std::size_t bytes) { total += align_up(bytes); });
    const SideRows side = side_rows(codec);
    return side.room > 0 ? align_up(total) + side.bytes : total;
  }

  /// The room for exact rows at the end of a device's blob; a lossless codec needs none.
  SideRows side_rows(const TensorCodec& codec) const {
    if (device_.is_cpu() || codec.info->lossless || n_ < cols_) return {};
    return {n_ / cols_, cols_ * elem_bytes()};
  }
  std::size_t row_words() const { return cols_ * elem_bytes() / 2; }

  /// A piece, freshly encoded on a device.
  struct EncodedRows {
    const void* exact;    ///< the elements in their own type
    const void* encoded;  ///< the same elements in the codec's type
    const std::byte* blob;
    Shape shape;
    std::size_t first;  ///< the number of the first row
    SideRows side;
    std::byte* kept;  ///< the memory of `side`
    detail::RowReports::Place report;
  };
  /// Queues the check of `rows`.
  Error check_rows(const DeviceWork& work, const TensorCodec& codec, const ElementDemands& demands,
                   const EncodedRows& rows) const {
    return with_device_element(working_type(), [&]<class T>(T, const char* name) {
      const RowScales scales = codec.scales(working_type(), rows.shape);
      RowCheck<T> job{};
      job.x = static_cast<const T*>(rows.encoded);
      job.blob = rows.blob;
      job.rows = rows.shape.rows(), job.cols = rows.shape.cols();
      job.part = scales.group > 0 ? demands.row : cols_;
      job.scales = scales;
      job.limits = {demands.what.rows > 0 ? ElementDemands::most_of_row : 0, demands.what.step,
                    static_cast<double>(demands.what.mean_square)};
      job.side = rows.side;
      job.kept = rows.kept;
      job.exact = static_cast<const std::uint16_t*>(rows.exact);
      job.words = row_words();
      job.first = rows.first;
      // Each piece begins with a block.
      job.blocks = static_cast<std::uint32_t>(div_up(n_ / cols_, scales.rows_at_once()));
      job.report = rows.report.at, job.stamp = rows.report.stamp;
      return work.launch(std::string("check_rows") + name, div_up(job.rows, scales.rows_at_once()),
                         job);
    });
  }

  enum class Outcome { encoded, refused, declined };
  static constexpr std::size_t most_put_blocks = 128;  ///< rows to put back are rare

  /// Writes bytes_with(codec) bytes. Half precision passes through `floats`.
  Outcome encode_with(Cpu& cpu, const TensorCodec& codec, const void* x, std::byte* to,
                      const ElementDemands& demands, float* floats) const {
    Outcome how = Outcome::encoded;
    for_each_piece(codec, [&](std::size_t first, Shape shape, std::size_t bytes) {
      if (how != Outcome::encoded) return;
      const std::byte* from = static_cast<const std::byte*>(x) + first * elem_bytes();
      const void* here = from;
      if (is_half()) {
        to_float_buffer(cpu, static_cast<const c10::Half*>(static_cast<const void*>(from)),
                        shape.elems(), floats);
        here = floats;
      }
      const Bytes blob(to, Shape(bytes));
      if (codec.encode(cpu, working_type(), here, shape, blob)) {
        how = Outcome::refused;
        return;
      }
      if (demands.watched &&
          !demands.met_by(codec.error(cpu, working_type(), here, shape,
                                      {demands.row, demands.what.complement}, blob))) {
        how = Outcome::declined;
        return;
      }
      to += align_up(bytes);
    });
    if (how == Outcome::encoded)
      std::memcpy(to, static_cast<const std::byte*>(x) + n_ * elem_bytes() - tail_bytes(),
                  tail_bytes());
    return how;
  }

  void allocate(std::size_t bytes) {
    blob_ = at::empty({static_cast<std::int64_t>(bytes)},
                      at::TensorOptions().dtype(at::kByte).device(device_));
  }
  /// Memory for half precision as floats; undefined for other types.
  at::Tensor buffer() const {
    if (!is_half()) return {};
    return at::empty({static_cast<std::int64_t>(buffer_rows() * cols_)},
                     at::TensorOptions().dtype(at::kFloat).device(device_));
  }
  static void to_float_buffer(const Cpu& cpu, const c10::Half* from, std::size_t n, float* to) {
    packing::in_tiles(cpu, n, [&](std::size_t, std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) to[i] = static_cast<float>(from[i]);
    });
  }
  /// Numbers rounded by a codec above the largest half stay finite.
  static void to_half(const Cpu& cpu, const float* from, std::size_t n, c10::Half* to) {
    constexpr float largest = 65504;
    packing::in_tiles(cpu, n, [&](std::size_t, std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i)
        to[i] = static_cast<c10::Half>(
            std::isfinite(from[i]) ? std::clamp(from[i], -largest, largest) : from[i]);
    });
  }

  at::Tensor blob_;
  std::size_t bytes_left_ = 0;  // of a blob elsewhere
  c10::Device device_{c10::DeviceType::CPU};
  c10::ScalarType type_ = c10::ScalarType::Float;
  std::size_t n_ = 0, cols_ = 1;
  const TensorCodec* codec_ = nullptr;
  LosslessForm form_;
};

}}}  // namespace adacc::v0_1::torch
