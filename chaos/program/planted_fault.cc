// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/program/planted_fault.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace chaos {

namespace {

void leakMemory() {
  constexpr off_t kBytes = 8 << 20;
  const int object = ::memfd_create("isopool:output", MFD_CLOEXEC);
  if (object < 0 || ::ftruncate(object, kBytes) != 0) std::abort();
  void* memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, object, 0);
  if (memory == MAP_FAILED) std::abort();
  ::close(object);
}

// Starts a daemon: it is not a child of this process and has its own session.
void leakProcess() {
  if (::fork() != 0) return;
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  ::close_range(0, ~0u, 0);
  for (;;) ::pause();
}

}  // namespace

const std::vector<PlantedFault>& plantedFaults() {
  static const std::vector<PlantedFault> faults{
      {"wrong", "a model gives a wrong number", "wrong"},
      {"twice", "a model has its effect twice", "twice"},
      {"unlogged", "a model returns without its effect", "unlogged"},
      {"silent", "a call has no outcome", nullptr},
      {"two-outcomes", "a call has two outcomes", nullptr},
      {"hang", "a caller never comes back", nullptr},
      {"no-manager", "a manager can't be made though nobody attacks its supervisor", nullptr},
      {"endless-close", "a manager's close never comes back", nullptr},
      {"crash", "a client program aborts", nullptr},
      {"leak-memory", "a client program keeps a mapping of 8 MiB", nullptr},
      {"leak-descriptors", "a client program keeps 10 descriptors", nullptr},
      {"leak-process", "a client program leaves a daemon behind", nullptr},
  };
  return faults;
}

const char* deedOfFault(const std::string& fault) {
  const auto& faults = plantedFaults();
  const auto found = std::find_if(faults.begin(), faults.end(),
                                  [&](const PlantedFault& each) { return each.name == fault; });
  return found == faults.end() ? nullptr : found->deed;
}

bool isFaultOfManager(const std::string& fault) {
  return fault == "no-manager" || fault == "endless-close";
}

void commitFault(const std::string& fault) {
  if (fault == "crash") std::abort();
  if (fault == "leak-memory") leakMemory();
  if (fault == "leak-process") leakProcess();
  for (int i = 0; fault == "leak-descriptors" && i < 10; ++i) {
    if (::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) std::abort();
  }
  while (fault == "hang" || fault == "endless-close") ::pause();
}

}  // namespace chaos
