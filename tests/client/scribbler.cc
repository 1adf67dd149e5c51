// SPDX-License-Identifier: BSD-3-Clause
// Hostile code in a worker: a thread that writes, at full speed, to the segments of shared memory
// that this process may write and its client reads. Loaded with ctypes.
#include <linux/futex.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ipc/channel/layout.h"

namespace {

using isopool::ipc::kInlineBytes;
using isopool::ipc::kRingSlots;
using isopool::ipc::SharedWord;
using isopool::ipc::WorkerControl;

/// The same values as in hostile_worker_test.cc.
enum Lie : int {
  kWords,    ///< random words all over the control segment: rings, liveness word, lease returns
  kSlots,    ///< nearly valid answers: sequences, epochs, sizes, offsets, storages, tails
  kResults,  ///< random words all over the output arena
  kAll,
  kLife,  ///< a liveness word that alternates between a dead and a living owner
};

struct Region {
  char* data;
  size_t bytes;
};

std::vector<Region> ownRegions(const std::string& name) {
  std::vector<Region> regions;
  FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return regions;
  char line[512];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char access[5] = "";
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access) != 3) continue;
    if (access[1] == 'w' && std::strstr(line, ("memfd:isopool:" + name).c_str()) != nullptr) {
      regions.push_back({reinterpret_cast<char*>(begin), end - begin});
    }
  }
  std::fclose(maps);
  return regions;
}

void spoilWord(const std::vector<Region>& regions, std::mt19937_64& random) {
  if (regions.empty()) return;
  const Region& region = regions[random() % regions.size()];
  auto* words = reinterpret_cast<SharedWord<uint32_t>*>(region.data);
  const auto value = static_cast<uint32_t>(random());
  words[random() % (region.bytes / sizeof(uint32_t))].store(value % 4 == 0 ? value % 64 : value,
                                                            std::memory_order_relaxed);
}

void spoilSlot(const std::vector<Region>& regions, std::mt19937_64& random) {
  if (regions.empty()) return;
  auto& control = *reinterpret_cast<WorkerControl*>(regions[random() % regions.size()].data);
  const uint32_t tail = control.completionTail.load();
  auto& slot = control.slots[(tail - 1 + random() % 3) % kRingSlots];
  const uint64_t value = random();
  switch (random() % 12) {
    case 0:
      slot.sequence += value % 5 - 2;  // a call that is already answered, or not published yet
      return;
    case 1:
      slot.epoch = control.header.epoch - value % 2;
      return;
    case 2:
      slot.status = static_cast<uint32_t>(value % 8);
      return;
    case 3:
      slot.payload.inlineBytes = static_cast<uint32_t>(value % (2 * kInlineBytes));
      return;
    case 4:
      slot.payload.blobSegment = static_cast<uint32_t>(value % 3);
      return;
    case 5:
      slot.payload.blobOffset = value >> value % 64;
      return;
    case 6:
      slot.payload.blobBytes = value >> (value % 64);
      return;
    case 7:
      control.completionTail.store(tail + 1);
      return;
    case 8:
      control.completionTail.store(tail + static_cast<uint32_t>(value % 80) - 40);
      return;
    case 9:
      control.submissionHead.store(control.submissionHead.load() +
                                   static_cast<uint32_t>(value % 3));
      return;
    case 10:
      control.startedSequence.store(control.startedSequence.load() + value % 3 - 1);
      return;
    default:
      slot.bytes[value % 256] = static_cast<std::byte>(value >> 32);
  }
}

void spoilLife(const std::vector<Region>& regions, std::mt19937_64& random) {
  if (regions.empty()) return;
  auto& control = *reinterpret_cast<WorkerControl*>(regions[random() % regions.size()].data);
  auto& word = reinterpret_cast<SharedWord<uint32_t>&>(control.life);
  word.store(word.load() ^ FUTEX_OWNER_DIED);
}

[[noreturn]] void scribble(int lie, uint64_t seed, std::vector<Region> controls,
                           std::vector<Region> results) {
  std::mt19937_64 random(seed);
  for (;;) {
    const int kind = lie == kAll ? static_cast<int>(random() % 3) : lie;
    if (kind == kWords) spoilWord(controls, random);
    if (kind == kSlots) spoilSlot(controls, random);
    if (kind == kResults) spoilWord(results, random);
    if (kind == kLife) spoilLife(controls, random);
  }
}

}  // namespace

/// Starts a thread that writes without end. Returns the number of segments that it writes to.
extern "C" int begin_scribbling(int lie, uint64_t seed) {
  std::vector<Region> controls = ownRegions("worker");
  std::vector<Region> results = ownRegions("output");
  const auto count = static_cast<int>(controls.size() + results.size());
  std::thread(scribble, lie, seed, std::move(controls), std::move(results)).detach();
  return count;
}
