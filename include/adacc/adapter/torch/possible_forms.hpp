// SPDX-License-Identifier: MIT
/// The choice of forms of a plan for a storage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "keep.hpp"
#include "lossless.hpp"
#include "saved_store.hpp"
#include "threads.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// The forms at least as exact as `keep` for which `stands`(form), the largest first. A form for rows of unlike scale
/// counts only where the codec itself does not stand.
template <class Stands>
std::vector<Keep> forms_up_to(Keep keep, const Stands& stands) {
  std::vector<Keep> forms;
  for (; keep.codec() != nullptr; keep = keep.milder()) {
    if (!stands(keep)) continue;
    forms.insert(forms.begin(), keep);
    if (keep.has_form_for_unlike_rows()) keep = keep.milder();
  }
  return forms;
}

struct PossibleForms {
  std::vector<Keep> codecs;      ///< each in fewer bytes than those before, and than none
  std::size_t packed_bytes = 0;  ///< without loss, as masks and integers; 0: as many as unpacked

  /// The form of fewest bytes; `keep` if no codec is possible. Packing takes no codec: the bytes of a codec would move
  /// the storage behind larger ones in the order of encoding (StorageCoder), and plans have packed storages first.
  Keep smallest(Keep keep) const {
    return packed_bytes > 0 ? Keep() : codecs.empty() ? keep : codecs.back();
  }
};

/// The forms of `entry` on a device, at least as exact as `keep`, that need no look at values.
inline PossibleForms possible_forms_on_device(const SavedStorage& entry, Keep keep) {
  PossibleForms forms;
  const std::size_t count = entry.end - entry.first;
  const ElementDemands demands = entry.demands();
  std::size_t least = entry.bytes();
  if (entry.what.type == c10::ScalarType::Bool && !keep.untouched() && div_up(count, 8) < least)
    forms.packed_bytes = div_up(count, 8);
  const auto stands = [&](const Keep& form) {
    return form.codec()->encode_on != nullptr && entry.what.type != c10::ScalarType::Double &&
           !(demands.what.rows != 0 && form.has_form_for_unlike_rows());
  };
  for (const Keep& form : forms_up_to(unjudged(keep, demands.what), stands)) {
    const std::size_t bytes = EncodedElements::bytes_under(*form.codec(), entry.what.type, count,
                                                           entry.columns, entry.stream->device());
    if (bytes == 0 || bytes >= least) continue;
    least = bytes;
    forms.codecs.push_back(form);
  }
  return forms;
}

/// The forms of the elements of `entry`, at `x`, at least as exact as `keep`. Looks at the first rows; the encoding
/// step looks at the rest.
inline PossibleForms possible_forms(const SavedStorage& entry, const void* x, Keep keep) {
  if (entry.stream) return possible_forms_on_device(entry, keep);
  PossibleForms forms;
  const std::size_t count = entry.end - entry.first;
  const c10::ScalarType type = entry.what.type;
  if (!keep.untouched()) {
    Threads threads;
    Cpu cpu{ExecutorRef(threads)};
    const LosslessForm form =
        lossless_form(cpu, x, count, entry.elem_bytes(), c10::isIntegralType(type, true),
                      c10::isSignedType(type));
    if (form.bits != 0 && form.bytes(count) < entry.bytes()) forms.packed_bytes = form.bytes(count);
  }
  constexpr std::size_t rows = 256;
  std::size_t least = entry.bytes();
  const std::vector<Keep> standing = forms_up_to(keep, [&](const Keep& form) {
    return forms.packed_bytes > 0 ||
           EncodedElements::stands(*form.codec(), type, x, std::min(count, rows * entry.columns),
                                   entry.columns, entry.demands());
  });
  for (const Keep& form : standing) {
    const std::size_t bytes =
        EncodedElements::bytes_under(*form.codec(), type, count, entry.columns);
    if (bytes == 0 || bytes >= least) continue;
    least = bytes;
    forms.codecs.push_back(form);
  }
  return forms;
}

}}}}  // namespace adacc::v0_1::torch::detail
