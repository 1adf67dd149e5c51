// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/harness.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {

using Supervisor = SharedSupervisor;  // the tests' class; the library's: isopool::SharedSupervisor
using Address = isopool::SharedSupervisor;

/// A shared supervisor that only this test uses, and managers and programs that attach to it.
class AttachedManagers : public ::testing::Test {
 protected:
  void serve(std::vector<std::string> flags, const std::string& settings = "") {
    flags.insert(flags.begin(), {"--workers", "2"});
    supervisor_ = std::make_unique<Supervisor>(std::move(flags), settings);
  }
  /// The manager ends with its supervisor unless `reconnect` says that it attaches again.
  std::unique_ptr<InterpreterManager> attach(size_t interpreters = 2,
                                             milliseconds reconnect = milliseconds(0)) const {
    PoolOptions options;
    options.workers = interpreters;
    options.sharedSupervisor = supervisor_->address();
    options.reconnect = reconnect;
    return std::make_unique<InterpreterManager>(options);
  }
  std::unique_ptr<Program> program(const std::string& mode) const {
    return std::make_unique<Program>(
        std::vector<std::string>{PROGRAM, mode, packagePath()},
        std::vector<std::string>{"ISOPOOL_SOCKET=" + supervisor_->address(),
                                 "ISOPOOL_RECONNECT=0"});
  }
  Supervisor& supervisor() const { return *supervisor_; }

 private:
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace isopool::tests
