// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "worker/memory/channel_memory.h"
#include "worker/memory/package_store.h"
#include "worker/serve/handle_table.h"
#include "worker/serve/object_table.h"
#include "worker/serve/turn_order.h"

namespace isopool::worker {

/// All that this worker has of one client. The call loop's thread, with the GIL.
struct ClientLink {
  explicit ClientLink(std::shared_ptr<ChannelMemory> shared)
      : memory(std::move(shared)), handles(memory->end) {}

  std::shared_ptr<ChannelMemory> memory;
  PackageStore packages;
  ObjectTable<base::ObjectId> objects;
  HandleTable handles;
  /// The newest handle when a package was dropped: it and older ones may keep what is in the
  /// package.
  base::HandleId newestOfDropped{0};

  /// Answers too long for their slot, each in a block until the client has consumed it.
  struct Blob {
    uint32_t completion;  ///< counts as WorkerEnd::completionsConsumed()
    void* block;
  };
  std::deque<Blob> blobs;

  Turns turns;
  std::optional<uint64_t> slot;  ///< which interpreter of its client's pool this worker is
  uint32_t leaseLimit = 0;  ///< results that the client may hold; 0: as many as there are leases

  /// The worker has no other client: what a model keeps of this one's calls may stay where it can
  /// write to it.
  bool alone = true;
  /// The client is gone, or broke the protocol: no call of it is served any more.
  bool detached = false;
};

}  // namespace isopool::worker
