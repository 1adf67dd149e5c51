// SPDX-License-Identifier: BSD-3-Clause
#include "bench/shared_supervisor.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

namespace bench {

SharedSupervisor::SharedSupervisor(const std::string& program) {
  std::string pattern = std::filesystem::temp_directory_path() / "isopool-bench-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = pattern;
  const std::string address = folder_ + "/socket";
  ::setenv("ISOPOOL_SOCKET", address.c_str(), 1);
  process_.emplace(std::vector<std::string>{program, "--listen", address, "--workers", "2",
                                            "--log-level", "error"},
                   folder_ + "/log");
  const auto giveUp = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(address)) {
    if (!process_->runs()) throw std::runtime_error("the supervisor ended before it listened");
    if (std::chrono::steady_clock::now() > giveUp) {
      throw std::runtime_error("the supervisor does not listen after a minute");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

SharedSupervisor::~SharedSupervisor() {
  process_.reset();
  std::filesystem::remove_all(folder_);
}

}  // namespace bench
