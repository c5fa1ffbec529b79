// SPDX-License-Identifier: MIT
/// The tensors wanted by a model, compared with a file and loaded, for any format.
///
/// A file has find(name): null, or a tensor with a shape, obstacle(), part(first, count), bytes, and an
/// overload of copy_stored().
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "../../core/error.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "../mapped_file.hpp"

namespace adacc { inline namespace v0_1 {

/// "(3, 4)".
inline std::string text_of(const std::vector<std::size_t>& shape) {
  std::string text = "(";
  for (const std::size_t extent : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + ")";
}

/// A tensor wanted from a file.
template <class T>
struct WantedTensor {
  std::string name;
  View<T> to;
  bool transposed = false;  ///< in the file; `to` has two extents then

  Shape shape() const { return to.shape(); }
};

/// A wanted tensor without memory yet.
struct ExpectedTensor {
  std::string name;
  Shape extents;
  bool transposed = false;

  Shape shape() const { return extents; }
};

/// The problems of loading, one line for each tensor that is missing, has another shape, or has complex numbers.
template <class File, class Wanted>
std::vector<std::string> problems_of(const File& file, const std::vector<Wanted>& wanted) {
  std::vector<std::string> problems;
  for (const Wanted& want : wanted) {
    std::vector<std::size_t> shape;
    for (int i = 0; i < want.shape().rank(); ++i) shape.push_back(want.shape()[i]);
    if (want.transposed) std::reverse(shape.begin(), shape.end());
    const auto* const found = file.find(want.name);
    const std::string name = "\"" + one_line(want.name, 80) + "\"";
    if (found == nullptr) problems.push_back(name + " is missing");
    else if (found->shape != shape)
      problems.push_back(name + " is " + text_of(found->shape) + ", not " + text_of(shape));
    else if (const std::string obstacle = found->obstacle(); !obstacle.empty())
      problems.push_back(std::string(name).append(" ").append(obstacle));
  }
  return problems;
}

/// The number of these problems with some of `count` tensors, and the first of them; empty: there is none.
inline Error error_of(const std::vector<std::string>& problems, std::size_t count) {
  if (problems.empty()) return {};
  const std::string others =
      problems.size() > 1 ? ", and " + std::to_string(problems.size() - 1) + " more" : "";
  return Error::say(problems.size(), " of ", count,
                    " tensors are not there as they should be: ", problems[0].c_str(),
                    others.c_str());
}

/// Loads all of `wanted`, or nothing: the error is error_of() the problems, and problems_of() lists all of them.
template <class File, class T>
Error load_tensors(const File& file, const std::vector<WantedTensor<T>>& wanted) {
  if (const Error why = error_of(problems_of(file, wanted), wanted.size())) return why;
  // Elements with memory in the file: of any type, whole bytes and blocks.
  constexpr std::size_t at_once = std::size_t{1} << 20;
  for (const WantedTensor<T>& want : wanted) {
    const auto& stored = *file.find(want.name);
    const std::size_t elems = want.to.size();
    const std::size_t most = want.transposed ? elems : at_once;
    for (std::size_t first = 0; first < elems; first += most) {
      const std::size_t count = elems - first < most ? elems - first : most;
      const Shape shape = count == elems ? want.to.shape() : Shape(count);
      const auto part = stored.part(first, count);
      const View<T> to(want.to.data() + first, shape);
      if (const Error why = copy_stored(part, to, want.transposed)) return why;
      MappedFile::forget(part.bytes);
    }
  }
  return {};
}

}}  // namespace adacc::v0_1
