// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/turn_order.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace isopool::worker {
namespace {

struct Client {
  std::string name;
  Turns turns;
  bool waits = true;
};

class TurnOrderTest : public testing::Test {
 protected:
  Client& add(const std::string& name, uint32_t share = 1, bool waits = true) {
    clients_.push_back({name, Turns{share, 0, 0}, waits});
    return clients_.back();
  }
  Client& client(const std::string& name) {
    for (Client& each : clients_) {
      if (each.name == name) return each;
    }
    throw std::logic_error(name);
  }
  std::string serve() {
    const auto next = order_.next(
        clients_, [](const Client& each) { return each.waits; },
        [](const Client& each) -> const Turns& { return each.turns; });
    if (next == clients_.end()) return "";
    order_.served(next->turns);
    return next->name;
  }
  std::map<std::string, int> serve(int turns) {
    std::map<std::string, int> counts;
    for (int i = 0; i < turns; ++i) ++counts[serve()];
    return counts;
  }

  std::vector<Client> clients_;
  TurnOrder order_;
};

TEST_F(TurnOrderTest, NoClientIsServedIfNoneWaits) {
  add("a", 1, false);
  EXPECT_EQ(serve(), "");
}

TEST_F(TurnOrderTest, ThoseThatAlwaysWaitAreServedInTurn) {
  add("a");
  add("b");
  add("c");
  const std::string first = serve() + serve() + serve();
  EXPECT_EQ(serve() + serve() + serve(), first);
  const auto counts = serve(300);
  EXPECT_EQ(counts.at("a"), 100);
  EXPECT_EQ(counts.at("c"), 100);
}

TEST_F(TurnOrderTest, SharesDivideTheTurnsOfThoseThatWait) {
  add("one", 1);
  add("three", 3);
  add("six", 6);
  const auto counts = serve(1000);
  EXPECT_NEAR(counts.at("one"), 100, 2);
  EXPECT_NEAR(counts.at("three"), 300, 2);
  EXPECT_NEAR(counts.at("six"), 600, 2);
}

TEST_F(TurnOrderTest, RareClientIsServedBeforeBusyOnes) {
  add("greedy");
  add("alsoGreedy", 8);
  add("sparse", 1, false);
  for (int round = 0; round < 100; ++round) {
    serve(20 + round % 7);  // more than two turns of its own share
    client("sparse").waits = true;
    EXPECT_EQ(serve(), "sparse") << round;
    client("sparse").waits = false;
  }
}

TEST_F(TurnOrderTest, IdleClientsSaveNoTurns) {
  add("busy");
  add("idle", 1, false);
  serve(10'000);
  client("idle").waits = true;
  const auto counts = serve(100);
  EXPECT_NEAR(counts.at("idle"), 50, 1);
}

TEST_F(TurnOrderTest, NewClientIsServedAtOnce) {
  add("old");
  serve(10'000);
  add("new");
  EXPECT_EQ(serve(), "new");
  EXPECT_EQ(serve(), "old");
}

}  // namespace
}  // namespace isopool::worker
