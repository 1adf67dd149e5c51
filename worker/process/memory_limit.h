// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ipc/memory/memory_object.h"

/// The cap on this process's memory (ISOPOOL_WORKER_MEMORY). The kernel counts every private
/// writable mapping, touched or not; shared memory it does not count, so results in the output
/// arena have a limit of their own.
namespace isopool::worker {

/// From here on the process may have `bytes` more than now. `key`: see FilterOptions::key.
/// Throws SystemCallError.
void limitMemory(uint64_t bytes, const uint64_t (&key)[2]);

/// So many bytes on top of the cap as long as it lives: for memory of isopool's own, which user
/// code neither asked for nor can use. Throws SystemCallError. Any thread.
class MemoryRoom {
 public:
  explicit MemoryRoom(size_t bytes);
  ~MemoryRoom();
  MemoryRoom(const MemoryRoom&) = delete;
  MemoryRoom& operator=(const MemoryRoom&) = delete;

 private:
  const int64_t bytes_;
};

/// Maps a package copy-on-write, with such room for it. Throws SystemCallError.
std::shared_ptr<const ipc::Mapping> mapBeyondLimit(const base::Fd& object, size_t bytes);

/// What to tell whoever ran out of memory, one line; empty if there is no cap.
std::string memoryLimitInWords();

}  // namespace isopool::worker
