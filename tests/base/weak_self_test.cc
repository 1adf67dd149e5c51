// SPDX-License-Identifier: BSD-3-Clause
#include "base/weak_self.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <thread>
#include <vector>

namespace isopool::base {
namespace {

/// Calls its callbacks when it is destroyed, as a member of an object that ends may.
struct CallsAtTheEnd {
  std::vector<std::function<void()>> callbacks;
  ~CallsAtTheEnd() {
    for (const auto& callback : callbacks) callback();
  }
};

class Counter {
 public:
  std::function<void()> callback() {
    return [self = self_.weak()] {
      if (Counter* alive = self.get()) ++alive->count_;
    };
  }
  WeakSelf<Counter>::Pointer weak() const { return self_.weak(); }
  int count() const { return count_; }
  void callAtTheEnd(std::function<void()> callback) {
    end_.callbacks.push_back(std::move(callback));
  }

 private:
  int count_ = 0;
  CallsAtTheEnd end_;
  WeakSelf<Counter> self_{this};
};

TEST(WeakSelf, CallbackReachesTheLivingObject) {
  Counter counter;
  const std::function<void()> callback = counter.callback();
  callback();
  const std::function<void()> copy = callback;
  copy();
  EXPECT_EQ(counter.count(), 2);
  EXPECT_EQ(counter.weak().get(), &counter);
}

TEST(WeakSelf, CallbackThatOutlivesTheObjectFindsNull) {
  std::optional<Counter> counter(std::in_place);
  const std::function<void()> callback = counter->callback();
  const auto weak = counter->weak();
  counter.reset();
  callback();
  EXPECT_EQ(weak.get(), nullptr);
}

TEST(WeakSelf, NextObjectAtTheSameAddressIsNotFound) {
  std::optional<Counter> counter(std::in_place);
  const std::function<void()> callback = counter->callback();
  counter.emplace();
  callback();
  EXPECT_EQ(counter->count(), 0);
}

TEST(WeakSelf, CallbackDuringTheDestructionOfOtherMembersFindsNull) {
  std::optional<Counter> counter(std::in_place);
  bool called = false;
  bool found = false;
  counter->callAtTheEnd([&, self = counter->weak()] {
    called = true;
    found = self.get() != nullptr;
  });
  counter.reset();
  EXPECT_TRUE(called);
  EXPECT_FALSE(found);
}

TEST(WeakSelf, CallbackMayDestroyTheObject) {
  std::optional<Counter> counter(std::in_place);
  bool gone = false;
  const std::function<void()> callback = [&, self = counter->weak()] {
    counter.reset();
    gone = self.get() == nullptr;
  };
  callback();
  EXPECT_TRUE(gone);
}

TEST(WeakSelf, AnotherThreadMayCopyAndDestroyPointersWhileTheObjectEnds) {
  for (int round = 0; round < 100; ++round) {
    std::optional<Counter> counter(std::in_place);
    std::thread background([callback = counter->callback()] {
      std::function<void()> other;
      for (int i = 0; i < 10; ++i) std::function<void()>(callback).swap(other);
    });
    counter.reset();
    background.join();
  }
}

}  // namespace
}  // namespace isopool::base
