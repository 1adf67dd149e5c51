// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>

#include "base/loop/event_loop.h"
#include "tests/simulation/world.h"

namespace isopool::simulation {

/// The supervisor's event loop in a world: its clock is the world's, its descriptors are real. It
/// handles ready events in a random order, within the guarantees of the real loop: posted functions
/// are called in their order, and alarms in the order of their times.
class SimulatedEventLoop final : public base::EventLoop, public Actor {
 public:
  SimulatedEventLoop(World& world, std::function<void()> live);
  ~SimulatedEventLoop() override;

  TimePoint now() const override { return world_.now(); }
  void post(Handler handler) override;
  void runInBackground(std::function<Handler()> work) override;
  std::unique_ptr<Alarm> makeAlarm() override;
  std::unique_ptr<Watch> watch(int fd) override;
  void onSignals(const std::vector<int>& signals, std::function<void(int)> handler) override;
  /// Advances the world with `live` until stop().
  void run() override { live_(); }
  void stop() override { stopped_ = true; }
  bool stopped() const override { return stopped_; }

  /// Delivers a signal, if the loop waits for it.
  void signal(int number);
  /// Drops all handlers, before their owner is destroyed.
  void forget();

  void act() override;
  void appendDescriptors(std::vector<int>& descriptors) const override;

 private:
  class SimulatedAlarm;
  class SimulatedWatch;
  using AlarmKey = std::pair<TimePoint, uint64_t>;

  bool callReady();
  void scheduleNext();

  World& world_;
  const std::function<void()> live_;
  std::deque<Handler> posted_;
  std::deque<std::function<Handler()>> aside_;
  std::map<AlarmKey, Handler> alarms_;
  std::list<SimulatedWatch*> watches_;
  uint64_t nextAlarm_ = 0;
  std::vector<int> signals_;
  std::function<void(int)> onSignal_;
  bool stopped_ = false;
};

}  // namespace isopool::simulation
