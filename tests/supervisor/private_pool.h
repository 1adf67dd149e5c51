// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "testing/process_mark.h"
#include "tests/supervisor/control_client.h"

namespace isopool::tests {

/// The client of a private pool of plain workers. The constructor starts the supervisor. The
/// destructor closes the connection and the lifeline, and expects every process of the pool to end
/// within 2 s.
class PrivatePool : public ControlClient {
 public:
  /// The file in which the pool with this mark keeps the mode of its plain workers. A test process
  /// that is killed leaves it behind.
  static std::string modeFileOf(const ProcessMark& mark);

  explicit PrivatePool(std::vector<std::string> flags = {}, const std::string& mode = "");
  ~PrivatePool();

  /// Sets the behaviour of plain workers that are started from now on.
  void setMode(const std::string& mode);
  const ProcessMark& mark() const { return mark_; }
  void cutLifeline() { lifeline_.close(); }

 private:
  void spawn(std::vector<std::string> flags);

  ProcessMark mark_;
  std::string modeFile_;
  base::Fd lifeline_;
};

}  // namespace isopool::tests
