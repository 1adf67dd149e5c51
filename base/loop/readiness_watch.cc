// SPDX-License-Identifier: BSD-3-Clause
#include "base/loop/readiness_watch.h"

#include <utility>

namespace isopool::base {

// Shared with pending handlers: a handler that is already queued can't be cancelled, but it finds
// `stopped` set.
struct ReadinessWatch::State {
  std::unique_ptr<EventLoop::Watch> watch;
  std::function<void()> readable;
  bool stopped = false;
  bool paused = false;
  bool awaiting = false;
};

ReadinessWatch::ReadinessWatch(EventLoop& loop, int fd) : state_(std::make_shared<State>()) {
  state_->watch = loop.watch(fd);
}

ReadinessWatch::~ReadinessWatch() {
  state_->stopped = true;
  state_->watch.reset();
}

void ReadinessWatch::onReadable(std::function<void()> readable) {
  state_->readable = std::move(readable);
  awaitReadable(state_);
}

void ReadinessWatch::awaitReadable(const std::shared_ptr<State>& state) {
  if (state->paused || std::exchange(state->awaiting, true)) return;
  state->watch->awaitReadable([state] {
    state->awaiting = false;
    if (state->stopped || state->paused) return;
    state->readable();
    if (!state->stopped) awaitReadable(state);
  });
}

void ReadinessWatch::pause() { state_->paused = true; }

void ReadinessWatch::resume() {
  state_->paused = false;
  awaitReadable(state_);
}

void ReadinessWatch::onceWritable(std::function<void()> writable) {
  state_->watch->awaitWritable([state = state_, writable = std::move(writable)] {
    if (!state->stopped) writable();
  });
}

}  // namespace isopool::base
