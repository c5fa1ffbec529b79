// SPDX-License-Identifier: MIT
/// The algorithms of --tune-products: read from the file, or chosen by time and written there.
#pragma once

#include <adacc/io/product_choices.hpp>
#include <adacc/layer/cuda/products.cuh>

#include <unistd.h>

#include <cstddef>
#include <string>
#include <utility>

class ProductsFile {
 public:
  /// Without a path, products take cuBLASLt's first algorithm.
  explicit ProductsFile(std::string path) : path_(std::move(path)) {}

  /// Has products timed whose algorithms the file does not have. A file that has something else stays as it is.
  adacc::Error read(adacc::CudaProducts& products) {
    if (path_.empty()) return {};
    adacc::ProductChoices known;
    if (::access(path_.c_str(), F_OK) == 0) {
      auto read = adacc::load_product_choices(path_);
      if (!read) return adacc::Error::say("--tune-products ", read.error.text());
      known = std::move(*read);
    }
    if (const adacc::Error why = products.choose_by_time(known)) return why;
    text_ = ", algorithms of products by time";
    if (products.remark()) text_ += std::string(" (") + products.remark().text() + ')';
    else if (known.list.empty()) text_ += ", chosen in this run";
    else text_ += ", read from " + adacc::one_line(path_, 100);
    return {};
  }

  /// Writes the file if products were timed since the last call.
  adacc::Error save(adacc::CudaProducts& products) {
    if (path_.empty() || products.timed() == saved_) return {};
    saved_ = products.timed();
    return adacc::save_product_choices(path_, products.choices());
  }

  /// Where algorithms are from, for a description of the device.
  const std::string& text() const { return text_; }

 private:
  std::string path_, text_;
  std::size_t saved_ = 0;
};
