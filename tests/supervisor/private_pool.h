// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "testing/process_mark.h"
#include "tests/supervisor/control_client.h"

namespace isopool::tests {

/// The client of a private pool of plain workers: starts its supervisor.
class PrivatePool : public ControlClient {
 public:
  /// Where a pool with this mark keeps its plain workers' mode: left behind by a test process that
  /// was killed.
  static std::string modeFileOf(const ProcessMark& mark);

  explicit PrivatePool(std::vector<std::string> flags = {}, const std::string& mode = "");
  ~PrivatePool();

  /// Plain workers that are started from now on behave so.
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
