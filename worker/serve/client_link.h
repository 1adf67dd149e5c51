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
#include "worker/serve/entered_modes.h"
#include "worker/serve/handle_table.h"
#include "worker/serve/input_versions.h"
#include "worker/serve/object_table.h"
#include "worker/serve/turn_order.h"

namespace isopool::worker {

/// All that this worker keeps for one client. The call loop's thread, with the GIL.
struct ClientLink {
  explicit ClientLink(std::shared_ptr<ChannelMemory> shared)
      : memory(std::move(shared)), handles(memory->end) {}

  std::shared_ptr<ChannelMemory> memory;
  PackageStore packages;                ///< what the client loaded
  ObjectTable<base::ObjectId> objects;  ///< replicated objects
  HandleTable handles;
  InputVersions versions;
  std::optional<EnteredModes> modes;  ///< while code of another client runs; nullopt: none
  PyRef context;                      ///< contextvars.Context of its code; null: not yet made
  /// The newest handle at the time when a package was last dropped: this and older handles may keep
  /// objects of the package alive.
  base::HandleId newestOfDropped{0};

  /// An answer too long for its slot: it lies in a block until the client has consumed it.
  struct Blob {
    uint32_t completion;  ///< its number, comparable with WorkerEnd::completionsConsumed()
    void* block;
  };
  std::deque<Blob> blobs;  ///< in the order of their completions

  /// The trim of its output arena that has begun or is to begin, see OutputTrim.
  std::optional<ipc::TrimRule> trim;
  /// Segments that the client has removed, to be unmapped between two calls.
  std::vector<base::SegmentId> removedInputs;

  /// The handle that the last call of a handle made, until it is known whether that call was one of
  /// a model or the loading of one. See RunningCall::countEarlier().
  base::HandleId uncounted{0};

  Turns turns;                   ///< see TurnOrder
  std::optional<uint64_t> slot;  ///< the slot of the client's pool that this worker serves
  uint32_t leaseLimit =
      0;  ///< results that the client may hold; 0: no limit but the number of leases

  /// True if the worker has no other client: then storages that a model keeps may stay in shared
  /// pages that this client can write to.
  bool alone = true;
  /// True if the client is gone or broke the protocol: no call of it is served any more.
  bool detached = false;
};

}  // namespace isopool::worker
