// SPDX-License-Identifier: BSD-3-Clause
// The operations of ipc/ that need no torch, with each of their calls failing in turn.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "base/lifeline.h"
#include "base/system_call.h"
#include "ipc/channel/client_end.h"
#include "ipc/channel/lease_table.h"
#include "ipc/channel/worker_end.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "ipc/memory/page_arena.h"
#include "ipc/memory/private_pages.h"
#include "supervisor/processes/doorbell.h"
#include "tests/fault_injection/failing_calls.h"
#include "tests/fault_injection/held.h"

namespace isopool::tests {
namespace {

/// Makes one call of each kind after the other fail, until the operation passes without a failed
/// call. `operation` may throw the documented errors of ipc/.
void failEachCall(const std::function<void()>& operation) {
  operation();  // what only the first run creates and keeps is not a leak
  uint64_t failed = 0;
  for (uint32_t kind = 0; kind < kCallKindNames.size(); ++kind) {
    constexpr uint64_t kMost = 2000;
    uint64_t n = 1;
    for (; n <= kMost; ++n) {
      const Held before = heldNow();
      std::string error;
      isopoolFailNthCall(kind, n);
      try {
        operation();
      } catch (const base::SystemCallError& caught) {
        error = caught.what();
      } catch (const ipc::ProtocolError& caught) {
        error = caught.what();
      } catch (const std::bad_alloc&) {
        error = "bad_alloc";
      }
      const uint64_t calls = isopoolCallsCounted();
      isopoolFailNthCall(~0u, 0);
      ASSERT_EQ(heldNow(), before)
          << "leaked where " << kCallKindNames[kind] << " " << n << " failed: " << error;
      if (calls < n) break;
      ++failed;
    }
    ASSERT_LT(n, kMost) << "the loop has no end for " << kCallKindNames[kind];
    if (n > 1)
      std::printf("%s: %d ", std::string(kCallKindNames[kind]).c_str(), static_cast<int>(n - 1));
  }
  std::printf("failed\n");
  EXPECT_GT(failed, 0u);
}

TEST(EachCallThatFails, LeavesNothingOfAMemoryObject) {
  failEachCall([] {
    const base::Fd object = ipc::createMemoryObject("test", 4 * ipc::kPageBytes);
    const ipc::Mapping mapping = ipc::mapShared(object, 0, 4 * ipc::kPageBytes,
                                                ipc::Access::kReadWrite, ipc::Prefault::kYes);
    const base::Fd second = object.duplicate();
    // Its result shows whether there was memory.
    static_cast<void>(ipc::privatisePages(mapping.data(), ipc::kPageBytes));
    const ipc::Mapping copy = ipc::mapPrivate(second, 0, 4 * ipc::kPageBytes);
  });
}

TEST(EachCallThatFails, LeavesNothingOfPrivatePagesThatAreUsedAgain) {
  failEachCall([] {
    const ipc::Mapping mapping =
        ipc::mapShared(ipc::createMemoryObject("test", ipc::kPageBytes), 0, ipc::kPageBytes,
                       ipc::Access::kReadWrite, ipc::Prefault::kYes);
    ipc::PrivatePages used(ipc::kPageBytes);
    for (int i = 0; i < 2; ++i) {
      if (used.privatise(mapping.data(), ipc::kPageBytes)) {
        used.recover(mapping.data(), ipc::kPageBytes);
      }
    }
  });
}

TEST(EachCallThatFails, LeavesNothingOfAnArena) {
  failEachCall([] {
    ipc::PageArena arena(16 * ipc::kPageBytes);
    arena.addSegment(base::SegmentId(1), ipc::createMemoryObject("test", 8 * ipc::kPageBytes),
                     8 * ipc::kPageBytes, ipc::Prefault::kNo);
    void* block = arena.allocate(2 * ipc::kPageBytes);
    ASSERT_NE(block, nullptr);
    arena.restoreSharedPages(block);
    arena.dropReference(block);
  });
}

TEST(EachCallThatFails, LeavesAnArenaRoomForTheSegmentThatWasNotAdded) {
  constexpr size_t kBytes = 8 * ipc::kPageBytes;
  failEachCall([] {
    ipc::PageArena arena(kBytes);  // room for one such segment
    const auto add = [&] {
      return arena.addSegment(base::SegmentId(1), ipc::createMemoryObject("test", kBytes), kBytes,
                              ipc::Prefault::kNo);
    };
    try {
      ASSERT_TRUE(add());
    } catch (const std::exception&) {
      ASSERT_TRUE(add()) << "the failed call took address space or records";
      throw;
    }
  });
}

TEST(EachCallThatFails, LeavesNothingOfAControlMessage) {
  failEachCall([] {
    auto [left, right] = ipc::ControlSocket::makePair();
    ipc::ControlSocket sender(std::move(left));
    ipc::ControlSocket receiver(std::move(right));
    const base::Fd object = ipc::createMemoryObject("test", ipc::kPageBytes);
    const auto sent = sender.send(ipc::LoadPackage{1, ipc::kPageBytes, "name"}, {object.get()},
                                  std::chrono::milliseconds(0));
    if (receiver.receive() != ipc::ReceiveResult::kOk) return;
    const auto frame = receiver.next();
    ASSERT_EQ(frame.has_value(), sent == ipc::SendResult::kSent);
    if (!frame) return;
    ASSERT_EQ(ipc::decodeMessage<ipc::LoadPackage>(*frame).name, "name");
  });
}

TEST(EachCallThatFails, LeavesNothingOfAChannel) {
  failEachCall([] {
    const base::Fd clientControl = ipc::createMemoryObject("test", ipc::kClientControlBytes);
    const base::Fd workerControl = ipc::createMemoryObject("test", ipc::kWorkerControlBytes);
    const auto map = [](const base::Fd& object, size_t bytes, ipc::Access access) {
      return ipc::mapShared(object, 0, bytes, access, ipc::Prefault::kNo);
    };
    ipc::ClientEnd client(base::Epoch(1),
                          map(clientControl, ipc::kClientControlBytes, ipc::Access::kReadWrite),
                          map(workerControl, ipc::kWorkerControlBytes, ipc::Access::kReadOnly));
    ipc::WorkerEnd worker(base::Epoch(1),
                          map(workerControl, ipc::kWorkerControlBytes, ipc::Access::kReadWrite),
                          map(clientControl, ipc::kClientControlBytes, ipc::Access::kReadOnly));
    const auto loans = std::make_unique<ipc::LeaseTable>(client.peer().inputReturns);
    loans->lend(&client);
    client.publish({});
    ipc::ReceivedCall call;
    ASSERT_EQ(worker.peek(call), ipc::Received::kOne);
  });
}

TEST(EachCallThatFails, LeavesNothingOfADoorbellOrALifeline) {
  failEachCall([] {
    supervisor::Doorbell doorbell;
    const base::Fd forWorker = doorbell.descriptor();
    doorbell.ring();
    base::Fd readEnd;
    const base::Lifeline lifeline = base::Lifeline::make(readEnd);
  });
}

}  // namespace
}  // namespace isopool::tests
