// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/loop/time_limit.h"
#include "ipc/control/worker_messages.h"
#include "supervisor/pool/memory_stock.h"
#include "supervisor/pool/package_library.h"

namespace isopool::supervisor {

/// A memory object that a client declared for its inputs. The client and all its attachments share
/// it.
struct InputSegment {
  base::Fd object;
  uint64_t bytes = 0;
  std::string refusal;  ///< not empty: no worker maps the segment, and `object` is closed
};

/// The supervisor's record of one worker's channel to one client: its memory, its state, and the
/// messages about the client that wait for the worker. Reads the counters in the control segments
/// by pread(), so that neither side can make the supervisor fault; their values are not
/// trustworthy. Destroyed when the worker has detached the client, or with the worker. Not
/// thread-safe.
class Attachment {
 public:
  /// supervisor/README.md has the table of states and events.
  enum class Stage {
    kIntroduced,  ///< IntroduceWorker was sent to the client
    kMapped,      ///< the client has mapped the channel; AttachChannel waits for room
    kAttaching,   ///< AttachChannel was sent to the worker
    kUsable,      ///< the worker has answered ChannelAttached
    kDetaching    ///< DetachChannel was sent to the worker, which has not answered yet
  };

  /// `memory` holds the channel's descriptors: control segments and the first output segment. They
  /// close with the attachment; the memory itself lives as long as client or worker map it.
  Attachment(base::EventLoop& loop, ChannelMemory memory);

  /// True while the worker has to get messages about the client's packages and segments.
  bool listening() const {
    return stage == Stage::kMapped || stage == Stage::kAttaching || stage == Stage::kUsable;
  }
  /// False until AttachChannel was sent to the worker.
  bool knownToWorker() const { return stage != Stage::kIntroduced && stage != Stage::kMapped; }
  bool usable() const { return stage == Stage::kUsable; }

  /// A client may retire memory for its inputs: the numbers of its segments that the worker has to
  /// unmap, and has not yet.
  std::set<uint32_t> unmapping;

  /// Counts another output segment. Returns its number, or nothing if the sum of all would exceed
  /// `limit` bytes. Numbers are not used again.
  std::optional<uint32_t> reserveSegment(uint64_t bytes, uint64_t limit);
  /// Undoes reserveSegment() for a segment that could not be made.
  void releaseSegment(uint64_t bytes) { outputBytes_ -= bytes; }
  /// The segment was made: `object`, which is kept until nobody can use it any more.
  void granted(uint32_t number, uint64_t bytes, std::shared_ptr<const base::Fd> object);
  /// The worker says that it has removed the segment. Returns false if it has no such segment. It
  /// awaits unmappedByClient() from now on.
  bool retire(uint32_t number);
  /// The client has unmapped a segment. Returns false if the worker has not removed it.
  bool unmappedByClient(uint32_t number);
  /// Counts no longer the removed segments that no process can write to any more: neither worker
  /// nor client has to be trusted.
  void closeRetired();
  /// The descriptors that are kept for output segments.
  uint64_t outputDescriptors() const { return outputs_.size(); }
  /// True if the client has yet to unmap a removed segment.
  bool awaitsClient() const;
  /// A request of the worker that waits for that; 0: none.
  uint64_t wantedBytes = 0;
  /// Bytes of all output segments.
  uint64_t outputBytes() const { return outputBytes_; }
  /// Bytes of all memory of the channel: control segments and output segments.
  uint64_t sharedBytes() const;

  // Counters that the worker writes (queuedCalls(): worker and client); 0 if they can't be read.

  /// Calls completed.
  uint64_t completedCalls() const;
  /// Those that show that the worker can serve the client: without steps such as the loading of a
  /// model by value (ipc::Work).
  uint64_t servedCalls() const;
  /// True if code of the client has run in the worker, or is about to.
  bool ranCode() const;
  /// Requests that the client has published and the worker has not taken yet. May be any number if
  /// one of the two writes invalid counters.
  uint32_t queuedCalls() const;
  /// The number of the last call whose user code may have started.
  uint64_t startedSequence() const;
  /// Objects that the client's handles refer to.
  uint64_t handles() const;
  /// Bytes of the worker's own memory that these objects keep.
  uint64_t handleBytes() const;

  // The Worker that owns the attachment changes the following.

  ChannelMemory memory;
  Stage stage = Stage::kIntroduced;
  base::TimeLimit deadline;      ///< of attaching, or of detaching
  base::TimeLimit overdue;       ///< the grace period of a call past its deadline, or of
                                 ///< the last code of a client that has left
  uint64_t overdueSequence = 0;  ///< that call

  /// Messages about the client that are not sent to the worker yet. Worker::tellMore() sends them
  /// when there is room. The size is bounded by the number of the client's packages and segments,
  /// however often they change.
  struct Untold {
    bool empty() const {
      return packages.empty() && segments.empty() && outputs.empty() && droppedPackages.empty() &&
             droppedSegments.empty();
    }

    ipc::AttachChannel channel;  ///< in Stage::kMapped
    std::map<uint32_t, std::pair<ipc::MapPackage, std::shared_ptr<PackageMemory>>> packages;
    std::deque<std::pair<uint32_t, std::shared_ptr<InputSegment>>> segments;
    std::deque<std::pair<ipc::AddOutputSegment, std::shared_ptr<const base::Fd>>> outputs;
    /// Packages that the client has dropped; true for those that the worker has mapped.
    std::map<uint32_t, bool> droppedPackages;
    std::deque<uint32_t> droppedSegments;  ///< that the worker has mapped, or was refused
  } untold;
  bool inLine = false;                    ///< the client is in Worker::line_
  uint64_t inputBytes = 0;                ///< of the client's input segments
  std::map<uint32_t, uint64_t> packages;  ///< bytes of each package of the client

 private:
  struct OutputSegment {
    std::shared_ptr<const base::Fd> object;
    uint64_t bytes = 0;
    enum class State { kGranted, kAwaitsClient, kUnmapped } state = State::kGranted;
  };

  uint64_t outputBytes_;
  uint32_t lastSegment_ = 1;
  std::map<uint32_t, OutputSegment> outputs_;  ///< without the first one, which is never removed
};

}  // namespace isopool::supervisor
