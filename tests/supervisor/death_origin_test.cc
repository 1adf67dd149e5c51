// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/death_origin.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

using Kind = DeathOrigin::Kind;
using Clients = std::vector<ClientId>;

const Clients kServed{ClientId(3), ClientId(7)};

WorkerStatus page(uint64_t running, uint64_t last, const std::string& model = "m") {
  WorkerStatus status;
  status.runningClient = running;
  status.lastClient = last;
  status.model = model;
  return status;
}

TEST(DeathOrigin, IsTheClientWhoseRequestRuns) {
  const DeathOrigin origin = originOf(page(7, 3, "line\nbreak"), kServed);
  EXPECT_EQ(origin.kind, Kind::kCall);
  EXPECT_EQ(origin.clients, Clients{ClientId(7)});
  EXPECT_EQ(origin.model, "line?break");
}

TEST(DeathOrigin, IsTheClientWhoseCodeRanLastIfNoRequestRuns) {
  const DeathOrigin origin = originOf(page(0, 3), kServed);
  EXPECT_EQ(origin.kind, Kind::kIdle);
  EXPECT_EQ(origin.clients, Clients{ClientId(3)});
}

TEST(DeathOrigin, IsNoClientBeforeAnyCodeHasRun) {
  const DeathOrigin origin = originOf(page(0, 0), kServed);
  EXPECT_EQ(origin.kind, Kind::kNone);
  EXPECT_TRUE(origin.clients.empty());
}

// A program that is not attached to the worker can't be named by what runs there.
TEST(DeathOrigin, OfAPageThatNamesAStrangerIsAnyClientOfTheWorkerAndNotTheStranger) {
  const DeathOrigin origin = originOf(page(8, 3), kServed);
  EXPECT_EQ(origin.kind, Kind::kInvalid);
  EXPECT_EQ(origin.clients, kServed);
  EXPECT_TRUE(origin.model.empty());
  EXPECT_TRUE(originOf(page(UINT64_MAX, 3), {}).clients.empty());
}

TEST(DeathOrigin, OfAClientThatHasLeftIsNoOtherClient) {
  const DeathOrigin origin = originOf(page(0, 5), kServed);
  EXPECT_EQ(origin.kind, Kind::kLeft);
  EXPECT_TRUE(origin.clients.empty());
}

}  // namespace
}  // namespace isopool::supervisor
