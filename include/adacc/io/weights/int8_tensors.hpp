// SPDX-License-Identifier: MIT
/// Tensors with their matrices in int8: a quarter of the bytes, for programs that only run a network.
///
/// Each row of a matrix has a scale that takes its largest magnitude to 127, as in plain::quantize_rows; the layers
/// of layer/plain that compute in int8 read these scales. A number comes back as its integer times the scale of the
/// row, off by half a scale at most. A row of a linear layer is an output, a row of an embedding a token. Vectors
/// (biases, norms) are few and stay float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../core/error.hpp"
#include "../../layer/plain/int8_grid.hpp"
#include "write_safetensors.hpp"

namespace adacc { inline namespace v0_1 {

class Int8Tensors {
 public:
  Int8Tensors() = default;
  /// Tensors of float32 with two or more axes become int8, under their names; behind each comes "<name>.scale",
  /// float32 (rows); a row is one index of the first axis. All other tensors are passed on, and must live as long as
  /// this object. Matrices that are not finite are refused.
  static Result<Int8Tensors> make(const std::vector<NamedTensor>& tensors) {
    Int8Tensors result;
    result.codes_.reserve(tensors.size());
    result.scales_.reserve(tensors.size());
    for (const NamedTensor& tensor : tensors) {
      if (tensor.type != StoredType::f32 || tensor.shape.rank() < 2) {
        result.tensors_.push_back(tensor);
        continue;
      }
      const std::size_t rows = tensor.shape[0], elems = tensor.shape.elems();
      std::vector<std::int8_t>& codes = result.codes_.emplace_back(elems);
      std::vector<float>& scales = result.scales_.emplace_back(rows);
      if (rows > 0)
        plain::quantize_rows(static_cast<const float*>(tensor.data), rows, elems / rows,
                             codes.data(), scales.data());
      for (std::size_t r = 0; r < rows; ++r)
        if (!detail::is_number(scales[r]))
          return Error::say("tensor \"", one_line(tensor.name, 60).c_str(),
                            "\" is not finite in row ", r, ", which int8 cannot hold");
      result.tensors_.emplace_back(tensor.name,
                                   View<const std::int8_t>(codes.data(), tensor.shape));
      result.tensors_.emplace_back(tensor.name + ".scale",
                                   View<const float>(scales.data(), Shape(rows)));
    }
    return static_cast<Int8Tensors&&>(result);
  }

  Int8Tensors(Int8Tensors&&) = default;
  Int8Tensors& operator=(Int8Tensors&&) = default;

  /// The tensors to write, by write_weights_header() or write_safetensors(): views of numbers held here.
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  std::vector<std::vector<std::int8_t>> codes_;
  std::vector<std::vector<float>> scales_;
  std::vector<NamedTensor> tensors_;
};

}}  // namespace adacc::v0_1
