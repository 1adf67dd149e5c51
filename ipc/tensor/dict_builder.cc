// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/dict_builder.h"

#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ipc/tensor/payload_format.h"

namespace isopool::ipc {

namespace {

// A table has two to four slots for each reserved entry. Keys with independent hashes make it
// double at most once: the probability that it doubles twice is below 10^-11.
constexpr size_t kMostSlotsOfEntry = 8;
constexpr size_t kSmallTable = 64;

}  // namespace

void refuseNanKey(const at::IValue& key) {
  bool isNan = false;
  if (key.isDouble()) {
    isNan = std::isnan(key.toDouble());
  } else if (key.isComplexDouble()) {
    const c10::complex<double> number = key.toComplexDouble();
    isNan = std::isnan(number.real()) || std::isnan(number.imag());
  }
  if (isNan) {
    refuse(
        "a dict with a NaN key can't cross between processes, because NaN differs from itself and "
        "no lookup finds its entry: use another key");
  }
}

DictBuilder::DictBuilder(const c10::TypePtr& keyType, const c10::TypePtr& valueType, size_t entries)
    : mostSlots_(std::max(kSmallTable, kMostSlotsOfEntry * entries)) {
  c10::impl::GenericDict dict(keyType, valueType);
  dict.reserve(entries);
  dict_ = std::move(dict);
}

const c10::detail::DictImpl& DictBuilder::table() const {
  return *static_cast<const c10::detail::DictImpl*>(
      static_cast<const c10::intrusive_ptr_target*>(dict_.internalToPointer()));
}

bool DictBuilder::set(at::IValue key, at::IValue value) {
  refuseNanKey(key);
  const auto [entry, isNew] =
      dict_.toGenericDict().insert_or_assign(std::move(key), std::move(value));
  // A further entry displaces each other entry by at most one slot, which the next size of the
  // table allows. So a few entries are enough to double the table, and its size is checked after
  // each entry.
  if (table().dict.bucket_count() > mostSlots_) {
    refuse(
        "a dict whose keys have nearly equal hashes can't cross between processes, because its "
        "hash table would take a multiple of its memory: pass its keys and values as two lists");
  }
  return isNew;
}

}  // namespace isopool::ipc
