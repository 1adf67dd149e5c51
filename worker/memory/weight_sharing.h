// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "ipc/memory/memory_object.h"

namespace isopool::worker {

/// Less is not worth a lookup.
inline constexpr size_t kLeastSharedBytes = ipc::kPageBytes;

/// Makes weights that a loader of torch's has copied into this process lie in the private mapping
/// of the file that they came from: clean pages are then the same memory in all workers, and a
/// write still stays in one. Not thread-safe.
class WeightSharing {
 public:
  /// A mapping of an archive of PyTorch's. Throws c10::Error.
  explicit WeightSharing(std::shared_ptr<const ipc::Mapping> archive);

  /// If a stored record has the same bytes, the storage's become that record's and the others are
  /// freed. Pointers into the storage must not be kept by anybody.
  void share(const c10::Storage& storage);

 private:
  std::shared_ptr<const ipc::Mapping> archive_;
  std::multimap<uint64_t, uint64_t> records_;  ///< size to offset, of those that can be mapped
};

}  // namespace isopool::worker
