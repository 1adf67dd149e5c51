// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "ipc/memory/memory_object.h"

namespace isopool::worker {

/// Smaller storages are not shared: a look-up costs more than it saves.
inline constexpr size_t kLeastSharedBytes = ipc::kPageBytes;

/// Moves weights that a loader of torch has copied into this process back into the private mapping
/// of the file that they came from. All workers then share the clean pages, and a write still
/// affects one worker only. Not thread-safe. For the load of one model; storages that were shared
/// keep the mapping.
class WeightSharing {
 public:
  /// `archive` is a private mapping of a PyTorch archive (ZIP). Throws c10::Error if it is not one.
  explicit WeightSharing(std::shared_ptr<const ipc::Mapping> archive);

  /// If a stored record has the same bytes as the storage, the storage refers to the record from
  /// then on and its own memory is freed. No other code may keep pointers into the storage. Does
  /// nothing for a compressed record, a short storage, or one that is not on the CPU.
  void share(const c10::Storage& storage);

 private:
  std::shared_ptr<const ipc::Mapping> archive_;
  std::multimap<uint64_t, uint64_t> records_;  ///< size to offset, of those that can be mapped
};

}  // namespace isopool::worker
