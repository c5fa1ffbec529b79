// SPDX-License-Identifier: MIT
/// All codecs for elements of type float, compiled once for all tests.
#include "erase_codecs.hpp"

template const std::vector<sample::ErasedCodec<float>>& sample::erased_codecs<float>();
