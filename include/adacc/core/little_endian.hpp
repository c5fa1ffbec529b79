// SPDX-License-Identifier: MIT
/// Refuses machines that are not little-endian: blobs and files are, and are read and written as memory.
#pragma once

#include <bit>

static_assert(std::endian::native == std::endian::little,
              "adacc: blobs and files are little-endian, and are read and written as memory");
