// SPDX-License-Identifier: MIT
/// Refuses machines that are not little-endian: blobs and files are, and are read and written as memory.
#pragma once

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "adacc: blobs and files are little-endian, and are read and written as memory");
