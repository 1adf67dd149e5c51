// SPDX-License-Identifier: BSD-3-Clause
#include "base/loop/kernel_event_loop.h"

#include <poll.h>
#include <signal.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <memory>
#include <utility>

namespace isopool::base {

namespace asio = boost::asio;
using asio::posix::descriptor_base;

namespace {

class KernelAlarm final : public EventLoop::Alarm {
 public:
  explicit KernelAlarm(asio::io_context& io) : timer_(io) {}

  void expireAt(TimePoint when, EventLoop::Handler handler) override {
    timer_.expires_at(when);
    timer_.async_wait([handler = std::move(handler)](const boost::system::error_code& error) {
      if (!error) handler();
    });
  }
  void cancel() override { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

class KernelWatch final : public EventLoop::Watch {
 public:
  KernelWatch(asio::io_context& io, int fd) : descriptor_(std::make_shared<Descriptor>(io, fd)) {}
  ~KernelWatch() override { descriptor_->release(); }

  void awaitReadable(EventLoop::Handler handler) override {
    await(descriptor_, descriptor_base::wait_read, std::move(handler));
  }
  void awaitWritable(EventLoop::Handler handler) override {
    await(descriptor_, descriptor_base::wait_write, std::move(handler));
  }

 private:
  using Descriptor = asio::posix::stream_descriptor;

  // Asio reuses the state of a released descriptor for the next one. An event of the old descriptor
  // that Asio had already fetched then counts as one of the new descriptor. So poll() decides
  // whether the descriptor is ready.
  static void await(const std::shared_ptr<Descriptor>& descriptor, descriptor_base::wait_type what,
                    EventLoop::Handler handler) {
    descriptor->async_wait(
        what, [weak = std::weak_ptr(descriptor), what,
               handler = std::move(handler)](const boost::system::error_code& error) mutable {
          const auto alive = weak.lock();
          if (error || alive == nullptr) return;
          if (isReady(alive->native_handle(), what)) return handler();
          await(alive, what, std::move(handler));
        });
  }

  static bool isReady(int fd, descriptor_base::wait_type what) {
    const short wanted = what == descriptor_base::wait_read ? POLLIN : POLLOUT;
    pollfd asked{fd, wanted, 0};
    return ::poll(&asked, 1, 0) != 0;
  }

  std::shared_ptr<Descriptor> descriptor_;
};

}  // namespace

KernelEventLoop::KernelEventLoop() : signals_(io_) {}

KernelEventLoop::~KernelEventLoop() { aside_.join(); }

void KernelEventLoop::post(Handler handler) { asio::post(io_, std::move(handler)); }

void KernelEventLoop::runInBackground(std::function<Handler()> work) {
  asio::post(aside_, [this, work = std::move(work)] {
    try {
      asio::post(io_, work());
    } catch (...) {
      // Rethrown on the loop's thread: an exception that leaves this thread ends the process.
      asio::post(io_, [error = std::current_exception()] { std::rethrow_exception(error); });
    }
  });
}

std::unique_ptr<EventLoop::Alarm> KernelEventLoop::makeAlarm() {
  return std::make_unique<KernelAlarm>(io_);
}

std::unique_ptr<EventLoop::Watch> KernelEventLoop::watch(int fd) {
  return std::make_unique<KernelWatch>(io_, fd);
}

void KernelEventLoop::onSignals(const std::vector<int>& signals, std::function<void(int)> handler) {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : signals) {
    signals_.add(signal);
    ::sigaddset(&handled, signal);
  }
  onSignal_ = std::move(handler);
  awaitSignal();
  // Unblocked after the handler is set: a supervisor may get SIGTERM while it still starts.
  ::pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
}

void KernelEventLoop::awaitSignal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    onSignal_(signal);
    awaitSignal();
  });
}

size_t KernelEventLoop::poll() { return io_.poll(); }

}  // namespace isopool::base
