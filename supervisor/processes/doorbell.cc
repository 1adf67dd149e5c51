// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/doorbell.h"

#include <new>

#include "ipc/channel/futex.h"

namespace isopool::supervisor {

Doorbell::Doorbell()
    : object_(ipc::createMemoryObject("isopool:doorbell", ipc::kPageBytes)),
      page_(ipc::mapShared(object_, 0, ipc::kPageBytes, ipc::Access::kReadWrite,
                           ipc::Prefault::kYes)),
      word_(new (page_.data()) ipc::SharedWord<uint32_t>(0)) {
  ipc::sealMemoryObject(object_, ipc::Seal::kSingleWriter);
}

void Doorbell::ring() noexcept {
  word_->fetch_add(1);
  ipc::futexWake(*word_);
}

}  // namespace isopool::supervisor
