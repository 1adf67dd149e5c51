// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/loop/timer.h"
#include "ipc/control/messages.h"
#include "supervisor/pool/memory_stock.h"
#include "supervisor/pool/package_library.h"

namespace isopool::supervisor {

/// What a client declared for its inputs.
struct InputSegment {
  base::Fd object;
  uint64_t bytes = 0;
  std::string refusal;  ///< not empty: no worker maps it
};

/// One worker's channel to one client, as far as the supervisor goes: its memory, and how far both
/// sides are with it. Reads the counters in it by pread, so that nobody can make it fault.
class Attachment {
 public:
  enum class Stage {
    kIntroduced,  ///< the client was told
    kMapped,      ///< the client has mapped it; the worker is to be told when there is room
    kAttaching,   ///< the worker was told
    kUsable,
    kDetaching  ///< the worker was told to forget the client, and has not said that it has
  };

  Attachment(base::EventLoop& loop, ChannelMemory memory);

  /// True while the worker has to hear of packages and segments.
  bool listening() const {
    return stage == Stage::kMapped || stage == Stage::kAttaching || stage == Stage::kUsable;
  }
  /// False until the worker was told of the channel.
  bool knownToWorker() const { return stage != Stage::kIntroduced && stage != Stage::kMapped; }
  bool usable() const { return stage == Stage::kUsable; }

  /// Room for another output segment: its number, or none if `limit` would be passed.
  std::optional<uint32_t> reserveSegment(uint64_t bytes, uint64_t limit);
  void releaseSegment(uint64_t bytes) { outputBytes_ -= bytes; }
  uint64_t outputBytes() const { return outputBytes_; }
  uint64_t sharedBytes() const;

  /// Calls completed, as the worker says.
  uint64_t completedCalls() const;
  /// Requests published that the worker has not taken yet, as both say.
  uint32_t queuedCalls() const;
  /// The last call of which user code may have run, as the worker says.
  uint64_t startedSequence() const;
  /// Objects that the client's handles refer to, and what these keep of the worker's own memory, as
  /// the worker says.
  uint64_t handles() const;
  uint64_t handleBytes() const;

  ChannelMemory memory;
  Stage stage = Stage::kIntroduced;
  base::Timer deadline;  ///< of attaching, or of detaching
  base::Timer overdue;   ///< the grace of a call past its deadline
  uint64_t overdueSequence = 0;

  /// What the worker has not been told of the client yet: bounded by what there is, however often
  /// that changes, and sent as there is room for it (Worker::tellMore()).
  struct Untold {
    bool empty() const {
      return packages.empty() && segments.empty() && outputs.empty() && droppedPackages.empty();
    }

    ipc::AttachChannel channel;  ///< in Stage::kMapped
    std::map<uint32_t, std::pair<ipc::MapPackage, std::shared_ptr<PackageMemory>>> packages;
    std::deque<std::pair<uint32_t, std::shared_ptr<InputSegment>>> segments;
    std::deque<std::pair<ipc::AddOutputSegment, base::Fd>> outputs;
    /// Packages that the client has dropped; true for those that the worker has mapped.
    std::map<uint32_t, bool> droppedPackages;
  } untold;
  bool inLine = false;  ///< to be told of it

 private:
  uint64_t outputBytes_;
  uint32_t lastSegment_ = 1;
};

}  // namespace isopool::supervisor
