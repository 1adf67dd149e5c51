// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/system_call.h"
#include "ipc/memory/memory_object.h"

namespace isopool::fuzz {

/// Memory between protected pages, so that an access beyond it crashes the process in every build.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes)
      : bytes_(ipc::roundUpToPages(bytes)),
        reservation_(ipc::reserveAddressSpace(bytes_ + 2 * ipc::kPageBytes)) {
    base::checkSystemCall(::mprotect(data(), bytes_, PROT_READ | PROT_WRITE), "mprotect");
  }

  std::byte* data() const { return reservation_.data() + ipc::kPageBytes; }
  size_t bytes() const { return bytes_; }
  void clear() { std::memset(data(), 0, bytes_); }
  /// A view that does not own the memory: it must not outlive this object.
  ipc::Mapping view() const { return {data(), 0}; }

  /// Copies the content to the end of the memory: its last byte is the last accessible one.
  const uint8_t* placeAtEnd(const uint8_t* content, size_t size) {
    std::byte* begin = data() + bytes_ - size;
    if (size > 0) std::memcpy(begin, content, size);
    return reinterpret_cast<const uint8_t*>(begin);
  }

 private:
  size_t bytes_;
  ipc::Mapping reservation_;
};

}  // namespace isopool::fuzz
