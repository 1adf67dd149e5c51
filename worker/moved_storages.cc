// SPDX-License-Identifier: BSD-3-Clause
#include "worker/moved_storages.h"

#include <cstring>

#include "worker/package_store.h"

namespace isopool::worker {

void moveStorage(c10::Storage storage, std::shared_ptr<const ipc::Mapping> memory, uint64_t offset,
                 bool adopt) {
  const size_t bytes = storage.nbytes();
  std::memcpy(memory->data() + offset, storage.data(), bytes);
  if (!adopt) return;
  c10::Storage moved = packageStorage(std::move(memory), offset, bytes);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
      std::move(moved.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
}

}  // namespace isopool::worker
