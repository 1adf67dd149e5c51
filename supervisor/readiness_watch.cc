// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/readiness_watch.h"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

namespace isopool::supervisor {

namespace asio = boost::asio;
using asio::posix::descriptor_base;

// Shared with the handlers on their way: one that is queued already can't be taken back, but finds
// `stopped`.
struct ReadinessWatch::State {
  State(asio::io_context& io, int fd) : descriptor(io, fd) {}

  asio::posix::stream_descriptor descriptor;
  std::function<void()> readable;
  bool stopped = false;
};

ReadinessWatch::ReadinessWatch(asio::io_context& io, int fd)
    : state_(std::make_shared<State>(io, fd)) {}

ReadinessWatch::~ReadinessWatch() {
  state_->stopped = true;
  state_->descriptor.release();
}

void ReadinessWatch::onReadable(std::function<void()> readable) {
  state_->readable = std::move(readable);
  awaitReadable(state_);
}

void ReadinessWatch::awaitReadable(const std::shared_ptr<State>& state) {
  state->descriptor.async_wait(descriptor_base::wait_read,
                               [state](const boost::system::error_code& error) {
                                 if (error || state->stopped) return;
                                 state->readable();
                                 if (!state->stopped) awaitReadable(state);
                               });
}

void ReadinessWatch::onceWritable(std::function<void()> writable) {
  state_->descriptor.async_wait(
      descriptor_base::wait_write,
      [state = state_, writable = std::move(writable)](const boost::system::error_code& error) {
        if (!error && !state->stopped) writable();
      });
}

}  // namespace isopool::supervisor
