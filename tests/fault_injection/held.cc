// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault_injection/held.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <ostream>
#include <string>

namespace isopool::tests {

std::ostream& operator<<(std::ostream& out, const Held& held) {
  return out << held.descriptors << " descriptors, " << held.mappings << " mappings, "
             << held.blockedSignals << " blocked signals";
}

Held heldNow() {
  Held held;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  while (::readdir(folder.get()) != nullptr) ++held.descriptors;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) ++held.mappings;
  }
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (::sigismember(&blocked, signal) == 1) ++held.blockedSignals;
  }
  return held;
}

}  // namespace isopool::tests
