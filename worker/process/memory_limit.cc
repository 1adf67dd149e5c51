// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/memory_limit.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "base/mutex.h"
#include "base/system_call.h"
#include "base/units.h"

namespace isopool::worker {

namespace {

struct Limit {
  base::Mutex mutex;                           // storages die on any thread
  uint64_t cap ISOPOOL_GUARDED_BY(mutex) = 0;  ///< 0: no cap
  uint64_t now ISOPOOL_GUARDED_BY(mutex) = 0;  ///< the limit that the kernel has
  uint64_t key[2] = {};
};

// Never destroyed: storages may outlive all static objects.
Limit& limit() {
  static auto* instance = new Limit;
  return *instance;
}

uint64_t privateWritableBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kibibytes = 0;
    if (word == "VmData:" && status >> kibibytes) return kibibytes << 10;
  }
  throw std::runtime_error(
      "/proc/self/status has no valid line VmData: the size of the process is unknown");
}

// Not setrlimit(): the system call filter requires the key, which only this call passes.
void tellKernel(uint64_t bytes) {
  rlimit64 former{};
  base::checkSystemCall(::prlimit64(0, RLIMIT_DATA, nullptr, &former), "prlimit", "RLIMIT_DATA");
  const rlimit64 wanted{std::min<rlim64_t>(bytes, former.rlim_max), former.rlim_max};
  const uint64_t* key = limit().key;
  base::checkSystemCall(
      static_cast<int>(::syscall(SYS_prlimit64, 0, RLIMIT_DATA, &wanted, nullptr, key[0], key[1])),
      "prlimit", "RLIMIT_DATA");
}

void move(int64_t bytes) {
  Limit& current = limit();
  const base::MutexLock lock(current.mutex);
  if (current.cap == 0) return;
  tellKernel(current.now + static_cast<uint64_t>(bytes));
  current.now += static_cast<uint64_t>(bytes);
}

/// The order of the members matters: the room is returned after the mapping is unmapped.
struct MappingWithRoom {
  explicit MappingWithRoom(size_t bytes) : room(bytes) {}

  MemoryRoom room;
  ipc::Mapping mapping;
};

}  // namespace

MemoryRoom::MemoryRoom(size_t bytes) : bytes_(static_cast<int64_t>(ipc::roundUpToPages(bytes))) {
  move(bytes_);
}

MemoryRoom::~MemoryRoom() {
  try {
    move(-bytes_);
  } catch (const std::exception&) {
    // The higher cap stays in force.
  }
}

void limitMemory(uint64_t bytes, const uint64_t (&key)[2]) {
  Limit& current = limit();
  const base::MutexLock lock(current.mutex);
  std::copy(std::begin(key), std::end(key), std::begin(current.key));
  current.now = privateWritableBytes() + bytes;
  tellKernel(current.now);
  current.cap = bytes;
}

std::shared_ptr<const ipc::Mapping> mapBeyondLimit(const base::Fd& object, size_t bytes) {
  auto owner = std::make_shared<MappingWithRoom>(bytes);
  owner->mapping = ipc::mapPrivate(object, 0, bytes);
  return {owner, &owner->mapping};
}

std::string memoryLimitInWords() {
  Limit& current = limit();
  uint64_t cap = 0;
  {
    const base::MutexLock lock(current.mutex);
    cap = current.cap;
  }
  if (cap == 0) return {};
  return "isopool: the worker's memory is limited to " +
         base::spellQuantity(cap, base::kSizeUnits, " ") + " (ISOPOOL_WORKER_MEMORY)";
}

}  // namespace isopool::worker
