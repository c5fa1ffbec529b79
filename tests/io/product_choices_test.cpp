// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/io/product_choices.hpp>

#include <string>

#include "../train/support.hpp"

namespace product_choices_test {

using namespace adacc;
using train_test::Folder;
using train_test::says;

namespace {

ProductChoices choices() {
  ProductChoices made{"cuBLASLt 130100", "NVIDIA H100 80GB HBM3", {}};
  for (std::uint32_t i = 0; i < 3; ++i) {
    ProductChoice choice{{8192, 768 + i, 50304, 0, 50304, ~std::size_t{0}, 64, 127}, {}, 7, 0.1};
    for (std::size_t w = 0; w < ProductAlgorithm::words; ++w)
      choice.algorithm.word[w] = ~std::uint64_t{0} - w * i;
    made.list.push_back(choice);
  }
  return made;
}

}  // namespace

TEST_CASE("algorithms of products are read back as they were written") {
  const Folder folder;
  const std::string path = folder / "products";
  const ProductChoices made = choices();
  REQUIRE_FALSE(save_product_choices(path, made));
  const auto read = load_product_choices(path);
  REQUIRE_MESSAGE(read, read.error.text());
  CHECK(read->library == made.library);
  CHECK(read->device == made.device);
  REQUIRE(read->list.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(read->list[i] == made.list[i]);
}

TEST_CASE("a text that is no list of algorithms is refused in words") {
  const std::string text = product_choices_text(choices());
  CHECK(says(parse_product_choices("adacc plan").error.text(),
             "is no file of algorithms of products"));
  CHECK(says(parse_product_choices(text.substr(0, text.size() / 2)).error.text(), "is cut off"));
  std::string damaged = text;
  damaged[text.find("8192")] = '9';
  CHECK(says(parse_product_choices(damaged).error.text(), "is damaged"));
  const std::string longer = text.substr(0, text.rfind("checksum")) + "product 1 2\n";
  CHECK(says(parse_product_choices(longer + detail::checksum_line(longer)).error.text(),
             "is wrong in the line of its algorithm 4"));
  CHECK(says(load_product_choices("no such file").error.text(), "no such file"));
}

}  // namespace product_choices_test
