// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

#include "ipc/control/frame.h"

namespace isopool::cli {

/// The supervisor can't be reached, refused us, or is gone: one line that says what to do.
class SupervisorUnreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An operator's connection to the shared supervisor at an address. Every verb throws
/// SupervisorUnreachable; none waits longer than kPatience.
class SupervisorLink {
 public:
  static constexpr std::chrono::milliseconds kPatience{2000};

  /// Connects and says who we are.
  explicit SupervisorLink(const std::string& address);

  /// Asks for a report and waits for it.
  ipc::Report ask();

  // The same in steps, for who has other things to wait for.
  using Clock = std::chrono::steady_clock;

  /// Asks for a report; one that was asked for before is not waited for any more.
  void request();
  /// Readable when receive() is to be called.
  int fd() const { return socket_.fd(); }
  /// The report that was asked for, if it is there. Does not wait.
  std::optional<ipc::Report> receive();
  /// When receive() must have returned the report; giveUp() then.
  Clock::time_point deadline() const { return deadline_; }
  [[noreturn]] void giveUp() const;

 private:
  const std::string address_;
  ipc::ControlSocket socket_;
  uint64_t token_ = 0;
  Clock::time_point deadline_;
  bool answered_ = false;  ///< at least once
};

}  // namespace isopool::cli
