// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/simulated_event_loop.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace isopool::simulation {

namespace {

constexpr Microseconds kLookForRoom(1000);

}  // namespace

class SimulatedEventLoop::SimulatedAlarm final : public Alarm {
 public:
  explicit SimulatedAlarm(SimulatedEventLoop& loop) : loop_(loop) {}
  ~SimulatedAlarm() override { cancel(); }

  void expireAt(TimePoint when, Handler handler) override {
    cancel();
    key_ = AlarmKey{when, loop_.nextAlarm_++};
    loop_.alarms_[*key_] = std::move(handler);
    loop_.wakeAt(when);
  }
  void cancel() override {
    if (key_) loop_.alarms_.erase(*key_);
    key_.reset();
  }

 private:
  SimulatedEventLoop& loop_;
  std::optional<AlarmKey> key_;
};

class SimulatedEventLoop::SimulatedWatch final : public Watch {
 public:
  SimulatedWatch(SimulatedEventLoop& loop, int fd) : loop_(loop), fd_(fd) {
    loop_.watches_.push_back(this);
  }
  ~SimulatedWatch() override { loop_.watches_.remove(this); }

  void awaitReadable(Handler handler) override { readable_ = std::move(handler); }
  void awaitWritable(Handler handler) override {
    writable_ = std::move(handler);
    loop_.wakeAt(loop_.world_.now());
  }

  int fd() const { return fd_; }
  short wanted() const {
    return static_cast<short>((readable_ ? POLLIN : 0) | (writable_ ? POLLOUT : 0));
  }
  void call(short ready) {
    Handler& handler =
        writable_ && ((ready & POLLIN) == 0 || !readable_ || loop_.world_.chance.oneIn(2))
            ? writable_
            : readable_;
    if (const Handler called = std::exchange(handler, nullptr)) called();
  }

 private:
  SimulatedEventLoop& loop_;
  const int fd_;
  Handler readable_;
  Handler writable_;
};

SimulatedEventLoop::SimulatedEventLoop(World& world, std::function<void()> live)
    : world_(world), live_(std::move(live)) {
  world_.add(*this);
}

SimulatedEventLoop::~SimulatedEventLoop() { world_.remove(*this); }

void SimulatedEventLoop::post(Handler handler) {
  posted_.push_back(std::move(handler));
  wakeAt(world_.now());
}

void SimulatedEventLoop::runInBackground(std::function<Handler()> work) {
  aside_.push_back(std::move(work));
  world_.after(world_.latency(), [this] {
    if (aside_.empty()) return;
    const auto first = std::move(aside_.front());
    aside_.pop_front();
    post(first());
  });
}

std::unique_ptr<base::EventLoop::Alarm> SimulatedEventLoop::makeAlarm() {
  return std::make_unique<SimulatedAlarm>(*this);
}

std::unique_ptr<base::EventLoop::Watch> SimulatedEventLoop::watch(int fd) {
  return std::make_unique<SimulatedWatch>(*this, fd);
}

void SimulatedEventLoop::onSignals(const std::vector<int>& signals,
                                   std::function<void(int)> handler) {
  signals_ = signals;
  onSignal_ = std::move(handler);
}

void SimulatedEventLoop::signal(int number) {
  if (std::find(signals_.begin(), signals_.end(), number) == signals_.end()) return;
  post([this, number] { onSignal_(number); });
}

void SimulatedEventLoop::forget() {
  // The destructor of a posted function may post another one.
  while (!posted_.empty()) {
    const Handler dropped = std::move(posted_.front());
    posted_.pop_front();
  }
  aside_.clear();
  onSignal_ = nullptr;
  signals_.clear();
}

void SimulatedEventLoop::act() {
  if (stopped_) return;
  // Simulates a slow supervisor: everything waits.
  if (world_.misfortune(500)) return wakeAt(world_.now() + world_.latency());
  if (callReady()) return wakeAt(world_.now());
  if (!alarms_.empty()) wakeAt(alarms_.begin()->first.first);
  const bool writes = std::any_of(watches_.begin(), watches_.end(), [](const auto* watch) {
    return (watch->wanted() & POLLOUT) != 0;
  });
  if (writes) wakeAt(world_.now() + kLookForRoom);
}

bool SimulatedEventLoop::callReady() {
  std::vector<pollfd> watched;
  std::vector<SimulatedWatch*> owners;
  for (SimulatedWatch* watch : watches_) {
    if (watch->wanted() == 0) continue;
    watched.push_back({watch->fd(), watch->wanted(), 0});
    owners.push_back(watch);
  }
  std::vector<size_t> ready;
  if (!watched.empty() && ::poll(watched.data(), watched.size(), 0) > 0) {
    for (size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents != 0) ready.push_back(i);
    }
  }
  const bool alarmDue = !alarms_.empty() && alarms_.begin()->first.first <= world_.now();
  const size_t choices = ready.size() + (posted_.empty() ? 0 : 1) + (alarmDue ? 1 : 0);
  if (choices == 0) return false;
  size_t chosen = world_.chance.below(choices);
  if (chosen < ready.size()) {
    owners[ready[chosen]]->call(watched[ready[chosen]].revents);
    return true;
  }
  chosen -= ready.size();
  Handler handler;
  if (chosen == 0 && !posted_.empty()) {
    handler = std::move(posted_.front());
    posted_.pop_front();
  } else {
    handler = std::move(alarms_.begin()->second);
    alarms_.erase(alarms_.begin());
  }
  handler();
  return true;
}

void SimulatedEventLoop::appendDescriptors(std::vector<int>& descriptors) const {
  if (stopped_) return;
  for (const SimulatedWatch* watch : watches_) {
    if ((watch->wanted() & POLLIN) != 0) descriptors.push_back(watch->fd());
  }
}

}  // namespace isopool::simulation
