// SPDX-License-Identifier: MIT
/// Int8Outlier on a CUDA device: the same bytes as int8_outlier.hpp makes on the host.
#pragma once

#include "int8_outlier.hpp"
#include "quant/codec.cuh"
