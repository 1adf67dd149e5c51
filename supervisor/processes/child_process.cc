// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/child_process.h"

#include <signal.h>

#include <utility>

namespace isopool::supervisor {

namespace {

// The exit status of a traced child is not available until the debugger releases it.
constexpr base::Milliseconds kTracedRetry(1);
constexpr int kTracedRetries = 5000;
constexpr base::Milliseconds kTimeToEnd(100);

}  // namespace

ChildProcess::ChildProcess(base::EventLoop& loop, Processes& processes, pid_t pid, Reaped reaped)
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
  if (reaped_ == nullptr) return;  // reaped: the pid may be another process's
  processes_.kill(pidfd_);
  processes_.killGroup(pid_);
}

void ChildProcess::killSoon() {
  mercy_.setAfter(kTimeToEnd, [this] { kill(); });
}

void ChildProcess::reap() {
  mercy_.cancel();
  if (auto status = processes_.exitStatus(pidfd_)) {
    // Before reap(): until then the pid can't be another process's or group's.
    processes_.killGroup(pid_);
    status->processorTime = processes_.useOf(pid_).processorTime;
    processes_.reap(pidfd_);
    return std::exchange(reaped_, {})(*status);
  }
  if (++retries_ > kTracedRetries) return std::exchange(reaped_, {})({.signal = SIGKILL});
  retry_.setAfter(kTracedRetry, [this] { reap(); });
}

}  // namespace isopool::supervisor
