// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/memory_stock.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "base/log/log.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "ipc/memory/creation_failure.h"
#include "ipc/memory/memory_object.h"

namespace isopool::supervisor {

namespace {

// With 4 MiB, the default, a set takes 2.4 ms, so that the 3,000 channels of 1,000 clients to three
// new workers would take 7 s; with this much, 0.1 ms.
constexpr uint32_t kManyWaiting = 16;
constexpr uint64_t kLittleOutput = 64 << 10;

ChannelMemory makeChannelMemory(uint64_t outputBytes) {
  ChannelMemory memory;
  memory.clientControl = ipc::createMemoryObject("isopool:client", ipc::kClientControlBytes);
  memory.workerControl = ipc::createMemoryObject("isopool:worker", ipc::kWorkerControlBytes);
  memory.output = ipc::createMemoryObject("isopool:output", outputBytes);
  memory.outputBytes = outputBytes;
  return memory;
}

}  // namespace

MemoryStock::MemoryStock(base::EventLoop& loop, uint64_t outputBytes, uint32_t atRest)
    : loop_(loop), outputBytes_(outputBytes), atRest_(atRest), self_(this) {
  replenish();
}

void MemoryStock::expectWorker() {
  ++expected_;
  replenish();
}

void MemoryStock::cancelExpectation() {
  if (expected_ > 0) --expected_;
}

void MemoryStock::take(Taken taken) {
  cancelExpectation();
  if (ready_.empty()) {
    const uint64_t bytes =
        waiting_ < kManyWaiting ? outputBytes_ : std::min(outputBytes_, kLittleOutput);
    ++waiting_;
    return make(bytes, [self = self_.weak(), taken = std::move(taken)](ChannelMemory memory,
                                                                       const std::string& failure) {
      if (MemoryStock* alive = self.get()) --alive->waiting_;
      taken(std::move(memory), failure);
    });
  }
  ChannelMemory memory = std::move(ready_.front());
  ready_.pop_front();
  replenish();
  taken(std::move(memory), {});
}

void MemoryStock::make(uint64_t outputBytes, Taken taken) {
  loop_.runInBackground(
      [bytes = outputBytes, taken = std::move(taken)]() -> base::EventLoop::Handler {
        auto made = std::make_shared<ChannelMemory>();
        std::string failure;
        try {
          *made = makeChannelMemory(bytes);
          ipc::reachCrashPoint(ipc::CrashPoint::kChannelMemoryMade);
        } catch (const std::exception& error) {
          failure = error.what();
        }
        return [made, failure, taken] { taken(std::move(*made), failure); };
      });
}

void MemoryStock::replenish() {
  for (; ready_.size() + making_ < std::max(expected_, atRest_); ++making_) {
    make(outputBytes_, [self = self_.weak()](ChannelMemory made, const std::string& error) {
      MemoryStock* alive = self.get();
      if (alive == nullptr) return;
      --alive->making_;
      if (!error.empty()) {
        return base::log(
            base::LogLevel::kWarning,
            "shared memory for the next worker could not be made in advance: " + error);
      }
      alive->ready_.push_back(std::move(made));
    });
  }
}

void MemoryStock::makeSegment(uint64_t bytes, SegmentMade made) {
  loop_.runInBackground([bytes, made = std::move(made)]() -> base::EventLoop::Handler {
    auto segment = std::make_shared<base::Fd>();
    std::string failure;
    try {
      *segment = ipc::createMemoryObject("isopool:output", bytes);
      ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentMade);
    } catch (const base::SystemCallError& error) {
      failure = ipc::creationFailureInWords(error, "isopoold");
    } catch (const std::exception& error) {
      failure = error.what();
    }
    return [segment, failure, made] { made(std::move(*segment), failure); };
  });
}

}  // namespace isopool::supervisor
