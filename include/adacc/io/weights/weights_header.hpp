// SPDX-License-Identifier: MIT
/// Writes weights as a C header, for engines and devices without files.
///
/// Each tensor is an array of its shape, of float or, for int8, signed char; a table lists all tensors with names,
/// shapes and addresses. Numbers are hexadecimal, as C99 and C++17 read them, so compilers make the same bits. In C++
/// they are constant expressions, too:
///
///     player_CONST float player_linear_weight[64][5] = {…};  // static const, or static constexpr
///     …
///     typedef struct { const char *name; int rank; size_t shape[4]; size_t elems; const float *data; }
///       player_tensor;
///     enum { player_tensor_count = 6 };
///     player_CONST player_tensor player_tensors[6] = {{"linear.weight", 2, {64, 5, 0, 0}, 320,
///       &player_linear_weight[0][0]}, …};
///
/// If there are tensors of int8, an entry has one more member, `const signed char *int8_data`; one of `int8_data` and
/// `data` is null, depending on the tensor's type.
///
/// An identifier is the prefix, `_` and the tensor's name, with `_` in place of each character except letters and
/// digits. It is cut after 63 characters, because C tells no more of them apart. If the identifier is taken, `_2`,
/// `_3` and so on is added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "../../core/error.hpp"
#include "../../core/view.hpp"
#include "../../model/graph.hpp"
#include "../../model/trained_by_name.hpp"
#include "../file.hpp"
#include "write_safetensors.hpp"

namespace adacc { inline namespace v0_1 {

/// The parameters of a graph in their block, under their names (model/trained_by_name.hpp). Storage shared by several
/// layers appears once, under the first layer's name.
inline std::vector<NamedTensor> named_parameters(const Graph& graph, View<const float> params) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& parameter = graph.parameters[i];
    if (parameter.owner)
      tensors.emplace_back(parameter_name(graph, i),
                           View<const float>(params.data() + parameter.offset, parameter.shape));
  }
  return tensors;
}

namespace detail {

constexpr bool is_c_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_c_digit(char c) { return c >= '0' && c <= '9'; }

/// `text` with `_` in place of each character unfit for an identifier.
inline std::string as_c_name(std::string text) {
  for (char& c : text)
    if (!is_c_letter(c) && !is_c_digit(c)) c = '_';
  return text;
}

/// `text` as a string literal of C: a question mark might begin a trigraph.
inline std::string c_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || c == '?') out += '\\', out += c;
    else if (code >= 32 && code < 127) out += c;
    else {
      out += '\\';
      for (const int shift : {6, 3, 0}) out += static_cast<char>('0' + ((code >> shift) & 7));
    }
  }
  return out + "\"";
}

/// Appends a finite number, exactly.
inline void append_c_float(std::string& out, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t fraction = (bits & 0x7FFFFF) << 1;  // six hexadecimal digits
  const int exponent = static_cast<int>((bits >> 23) & 0xFF);
  if (bits >> 31 != 0) out += '-';
  out += exponent == 0 ? "0x0" : "0x1";
  if (fraction != 0) {
    char digits[6];
    int count = 0;
    for (int i = 0; i < 6; ++i) {
      digits[i] = "0123456789abcdef"[(fraction >> (20 - 4 * i)) & 15];
      if (digits[i] != '0') count = i + 1;
    }
    out += '.';
    out.append(digits, static_cast<std::size_t>(count));
  }
  out += 'p';
  out += std::to_string(exponent != 0 ? exponent - 127 : fraction != 0 ? -126 : 0);
  out += 'f';
}

/// Unique names for the declarations of the header.
class CNames {
 public:
  /// `taken` are names defined by the header itself; names of <stddef.h> and C++ are added.
  explicit CNames(std::set<std::string> taken)
      : taken_(static_cast<std::set<std::string>&&>(taken)) {
    for (const char* word :
         {"size_t",           "ptrdiff_t",     "wchar_t",      "max_align_t", "char8_t",
          "char16_t",         "char32_t",      "static_cast",  "const_cast",  "dynamic_cast",
          "reinterpret_cast", "static_assert", "thread_local", "co_await",    "co_return",
          "co_yield",         "and_eq",        "or_eq",        "not_eq",      "xor_eq"})
      taken_.insert(word);
  }

  std::string unique(const std::string& wish) {
    constexpr std::size_t most = 63;
    std::string name = wish.substr(0, most);
    for (int i = 2; !taken_.insert(name).second; ++i) {
      const std::string number = "_" + std::to_string(i);
      name = wish.substr(0, most - number.size()) + number;
    }
    return name;
  }

 private:
  std::set<std::string> taken_;
};

/// Writes text in large pieces.
class TextWriter {
 public:
  explicit TextWriter(AtomicFile& file) : file_(file) {}
  std::string text;  ///< text to be written next

  Error flush(std::size_t most = 0) {
    if (text.size() <= most) return {};
    const Error why = file_.write(text.data(), text.size());
    text.clear();
    return why;
  }

 private:
  AtomicFile& file_;
};

inline void append_c_number(std::string& out, float value) { append_c_float(out, value); }
inline void append_c_number(std::string& out, std::int8_t value) { out += std::to_string(value); }

/// Appends the rows of an array from axis `axis` on, braces and all.
template <class T>
Error append_c_array(TextWriter& out, Shape shape, int axis, const T*& next) {
  const std::string indent(static_cast<std::size_t>(2 * axis + 2), ' ');
  out.text += "{";
  for (std::size_t i = 0; i < shape[axis]; ++i) {
    if (axis + 1 < shape.rank()) {
      out.text += (i == 0 ? "\n" : ",\n") + indent;
      if (const Error why = append_c_array(out, shape, axis + 1, next)) return why;
      continue;
    }
    constexpr std::size_t line = 32 / sizeof(T) / (sizeof(T) == 1 ? 2 : 1);
    if (i != 0) out.text += i % line == 0 ? ",\n" + indent : std::string(", ");
    append_c_number(out.text, *next++);
    if (const Error why = out.flush(64 * KiB)) return why;
  }
  out.text += "}";
  return {};
}

inline bool is_finite_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return (bits & 0x7F800000) != 0x7F800000;
}

/// Why `tensors` cannot be arrays of the header `path`; empty if they can.
inline Error check_c_tensors(const char* path, const std::vector<NamedTensor>& tensors) {
  if (tensors.empty()) return Error::misuse(path, ": there are no tensors to write");
  std::set<std::string> names;
  for (const NamedTensor& tensor : tensors) {
    const std::string name = one_line(tensor.name, 60);
    if (!names.insert(tensor.name).second)
      return Error::misuse(path, ": two tensors are called \"", name.c_str(), "\"");
    if (tensor.type != StoredType::f32 && tensor.type != StoredType::i8)
      return Error::misuse(path, ": tensor \"", name.c_str(), "\" is of ", name_of(tensor.type),
                           "; a C header takes F32 and I8");
    const std::size_t elems = tensor.shape.elems();
    if (elems == 0)
      return Error::misuse(path, ": tensor \"", name.c_str(),
                           "\" has no elements, and C no empty arrays");
    if (tensor.type == StoredType::i8) continue;
    const auto* const values = static_cast<const float*>(tensor.data);
    for (std::size_t i = 0; i < elems; ++i)
      if (!is_finite_bits(values[i]))
        return Error::say(path, ": tensor \"", name.c_str(), "\" is not finite at element ", i,
                          ", which C cannot write down");
  }
  return {};
}

/// The default prefix of identifiers in the header `path`: the name without the ending.
inline std::string c_prefix_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  name = as_c_name(name.substr(0, name.find('.')));
  if (name.empty() || !is_c_letter(name[0])) name = "weights" + name;
  return name.substr(0, 31);
}

}  // namespace detail

/// Writes a header with these tensors of float32 and int8, beside the old file first, which stays if anything fails.
/// Identifiers begin with `prefix`, which must be an identifier and begin with a letter; if empty, with the file's
/// name. Refuses NaN and infinities, tensors without elements, and equal names.
inline Error write_weights_header(const std::string& path, const std::vector<NamedTensor>& tensors,
                                  std::string prefix = {}) {
  const std::string shown_path = one_line(path, 100);
  if (prefix.empty()) prefix = detail::c_prefix_of(path);
  if (prefix != detail::as_c_name(prefix) || !detail::is_c_letter(prefix[0]) || prefix.size() > 31)
    return Error::say(
        shown_path.c_str(), ": \"", one_line(prefix, 60).c_str(),
        "\" cannot be the prefix of identifiers; expected a letter, and at most 30 more "
        "letters, digits and underscores");
  if (const Error why = detail::check_c_tensors(shown_path.c_str(), tensors)) return why;

  const std::string type = prefix + "_tensor", table = prefix + "_tensors",
                    count = prefix + "_tensor_count", constant = prefix + "_CONST";
  bool any_int8 = false;
  for (const NamedTensor& tensor : tensors) any_int8 = any_int8 || tensor.type == StoredType::i8;
  std::string guard = prefix + "_WEIGHTS_H";
  for (char& c : guard)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  detail::CNames names({type, table, count, constant, guard});

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  detail::TextWriter out(*file);
  out.text = "/* Weights, written by adacc. C99, C++17 and later. */\n#ifndef " + guard +
             "\n#define " + guard + "\n\n#include <stddef.h>\n\n#ifdef __cplusplus\n#define " +
             constant + " static constexpr\n#else\n#define " + constant + " static const\n#endif\n";
  std::string entries;
  for (const NamedTensor& tensor : tensors) {
    const std::string name = names.unique(prefix + "_" + detail::as_c_name(tensor.name));
    std::string extents, shape, first = "&" + name;
    for (int i = 0; i < Shape::max_rank; ++i) {
      const std::string extent = std::to_string(i < tensor.shape.rank() ? tensor.shape[i] : 0);
      shape += (i == 0 ? "" : ", ") + extent;
      if (i >= tensor.shape.rank()) continue;
      extents += "[" + extent + "]";
      first += "[0]";
    }
    const bool int8 = tensor.type == StoredType::i8;
    for (const std::string& part :
         {"\n" + constant, std::string(int8 ? " signed char " : " float "), name, extents,
          std::string(" = ")})
      out.text += part;
    const auto written = [&](const auto* next) {
      return detail::append_c_array(out, tensor.shape, 0, next);
    };
    if (const Error why = int8 ? written(static_cast<const std::int8_t*>(tensor.data))
                               : written(static_cast<const float*>(tensor.data)))
      return why;
    out.text += ";\n";
    for (const std::string& part :
         {std::string("  {"), detail::c_string(tensor.name), std::string(", "),
          std::to_string(tensor.shape.rank()), std::string(", {"), shape, std::string("}, "),
          std::to_string(tensor.shape.elems()), std::string(", "), int8 ? std::string("0") : first,
          std::string(!any_int8 ? ""
                      : int8    ? ", "
                                : ", 0"),
          int8 ? first : std::string(), std::string("},\n")})
      entries += part;
  }
  const std::string many = std::to_string(tensors.size());
  out.text +=
      "\ntypedef struct {\n  const char *name;\n  int rank;\n  size_t shape[4];\n"
      "  size_t elems;\n  const float *data;\n" +
      std::string(any_int8 ? "  const signed char *int8_data;\n" : "") + "} " + type +
      ";\n\nenum { " + count + " = " + many + " };\n" + constant + " " + type + " " + table + "[" +
      many + "] = {\n" + entries + "};\n\n#endif\n";
  if (const Error why = out.flush()) return why;
  return file->commit();
}

}}  // namespace adacc::v0_1
