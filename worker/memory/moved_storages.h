// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>

#include "ipc/memory/memory_object.h"

namespace isopool::worker {

/// Copies a storage's bytes to `offset` of the memory of a moved object. If `adopt`, the storage
/// itself then refers to that memory, so that all tensors over it see what other workers write; its
/// former memory is freed, and the storage keeps the mapping. The caller has checked the bounds,
/// and for `adopt` also that only tensors refer to the storage. The call loop's thread.
void moveStorage(c10::Storage storage, std::shared_ptr<const ipc::Mapping> memory, uint64_t offset,
                 bool adopt);

}  // namespace isopool::worker
