// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/huge_pages.h"

#include <Python.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace isopool::worker {

namespace {

constexpr size_t kHugePage = 2 << 20;
// Address space. Python and torch take 40 MB; arenas beyond this size come from
// Python's own allocator.
constexpr size_t kReserved = 128 << 20;

// Python's arenas lie here side by side, in the order of their requests.
struct Reserve {
  PyObjectArenaAllocator python;  // Python's own allocator, for arenas that do not fit
  std::byte* next = nullptr;
  std::byte* end = nullptr;
};
Reserve reserve;

std::byte* nextHugePage(std::byte* address) {
  const uintptr_t beyond = reinterpret_cast<uintptr_t>(address) % kHugePage;
  return beyond == 0 ? address : address + (kHugePage - beyond);
}

void* allocateArena(void*, size_t bytes) {
  if (bytes > static_cast<size_t>(reserve.end - reserve.next)) {
    return reserve.python.alloc(reserve.python.ctx, bytes);
  }
  void* arena = reserve.next;
  reserve.next += bytes;
  return arena;
}

// Python's own allocator uses mmap() and munmap(): it may unmap a part of the reserve, too.
void freeArena(void*, void* arena, size_t bytes) {
  reserve.python.free(reserve.python.ctx, arena, bytes);
}

}  // namespace

void beginHugePages() {
  PyObject_GetArenaAllocator(&reserve.python);
  void* memory = ::mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  reserve.end = static_cast<std::byte*>(memory) + kReserved;
  reserve.next = nextHugePage(static_cast<std::byte*>(memory));
  ::madvise(reserve.next, static_cast<size_t>(reserve.end - reserve.next), MADV_HUGEPAGE);
  PyObjectArenaAllocator ours{nullptr, allocateArena, freeArena};
  PyObject_SetArenaAllocator(&ours);
}

void endHugePages() {
  if (reserve.next == nullptr) return;
  // Keeps the last huge page that is in use as a whole.
  std::byte* const end = nextHugePage(reserve.next);
  if (end >= reserve.end) return;
  ::munmap(end, static_cast<size_t>(reserve.end - end));
  reserve.end = end;
}

}  // namespace isopool::worker
