// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/process_title.h"

#include <errno.h>

#include <algorithm>
#include <span>
#include <string>

#include "base/procfs.h"

namespace isopool::worker {

namespace {

constexpr const char* kProgram = "isopool-worker";

// Empty until keepProcessTitle() was called.
std::span<char> argumentArea;

}  // namespace

void keepProcessTitle() {
  // Where the program is Python itself, its main() alone was given the arguments.
  argumentArea = base::ownArguments();
  // They point to the arguments, and libc writes them into its messages.
  ::program_invocation_name = const_cast<char*>(kProgram);
  ::program_invocation_short_name = const_cast<char*>(kProgram);
}

void setProcessTitle(std::string_view role) {
  if (argumentArea.empty()) return;
  const std::string title = std::string(kProgram) + ": " + std::string(role);
  // The last byte stays 0: otherwise the kernel would show the environment, too.
  const size_t length = std::min(title.size(), argumentArea.size() - 1);
  std::copy_n(title.data(), length, argumentArea.data());
  std::fill(argumentArea.begin() + static_cast<ptrdiff_t>(length), argumentArea.end(), '\0');
}

}  // namespace isopool::worker
