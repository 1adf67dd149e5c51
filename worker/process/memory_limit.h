// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ipc/memory/memory_object.h"

/// The cap on this process's private memory (ISOPOOL_WORKER_MEMORY), set as RLIMIT_DATA. The kernel
/// counts every private writable mapping, touched or not. It does not count shared memory, so
/// results in the output arena have a limit of their own.
namespace isopool::worker {

/// Limits the process to `bytes` more than it has now. `key`: see FilterOptions::key. Throws
/// SystemCallError, or std::runtime_error if /proc does not show the present size. Call once, while
/// the process has one thread.
void limitMemory(uint64_t bytes, const uint64_t (&key)[2]);

/// Raises the cap by `bytes`, in whole pages, as long as the object lives: for memory of isopool's
/// own, which user code did not request and cannot use. Without a cap it does nothing. The
/// constructor throws SystemCallError. Any thread.
class MemoryRoom {
 public:
  explicit MemoryRoom(size_t bytes);
  ~MemoryRoom();
  MemoryRoom(const MemoryRoom&) = delete;
  MemoryRoom& operator=(const MemoryRoom&) = delete;

 private:
  const int64_t bytes_;
};

/// Maps the first `bytes` of a package copy-on-write, and raises the cap by as much while the
/// mapping lives. Throws SystemCallError. Any thread.
std::shared_ptr<const ipc::Mapping> mapBeyondLimit(const base::Fd& object, size_t bytes);

/// One line for the message of an error about lack of memory: the cap and its setting. Empty if
/// there is no cap. Any thread.
std::string memoryLimitInWords();

}  // namespace isopool::worker
