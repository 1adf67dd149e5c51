// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/channel/worker_end.h"
#include "worker/memory/borrowed_storages.h"
#include "worker/memory/fork_copies.h"
#include "worker/memory/input_segments.h"
#include "worker/memory/output_blocks.h"

namespace isopool::worker {

/// The part of a channel that lives as long as any storage in it. It is owned by the channel
/// and by every borrowed storage, so a tensor that the model keeps stays valid after the client
/// is gone. `end`, `inputs` and `output` are for the call loop's thread except where their
/// classes allow others.
///
/// When the client is gone, BorrowedStorages::detach() and OutputBlocks::detach() make private what
/// the worker still uses: until then the client's process may write to it.
struct ChannelMemory {
  /// `requester` must outlive it. Throws SystemCallError.
  ChannelMemory(uint64_t clientNumber, base::Epoch epoch, ipc::Mapping ownControl,
                ipc::Mapping clientControl, SegmentRequester& requester)
      : client(clientNumber),
        end(epoch, std::move(ownControl), std::move(clientControl)),
        output(clientNumber, end.peerReturns(), requester) {}

  const uint64_t client;      ///< the supervisor's number for the client
  ipc::WorkerEnd end;         ///< the control segments, mapped
  InputSegments inputs;       ///< the client's input arena
  OutputBlocks output;        ///< the arena for results to this client
  BorrowedStorages borrowed;  ///< storages that calls brought
  const CopiedInForks inForks{*this};
};

}  // namespace isopool::worker
