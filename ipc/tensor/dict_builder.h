// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>

#include <cstddef>

namespace isopool::ipc {

/// Builds a dict from keys that another process or user code has chosen. c10's hash table doubles
/// until no key is far from its slot, so 24 keys with equal hashes would make it 1.4 GB large. This
/// class limits the table's size in proportion to the number of entries. Not thread-safe.
class DictBuilder {
 public:
  /// `entries`: the largest number of entries that will be set. The table is reserved for them.
  DictBuilder(const c10::TypePtr& keyType, const c10::TypePtr& valueType, size_t entries);

  /// Adds an entry and returns true, or replaces the value of an existing key and returns false.
  /// The caller has checked that the key has the dict's key type. Throws ValueError if the key is
  /// NaN or the hashes of the keys lie too close together; then the dict is of no use any more.
  bool set(at::IValue key, at::IValue value);

  /// Moves the dict out. Call it once, last.
  c10::impl::GenericDict take() { return std::move(dict_).toGenericDict(); }

 private:
  const c10::detail::DictImpl& table() const;

  at::IValue dict_;
  size_t mostSlots_;
};

/// Throws ValueError if the key is NaN, or a complex number with a NaN part.
void refuseNanKey(const at::IValue& key);

}  // namespace isopool::ipc
