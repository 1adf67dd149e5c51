// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "client/models/archive_file.h"
#include "client/transport/control_writer.h"
#include "ipc/control/client_messages.h"

namespace isopool::client {

/// The packages that one supervisor has of this process. Its workers, present and future, have each
/// of them from its first use to the end of its last use. Any thread. Only loadShared() waits for
/// the supervisor.
class LoadedPackages {
 public:
  /// `patience`: how long loadShared() waits for an answer. A supervisor that runs answers at once.
  explicit LoadedPackages(std::shared_ptr<ControlWriter> writer,
                          std::chrono::milliseconds patience = std::chrono::seconds(30))
      : writer_(std::move(writer)), patience_(patience) {}

  /// Adds a use; the first one sends the package to a private supervisor. Does not keep the file.
  void load(const std::shared_ptr<ArchiveFile>& package);
  /// Adds a use; the first one sends the package to a shared supervisor. If another program has
  /// sent the same bytes before, the package's memory becomes that program's memory, see
  /// ArchiveFile::adopt(). Returns when the supervisor has the package, also for a use that is not
  /// the first. Throws LimitExceeded if the supervisor refuses the package; SupervisorLost if the
  /// connection has ended or no answer comes in time. Then the use is not counted: do not unload().
  void loadShared(const std::shared_ptr<ArchiveFile>& package);
  /// Ends a use; at the end of the last one workers unmap the package. Does nothing for a package
  /// without a use.
  void unload(base::PackageId package);

  // For the control thread.

  /// A shared supervisor's answer to loadShared(). Takes the descriptor from `frame`, if it has
  /// one. An answer that no thread waits for any more has no effect.
  void answered(const ipc::PackageHeld& message, ipc::Frame& frame);
  /// Threads that wait for an answer, now or later, get SupervisorLost. The first reason stays.
  void supervisorLost(const std::string& reason);

 private:
  /// A package from its first use to its last. A refusal ends it: the next use sends the package
  /// again.
  struct Load {
    uint32_t uses = 0;
    bool answered = false;
    std::string refusal;
    base::Fd same;  ///< memory that may hold the same bytes; the use that takes it confirms
  };
  struct Use {
    std::shared_ptr<Load> load;
    bool isFirst;
  };

  enum class Answer : uint8_t { kNone, kExpected };

  template <typename Send>
  Use addUse(base::PackageId package, Answer answer, Send&& send);
  void dropUse(base::PackageId package, const std::shared_ptr<Load>& load);
  void awaitAnswer(base::PackageId package, const std::shared_ptr<Load>& load);

  const std::shared_ptr<ControlWriter> writer_;
  const std::chrono::milliseconds patience_;

  /// Held from the change of a count until its message is queued, so that messages are in the order
  /// of the changes: the supervisor refuses a package that is loaded twice. Locked before mutex_.
  base::Mutex orderMutex_;
  base::Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Load>> loads_ ISOPOOL_GUARDED_BY(mutex_);
  /// The number of answers that are still to come for packages that no thread waits for any more.
  std::map<uint32_t, uint32_t> abandoned_ ISOPOOL_GUARDED_BY(mutex_);
  std::string lostReason_ ISOPOOL_GUARDED_BY(mutex_);
  base::Condition changed_;  // an answer came, or lostReason_
};

}  // namespace isopool::client
