// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/channel/worker_end.h"
#include "worker/memory/borrowed_storages.h"
#include "worker/memory/input_segments.h"
#include "worker/memory/output_blocks.h"

namespace isopool::worker {

/// The part of a channel that lives as long as any storage in it. It is owned by the channel and by
/// every borrowed storage, so a tensor that the model keeps stays valid after the client is gone.
struct ChannelMemory {
  ChannelMemory(uint64_t clientNumber, base::Epoch epoch, ipc::Mapping ownControl,
                ipc::Mapping clientControl, SegmentRequester& requester)
      : client(clientNumber),
        end(epoch, std::move(ownControl), std::move(clientControl)),
        output(clientNumber, end.peerReturns(), requester) {}

  const uint64_t client;
  ipc::WorkerEnd end;
  InputSegments inputs;
  OutputBlocks output;
  BorrowedStorages borrowed;
};

}  // namespace isopool::worker
