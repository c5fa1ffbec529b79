// SPDX-License-Identifier: MIT
/// Saves a training run, to be resumed bit for bit as if never stopped.
///
/// The format, all little-endian: N parameters of s bytes each (with the padding between them) and, behind them, the S
/// bytes of the optimizer's state, in the layout of the UpdateTable.
///
///     offset  bytes  contents
///          0      8  "ADACCKPT"
///          8      4  version, 3
///         12      4  scalar: 0 float32 (s = 4), 1 float64 (s = 8); with parameters held in bfloat16
///                    (s = 2): 2 of float32, 3 of float64
///         16      8  bytes of the whole file
///         24      8  N
///         32      8  S
///         40      8  updates made
///         48      8  data position, counted by the trainer
///         56      8  random key: seed
///         64      4    step
///         68      4    micro-step (below 65536)
///         72      4    activation
///         76      4    purpose
///         80      8  layout: a hash of the table of parameters
///         88      8  the plan's graph: bytes of all activations
///        104      8  bytes of the model's description
///        112      8    of the optimizer: name, and one line for each part of the state
///        120      8    of the plan (io/plan_text.hpp)
///        128      8    of the evolution (io/evolution_text.hpp)
///        136      8    of the trainer's notes
///        144         these five texts        each of these is filled up
///        144         these five texts        each of these is filled up
///                    parameters, N * s       with zeros to a multiple of 8
///                    state, S bytes
///       last      8  Checksum (file_format.hpp) of all bytes before
///
/// Version 2, with a number of blocks in place of S (each as large as the parameters) and no lines about them, is read
/// as well. Version 1, without optimizers and evolution, is refused. A file is replaced whole (AtomicFile). On reading,
/// no number is used or copied into the model before all sizes have been compared with the file's, and the checksum
/// with the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../core/bfloat16.hpp"
#include "../core/bytes.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/no_memory.hpp"
#include "../core/random.hpp"
#include "../core/view.hpp"
#include "../model/fingerprint.hpp"
#include "../model/parameter.hpp"
#include "file.hpp"
#include "file_format.hpp"

namespace adacc { inline namespace v0_1 {

/// The contents of a checkpoint except for the numbers.
struct CheckpointInfo {
  std::string model;      ///< a description; equal text means equal layers
  std::string optimizer;  ///< the name and, behind it, lines about the state (UpdateTable::text)
  std::string plan;       ///< the policy of each activation, one line each
  std::string evolution;  ///< the memory of an evolving plan; empty for a fixed one
  std::string notes;      ///< the trainer's own, for instance options
  std::uint64_t updates = 0;
  std::uint64_t data_position = 0;
  RandomKey key;
  std::uint64_t layout = 0;   ///< hash of parameters; equal means equal names and shapes
  Fingerprint graph;          ///< graph of the plan
  Dtype scalar = Dtype::f32;  ///< in which layers compute
  /// How the file holds parameters: set by save_checkpoint.
  ParameterForm parameters = ParameterForm::full;
  std::size_t parameter_elems = 0;  ///< set by save_checkpoint
  std::size_t state_bytes = 0;      ///< set by save_checkpoint

  std::string optimizer_name() const { return optimizer.substr(0, optimizer.find('\n')); }
};

namespace detail {

inline constexpr std::uint32_t checkpoint_version = 3, checkpoint_version_of_blocks = 2;
inline constexpr std::size_t checkpoint_header_bytes = 144;
inline constexpr std::size_t checkpoint_text_limit = 64 * MiB;
inline constexpr std::size_t checkpoint_most_blocks = 16;
inline constexpr const char* checkpoint_expected = "an adacc checkpoint of version 2 or 3";

struct CheckpointHeader {
  char magic[8];
  std::uint32_t version, scalar;
  std::uint64_t file_bytes, elems, state, updates, data_position, seed;
  std::uint32_t step, micro_step, activation, purpose;
  std::uint64_t layout, graph_bytes, graph_structure;
  std::uint64_t text_bytes[5];
};
static_assert(sizeof(CheckpointHeader) == checkpoint_header_bytes);

constexpr std::size_t to_eight(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// The texts of a checkpoint, in the file's order.
template <class Info>
auto checkpoint_texts(Info& info) {
  using Text = decltype(&info.model);
  struct Texts {
    Text of[5];
  };
  return Texts{{&info.model, &info.optimizer, &info.plan, &info.evolution, &info.notes}};
}

/// Computes the sizes of the state and of the file described by this header; false on overflow, or if a text is
/// longer than this program writes.
inline bool checkpoint_bytes(const CheckpointHeader& h, std::size_t& state, std::size_t& bytes) {
  std::size_t block = 0, most = 0;
  bytes = checkpoint_header_bytes + 8;
  for (const std::uint64_t text : h.text_bytes) {
    if (text > checkpoint_text_limit) return false;
    bytes += to_eight(counted(text));
  }
  const std::size_t elem_bytes = h.scalar > 1 ? 2 : h.scalar == 0 ? 4 : 8;
  if (!multiply(counted(h.elems), elem_bytes, block) || !add(block, 7, block)) return false;
  block = block / 8 * 8;
  state = counted(h.state);
  if (h.version == checkpoint_version_of_blocks &&
      (h.state >= checkpoint_most_blocks || !multiply(block, state, state)))
    return false;
  return add(state, 7, most) && add(bytes, block, bytes) && add(bytes, most / 8 * 8, bytes);
}

/// Writes pieces, each filled up to a multiple of 8, and adds them to the checksum.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(AtomicFile& file) : file_(file) {}

  Error write(const void* data, std::size_t bytes) {
    const std::size_t whole = bytes / 8 * 8;
    char tail[8] = {};
    sum_.add(data, whole);
    if (Error error = file_.write(data, whole)) return error;
    if (bytes == whole) return {};
    std::memcpy(tail, static_cast<const char*>(data) + whole, bytes - whole);
    sum_.add(tail, 8);
    return file_.write(tail, 8);
  }

  Error finish() {
    const std::uint64_t sum = sum_.value();
    if (Error error = file_.write(&sum, 8)) return error;
    return file_.commit();
  }

 private:
  AtomicFile& file_;
  Checksum sum_;
};

/// Reads the header and the texts after checking the whole file; the next byte is then the first parameter's.
inline Error read_checkpoint(InputFile& file, CheckpointInfo& info) {
  CheckpointHeader header{};
  if (file.size() >= 8) {
    if (Error error = file.read(&header, 8)) return error;
    if (std::memcmp(header.magic, checkpoint_magic, 8) != 0)
      return file.fault("does not start with \"ADACCKPT\": it looks like ", kind_of_file(&header));
  }
  if (file.size() >= 12)
    if (Error error = file.read(&header.version, 4)) return error;
  if (file.size() >= 12 && header.version != checkpoint_version &&
      header.version != checkpoint_version_of_blocks)
    return file.fault("is of version ", header.version, "; this program reads versions ",
                      checkpoint_version_of_blocks, " and ", checkpoint_version, " alone");
  if (file.size() < checkpoint_header_bytes + 8)
    return file.fault("is truncated: it has ", shown(file.size()));
  file.seek(0);
  if (Error error = file.read(&header, sizeof header)) return error;
  std::size_t state = 0, bytes = 0;
  if (header.file_bytes != file.size())
    return file.fault(
        header.file_bytes > file.size() ? "is truncated: " : "is damaged: ", "it has ",
        shown(file.size()), " where its header says ", shown(counted(header.file_bytes)));
  if (header.scalar > 3 || !checkpoint_bytes(header, state, bytes) || bytes != file.size())
    return file.fault("is damaged: the sizes in its header do not add up to the file's");

  file.seek(0);
  Checksum sum;
  std::uint64_t buffer[2048], stored = 0;
  for (std::size_t left = file.size() - 8; left > 0;) {
    const std::size_t count = left < sizeof buffer ? left : sizeof buffer;
    if (Error error = file.read(buffer, count)) return error;
    sum.add(buffer, count);
    left -= count;
  }
  if (Error error = file.read(&stored, 8)) return error;
  if (stored != sum.value())
    return file.fault("is damaged: its checksum does not match its contents");
  if (header.micro_step > 0xFFFF || header.purpose > 0xFF)
    return file.fault("its random key is out of range");
  if (header.graph_bytes > static_cast<std::size_t>(-1))
    return file.fault("its network's activations take ", header.graph_bytes,
                      " bytes, more than this machine can address");

  info.updates = header.updates;
  info.data_position = header.data_position;
  info.key.seed = header.seed;
  info.key.step = header.step;
  info.key.micro_step = static_cast<std::uint16_t>(header.micro_step);
  info.key.activation = header.activation;
  info.key.purpose = static_cast<Purpose>(header.purpose);
  info.layout = header.layout;
  info.graph = {static_cast<std::size_t>(header.graph_bytes), header.graph_structure};
  info.scalar = header.scalar % 2 == 0 ? Dtype::f32 : Dtype::f64;
  info.parameters = header.scalar > 1 ? ParameterForm::bf16 : ParameterForm::full;
  info.parameter_elems = counted(header.elems);
  info.state_bytes = state;
  file.seek(checkpoint_header_bytes);
  const auto texts = checkpoint_texts(info);
  for (std::size_t i = 0; i < 5; ++i) {
    std::string& text = *texts.of[i];
    const std::size_t size = counted(header.text_bytes[i]);
    text.resize(to_eight(size));
    if (Error error = file.read(text.data(), text.size())) return error;
    text.resize(size);
  }
  return {};
}

}  // namespace detail

/// Saves a run: `info`, `elems` parameters (of the scalar type or bfloat16), and `state_bytes` bytes of the
/// optimizer's state. write(put) calls put(ConstBytes) for one piece after the other, first of the parameters and
/// then of the state, and returns the first error. Pieces have a multiple of 8 bytes, except for the last one of
/// either. On an error the file of this name stays unchanged.
template <class T, class Write>
Error save_checkpoint_in_pieces(const std::string& path, const CheckpointInfo& info,
                                std::size_t elems, std::size_t state_bytes, const Write& write) {
  detail::CheckpointHeader header{};
  std::memcpy(header.magic, checkpoint_magic, 8);
  header.version = detail::checkpoint_version;
  if constexpr (dtype_of<T> == Dtype::bf16) header.scalar = info.scalar == Dtype::f64 ? 3 : 2;
  else header.scalar = sizeof(T) == 4 ? 0 : 1;
  header.elems = elems;
  header.state = state_bytes;
  header.updates = info.updates;
  header.data_position = info.data_position;
  header.seed = info.key.seed;
  header.step = info.key.step;
  header.micro_step = info.key.micro_step;
  header.activation = info.key.activation;
  header.purpose = static_cast<std::uint32_t>(info.key.purpose);
  header.layout = info.layout;
  header.graph_bytes = info.graph.bytes;
  header.graph_structure = info.graph.structure;
  const auto texts = detail::checkpoint_texts(info);
  for (std::size_t i = 0; i < 5; ++i) header.text_bytes[i] = texts.of[i]->size();
  std::size_t in_file = 0, bytes = 0;
  if (!detail::checkpoint_bytes(header, in_file, bytes))
    return Error::say(one_line(path).c_str(), ": a text of more than ",
                      shown(detail::checkpoint_text_limit), " cannot be saved");
  header.file_bytes = bytes;

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  detail::CheckpointWriter out(*file);
  if (Error error = out.write(&header, sizeof header)) return error;
  for (const std::string* text : texts.of)
    if (Error error = out.write(text->data(), text->size())) return error;
  const auto put = [&](ConstBytes piece) { return out.write(piece.data(), piece.size()); };
  if (Error error = write(put)) return error;
  return out.finish();
}

/// Saves parameters in one piece; write_state(put) puts the pieces of the state.
template <class T, class WriteState>
Error save_checkpoint(const std::string& path, const CheckpointInfo& info, View<const T> params,
                      std::size_t state_bytes, const WriteState& write_state) {
  return save_checkpoint_in_pieces<T>(path, info, params.size(), state_bytes, [&](const auto& put) {
    const auto* const bytes =
        static_cast<const std::byte*>(static_cast<const void*>(params.data()));
    const Error why = put(ConstBytes(bytes, Shape(params.size() * sizeof(T))));
    return why ? why : write_state(put);
  });
}

/// Saves parameters and state in one piece each.
template <class T>
Error save_checkpoint(const std::string& path, const CheckpointInfo& info, View<const T> params,
                      ConstBytes state) {
  return save_checkpoint<T>(path, info, params, state.size(),
                            [&](const auto& put) { return put(state); });
}

/// A checkpoint whose whole file has been checked, before numbers are read.
class CheckpointFile {
 public:
  CheckpointFile() = default;

  static Result<CheckpointFile> open(const std::string& path) {
    return detail::or_no_memory("to read a checkpoint", [&]() -> Result<CheckpointFile> {
      Result<InputFile> file = InputFile::open(path, detail::checkpoint_expected);
      if (!file) return file.error;
      CheckpointFile opened;
      opened.file_ = static_cast<InputFile&&>(*file);
      if (Error error = detail::read_checkpoint(opened.file_, opened.info_)) return error;
      return static_cast<CheckpointFile&&>(opened);  // nvcc would copy it
    });
  }

  const CheckpointInfo& info() const { return info_; }

  /// An error unless this is a checkpoint of the run described by `wanted`: the model, if both are named, the layout
  /// of parameters, and the optimizer, in any form of the state.
  Error examine(const CheckpointInfo& wanted) const {
    const std::string path = one_line(file_.path(), 100);
    const bool named = !info_.model.empty() && !wanted.model.empty();
    if (named && info_.model != wanted.model)
      return Error::say("checkpoint ", path.c_str(), " is of \"", one_line(info_.model, 80).c_str(),
                        "\", this model is \"", one_line(wanted.model, 80).c_str(), "\"");
    if (info_.parameter_elems != wanted.parameter_elems || info_.scalar != wanted.scalar)
      return Error::say("checkpoint ", path.c_str(), " holds ", info_.parameter_elems, " ",
                        name_of(info_.scalar), " parameters, this model has ",
                        wanted.parameter_elems, " ", name_of(wanted.scalar));
    if (info_.layout != wanted.layout)
      return Error::say("checkpoint ", path.c_str(),
                        " holds as many parameters as this model has, ", info_.parameter_elems,
                        ", but of other names or shapes");
    if (info_.optimizer_name() != wanted.optimizer_name())
      return Error::say("checkpoint ", path.c_str(), " holds the state of ",
                        one_line(info_.optimizer_name(), 40).c_str(), ", this optimizer is ",
                        one_line(wanted.optimizer_name(), 40).c_str());
    return {};
  }

  /// Reads the numbers, once: the parameters, and the optimizer's state in the saved form.
  template <class T>
  Error read(View<T> params, Bytes state) {
    if (state.size() != info_.state_bytes)
      return Error::misuse("the checkpoint has ", info_.state_bytes,
                           " bytes of state, and was asked for ", state.size());
    if (Error error = read_parameters(params)) return error;
    return read_state(0, state);
  }

  /// Reads the parameters alone, from either form to either form: rounded to nearest if to bfloat16, exact if from
  /// bfloat16.
  template <class T>
  Error read_parameters(View<T> params) {
    if (params.size() == info_.parameter_elems) return read_parameters(0, params);
    return Error::misuse("the checkpoint has ", info_.parameter_elems,
                         " parameters, and was asked for ", params.size());
  }

  /// Reads the parameters from element `first` of the block on.
  template <class T>
  Error read_parameters(std::size_t first, View<T> params) {
    constexpr bool to_bf16 = dtype_of<T> == Dtype::bf16;
    if ((!to_bf16 && info_.scalar != dtype_of<T>) || first > info_.parameter_elems ||
        params.size() > info_.parameter_elems - first)
      return Error::misuse("the checkpoint has ", info_.parameter_elems, " parameters of ",
                           name_of(info_.scalar), ", and was asked for ", params.size(), " of ",
                           name_of(dtype_of<T>), " behind ", first);
    const bool from_bf16 = info_.parameters == ParameterForm::bf16;
    const std::size_t saved = from_bf16 ? sizeof(bfloat16) : bytes_of(info_.scalar);
    const std::size_t begin = begin_of_state() - detail::to_eight(info_.parameter_elems * saved);
    file_.seek(begin + first * saved);
    if (from_bf16 == to_bf16) return file_.read(params.data(), params.size() * sizeof(T));
    if constexpr (to_bf16) {
      if (info_.scalar == Dtype::f64) return convert_parameters<double>(params);
      return convert_parameters<float>(params);
    } else {
      return convert_parameters<bfloat16>(params);
    }
  }

  /// Reads a part of the state, from byte `from` on.
  Error read_state(std::size_t from, Bytes to) {
    if (from > info_.state_bytes || to.size() > info_.state_bytes - from)
      return Error::misuse("the checkpoint has ", info_.state_bytes,
                           " bytes of state, and was asked for ", to.size(), " behind ", from);
    file_.seek(begin_of_state() + from);
    return file_.read(to.data(), to.size());
  }

 private:
  /// State and checksum are the end of the file.
  std::size_t begin_of_state() const {
    return file_.size() - 8 - detail::to_eight(info_.state_bytes);
  }

  /// Converts some numbers at a time, to hold none twice.
  template <class Saved, class T>
  Error convert_parameters(View<T> params) {
    Saved numbers[4096];
    for (std::size_t i = 0; i < params.size();) {
      const std::size_t left = params.size() - i, count = left < 4096 ? left : 4096;
      if (Error error = file_.read(numbers, count * sizeof(Saved))) return error;
      for (std::size_t j = 0; j < count; ++j, ++i) {
        if constexpr (dtype_of<T> == Dtype::bf16)
          params[i] = to_bfloat16(static_cast<float>(numbers[j]));
        else params[i] = static_cast<T>(to_float(numbers[j]));
      }
    }
    return {};
  }

  InputFile file_;
  CheckpointInfo info_;
};

/// Whether the file at `path` begins like a checkpoint.
inline bool is_checkpoint(const std::string& path) {
  char start[sizeof checkpoint_magic] = {};
  Result<InputFile> file = InputFile::open(path, detail::checkpoint_expected);
  return file && file->size() >= sizeof start && !file->read(start, sizeof start) &&
         std::memcmp(start, checkpoint_magic, sizeof start) == 0;
}

/// The description in a checkpoint, after a check of the whole file: enough to build the model.
inline Result<CheckpointInfo> read_checkpoint_info(const std::string& path) {
  return detail::or_no_memory("to read a checkpoint", [&]() -> Result<CheckpointInfo> {
    Result<CheckpointFile> file = CheckpointFile::open(path);
    if (!file) return file.error;
    return file->info();
  });
}

}}  // namespace adacc::v0_1
