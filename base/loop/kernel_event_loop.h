// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/loop/event_loop.h"

namespace isopool::base {

/// The event loop of isopoold: the kernel's clock, descriptors and signals, by Asio. The
/// contracts are EventLoop's. The destructor waits until background work has ended.
class KernelEventLoop final : public EventLoop {
 public:
  KernelEventLoop();
  ~KernelEventLoop() override;

  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  void post(Handler handler) override;
  void runInBackground(std::function<Handler()> work) override;
  std::unique_ptr<Alarm> makeAlarm() override;
  std::unique_ptr<Watch> watch(int fd) override;
  void onSignals(const std::vector<int>& signals, std::function<void(int)> handler) override;

  void run() override { io_.run(); }
  void stop() override { io_.stop(); }
  bool stopped() const override { return io_.stopped(); }
  /// Calls the handlers that are ready, without waiting. Returns their number.
  size_t poll();

 private:
  void awaitSignal();

  // Destroyed last: the members below refer to it.
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  std::function<void(int)> onSignal_;
  boost::asio::thread_pool aside_{1};  // runs what runInBackground() gets, one after the other
};

}  // namespace isopool::base
