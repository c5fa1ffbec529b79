// SPDX-License-Identifier: MIT
/// All codecs for elements of type bfloat16, compiled once for all tests.
#include "erase_codecs.hpp"

template const std::vector<sample::ErasedCodec<adacc::bfloat16>>&
sample::erased_codecs<adacc::bfloat16>();
