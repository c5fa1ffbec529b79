// SPDX-License-Identifier: MIT
/// All codecs for elements of type double, compiled once for all tests.
#include "erase_codecs.hpp"

template const std::vector<sample::ErasedCodec<double>>& sample::erased_codecs<double>();
