// SPDX-License-Identifier: MIT
/// The words of an error about a scratch file.
#pragma once

#include <string>

#include "../core/bytes.hpp"
#include "../core/error.hpp"
#include "../core/system_file.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class... Pieces>
Error no_scratch(const std::string& folder, const Pieces&... pieces) {
  return Error::say("no scratch file in ", folder.c_str(), ": ", pieces...);
}

}}}  // namespace adacc::v0_1::detail
