// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "client/archive_file.h"
#include "client/control_writer.h"
#include "ipc/control/messages.h"
#include "ipc/fd.h"
#include "ipc/ids.h"

namespace isopool::client {

/// The packages that one supervisor has of this process. Its workers, present and future, know each
/// while anybody here uses it. Any thread.
class LoadedPackages {
 public:
  explicit LoadedPackages(std::shared_ptr<ControlWriter> writer) : writer_(std::move(writer)) {}

  /// One more use; the first one sends the package to a supervisor of our own.
  void load(const std::shared_ptr<ArchiveFile>& package);
  /// One more use; for the first one a shared supervisor is asked, and the package's memory becomes
  /// that of the same bytes that another program has sent before. Throws LimitExceeded,
  /// SupervisorLost.
  void loadShared(const std::shared_ptr<ArchiveFile>& package);
  /// One use less; with the last one workers unmap the package.
  void unload(ipc::PackageId package);

  /// What a shared supervisor says to loadShared(). The control thread.
  void answered(const ipc::PackageHeld& message, ipc::Frame& frame);
  /// Whoever waits for an answer, now or later, gets SupervisorLost. The control thread.
  void supervisorLost(const std::string& reason);

 private:
  bool isFirstUse(ipc::PackageId package);

  const std::shared_ptr<ControlWriter> writer_;

  std::mutex mutex_;
  std::map<uint32_t, uint32_t> uses_;
  /// Packages that the supervisor has yet to answer for, and its answers.
  struct Held {
    bool answered = false;
    std::string refusal;
    ipc::Fd same;  ///< what may be the same bytes
  };
  std::map<uint32_t, Held> asked_;
  std::string lostReason_;
  std::condition_variable changed_;  // asked_ or lostReason_ have
};

}  // namespace isopool::client
