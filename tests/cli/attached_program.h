// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/channel/client_end.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::tests {

/// A minimal program that uses a shared supervisor. It runs in the test's process, and acts only
/// during calls of its functions. For one thread. Every wait ends after 10 s.
class AttachedProgram {
 public:
  /// Attaches under this name; returns when its one slot has a worker.
  AttachedProgram(const std::string& address, const std::string& name);

  /// Loads a package of these bytes and waits until the supervisor holds it.
  void load(const std::string& name, const std::string& bytes);
  /// Reports calls of models, and how many wait, as libisopool does every two seconds.
  void report(const std::vector<ipc::ModelCalls>& calls, uint32_t waiting = 0);
  /// Calls the worker and waits for the answer; empty if none comes in time.
  std::string call(const std::string& text);
  /// Starts a call that never ends, and waits until it runs.
  void hang();
  /// Waits until the supervisor ends the connection. Returns the reason that it states.
  std::string waitForRefusal();

 private:
  bool waitFor(const std::function<bool()>& condition);
  void handle(ipc::Frame& frame);
  void introduce(ipc::Frame& frame);
  uint64_t post(const std::string& text);

  ipc::ControlSocket control_;
  bool ended_ = false;
  bool expectsRefusal_ = false;
  std::string refusal_;
  std::map<uint64_t, std::unique_ptr<ipc::ClientEnd>> ends_;
  uint64_t serving_ = 0;
  std::optional<ipc::PackageHeld> held_;
  uint32_t packages_ = 0;
};

}  // namespace isopool::tests
