// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ipc/channel/client_end.h"
#include "ipc/control/frame.h"

namespace isopool::tests {

/// A program that uses a shared supervisor: the least that libisopool does. Lives in the test's
/// process, and does something only while a verb of it runs.
class AttachedProgram {
 public:
  /// Attaches under this name and has a worker for its one slot when it returns.
  AttachedProgram(const std::string& address, const std::string& name);

  /// Loads a package of these bytes and waits until the supervisor holds it.
  void load(const std::string& name, const std::string& bytes);
  /// Calls the worker and waits for the answer; empty if none came.
  std::string call(const std::string& text);
  /// Has the worker begin a call that never ends, and waits until it runs.
  void hang();

 private:
  bool waitFor(const std::function<bool()>& condition);
  void handle(ipc::Frame& frame);
  void introduce(ipc::Frame& frame);
  uint64_t post(const std::string& text);

  ipc::ControlSocket control_;
  bool ended_ = false;
  std::map<uint64_t, std::unique_ptr<ipc::ClientEnd>> ends_;
  uint64_t serving_ = 0;
  std::optional<ipc::PackageHeld> held_;
  uint32_t packages_ = 0;
};

}  // namespace isopool::tests
