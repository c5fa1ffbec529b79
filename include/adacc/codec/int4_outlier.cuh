// SPDX-License-Identifier: MIT
/// Int4Outlier on a CUDA device: the same bytes as int4_outlier.hpp makes on the host.
#pragma once

#include "int4_outlier.hpp"
#include "quant/codec.cuh"
