// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/fd.h"
#include "base/ids.h"
#include "client/models/archive_file.h"
#include "client/transport/control_writer.h"
#include "ipc/control/client_messages.h"

namespace isopool::client {

/// The packages that one supervisor has of this process. Its workers, present and future, know each
/// while anybody here uses it. Any thread.
class LoadedPackages {
 public:
  /// `patience`: how long loadShared() waits for an answer. A supervisor that runs answers at once.
  explicit LoadedPackages(std::shared_ptr<ControlWriter> writer,
                          std::chrono::milliseconds patience = std::chrono::seconds(30))
      : writer_(std::move(writer)), patience_(patience) {}

  /// One more use; the first one sends the package to a supervisor of our own.
  void load(const std::shared_ptr<ArchiveFile>& package);
  /// One more use; for the first one a shared supervisor is asked, and the package's memory becomes
  /// that of the same bytes that another program has sent before. Returns when the supervisor has
  /// the package, also for a use that is not the first. Throws LimitExceeded, SupervisorLost: then
  /// there is no use more.
  void loadShared(const std::shared_ptr<ArchiveFile>& package);
  /// One use less; with the last one workers unmap the package.
  void unload(base::PackageId package);

  /// What a shared supervisor says to loadShared(). The control thread.
  void answered(const ipc::PackageHeld& message, ipc::Frame& frame);
  /// Whoever waits for an answer, now or later, gets SupervisorLost. The control thread.
  void supervisorLost(const std::string& reason);

 private:
  /// A package from its first use to its last. Each refusal ends one: a use after that asks anew.
  struct Load {
    uint32_t uses = 0;
    bool answered = false;
    std::string refusal;
    base::Fd same;  ///< what may be the same bytes; the use that takes it confirms
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

  /// Held from the change of a count to the end of the message that tells of it, so that messages
  /// are in the order of the changes: the supervisor refuses a package that is loaded twice. Locked
  /// before mutex_.
  std::mutex orderMutex_;
  std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Load>> loads_;
  /// Answers that are still to come for packages that nobody waits for any more.
  std::map<uint32_t, uint32_t> abandoned_;
  std::string lostReason_;
  std::condition_variable changed_;  // an answer came, or lostReason_
};

}  // namespace isopool::client
