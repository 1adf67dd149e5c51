// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash_matrix/forked.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/parent_death.h"
#include "base/system_call.h"
#include "testing/process_mark.h"

namespace isopool::tests {

Forked::Forked(const std::function<void()>& life) {
  std::fflush(nullptr);
  const pid_t self = ::getpid();
  pid_ = base::checkSystemCall(::fork(), "fork");
  if (pid_ != 0) return;
  // The kernel kills the child if the test crashes or is stopped.
  base::endWithParent(self);
  // Failures from before the fork belong to the parent.
  const bool failedBefore = ::testing::Test::HasFailure();
  int code = 0;
  try {
    life();
    if (!failedBefore && ::testing::Test::HasFailure()) code = 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "process %d: %s\n", ::getpid(), error.what());
    code = 1;
  }
  std::fflush(nullptr);
  ::_exit(code);
}

Forked::~Forked() {
  if (pid_ == -1) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<int> Forked::waitForEnd(std::chrono::milliseconds patience) {
  int status = 0;
  if (!waitUntilDead(pid_, patience)) return std::nullopt;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

void Trap::set(const std::string& request) const {
  clear();
  // Creates the file in one step: a process may be looking for it.
  std::ofstream(path_ + ".new") << request;
  std::filesystem::rename(path_ + ".new", path_);
}

pid_t Trap::processOf(const std::string& suffix) const {
  const std::filesystem::path path(path_);
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
    const std::string name = entry.path().filename();
    const std::string begin = path.filename().string() + ".";
    if (name.rfind(begin, 0) != 0) continue;
    const std::string rest = name.substr(begin.size());
    const size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0) continue;
    if (rest.substr(std::min(digits, rest.size())) == suffix) return std::stoi(rest);
  }
  return 0;
}

void Trap::clear() const {
  const std::filesystem::path path(path_);
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
    const std::string name = entry.path().filename();
    if (name.rfind(path.filename().string(), 0) == 0) std::filesystem::remove(entry.path());
  }
}

}  // namespace isopool::tests
