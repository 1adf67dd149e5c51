// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <memory>

#include "client/pool/pool_owner.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

// A program keeps the slots of the pools that it has closed: the Interpreters of its last managers
// refer to them. If an AssignWorker that comes too late put a link there, the program would keep
// the worker's pidfd and memory after the worker's death.
TEST(ClosedPool, TakesNoWorkerThatIsAssignedLate) {
  PoolOptions options;
  options.workers = 1;
  auto owner = std::make_unique<client::PoolOwner>(
      options, std::make_shared<client::ModuleSources>(), "test");
  const std::shared_ptr<client::Pool> pool = owner->pool();
  const std::shared_ptr<WorkerSlot> slot = pool->slots().front();
  std::shared_ptr<client::WorkerLink> link = pool->currentLink(*slot);
  ASSERT_TRUE(link);
  owner.reset();
  pool->workerAssigned(0, link);
  const std::weak_ptr<client::WorkerLink> last = std::exchange(link, nullptr);
  EXPECT_TRUE(waitUntil([&] { return last.expired(); })) << "the slot keeps the link";
}

}  // namespace
}  // namespace isopool::tests
