// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/child_process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "ipc/system_call.h"

namespace isopool::supervisor {

namespace {

constexpr auto kAnyPidfd = static_cast<idtype_t>(3);  // P_PIDFD, which C libraries may lack
// A worker's parent (a process between zygote and worker) exits within microseconds.
constexpr Milliseconds kReparentingRetry(1);
constexpr int kReparentingRetries = 5000;
constexpr Milliseconds kTimeToEnd(100);

ipc::Fd openPidfd(pid_t pid) {
  return ipc::Fd(
      ipc::checkSystemCall(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), "pidfd_open", pid));
}

ExitStatus toExitStatus(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {0, info.si_status};
  return {info.si_status, 0};
}

}  // namespace

ChildProcess::ChildProcess(boost::asio::io_context& io, pid_t pid, Reaped reaped)
    : pid_(pid),
      pidfd_(openPidfd(pid)),
      reaped_(std::move(reaped)),
      watch_(std::in_place, io, pidfd_.get()),
      retry_(io),
      mercy_(io) {
  watch_->onReadable([this] {
    watch_.reset();
    reap();
  });
}

void ChildProcess::kill() {
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  ::kill(-pid_, SIGKILL);
}

void ChildProcess::killSoon() {
  mercy_.setAfter(kTimeToEnd, [this] { kill(); });
}

void ChildProcess::reap() {
  mercy_.cancel();
  // Before it is reaped: from then on the number may name another group.
  ::kill(-pid_, SIGKILL);
  siginfo_t info{};
  const int result = ::waitid(kAnyPidfd, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG);
  if (result == 0 && info.si_pid != 0) return std::exchange(reaped_, {})(toExitStatus(info));
  if (++retries_ > kReparentingRetries) return std::exchange(reaped_, {})({SIGKILL, 0});
  retry_.setAfter(kReparentingRetry, [this] { reap(); });
}

}  // namespace isopool::supervisor
