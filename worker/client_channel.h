// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <memory>

#include "ipc/channel/spin.h"
#include "worker/channel_memory.h"
#include "worker/object_table.h"
#include "worker/package_store.h"

namespace isopool::worker {

/// All that one client has in this worker: its channel, packages and objects. The call loop's thread.
struct ClientChannel {
  explicit ClientChannel(std::shared_ptr<ChannelMemory> channelMemory)
      : memory(std::move(channelMemory)) {}

  /// An answer too long for its slot, freed when the client has consumed it.
  struct AnswerBlob {
    uint32_t completion;  ///< the free-running number of its completion
    void* block;
  };

  std::shared_ptr<ChannelMemory> memory;
  PackageStore packages;
  ObjectTable<uint64_t> objects;
  ObjectTable<uint64_t> handles;
  std::deque<AnswerBlob> blobs;
};

}  // namespace isopool::worker
