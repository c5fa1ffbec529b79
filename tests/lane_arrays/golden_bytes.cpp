// SPDX-License-Identifier: MIT
// The golden bytes of codecs, with the arrays of lanes of compilers without vectors; not optimized, which takes g++ longer
// than the test.
#include "../codec/quant_bytes_test.cpp"
