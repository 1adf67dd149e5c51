// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/child_process.h"

#include <signal.h>

#include <utility>

namespace isopool::supervisor {

namespace {

// A worker's parent (a process between zygote and worker) exits within microseconds.
constexpr Milliseconds kReparentingRetry(1);
constexpr int kReparentingRetries = 5000;
constexpr Milliseconds kTimeToEnd(100);

}  // namespace

ChildProcess::ChildProcess(EventLoop& loop, Processes& processes, pid_t pid, Reaped reaped)
    : processes_(processes),
      pid_(pid),
      pidfd_(processes.open(pid)),
      reaped_(std::move(reaped)),
      watch_(std::in_place, loop, pidfd_.get()),
      retry_(loop),
      mercy_(loop) {
  watch_->onReadable([this] {
    watch_.reset();
    reap();
  });
}

void ChildProcess::kill() {
  processes_.kill(pidfd_);
  processes_.killGroup(pid_);
}

void ChildProcess::killSoon() {
  mercy_.setAfter(kTimeToEnd, [this] { kill(); });
}

void ChildProcess::reap() {
  mercy_.cancel();
  // Before it is reaped: from then on the number may name another group.
  processes_.killGroup(pid_);
  if (const auto status = processes_.reap(pidfd_)) return std::exchange(reaped_, {})(*status);
  if (++retries_ > kReparentingRetries) return std::exchange(reaped_, {})({SIGKILL, 0});
  retry_.setAfter(kReparentingRetry, [this] { reap(); });
}

}  // namespace isopool::supervisor
