// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/forbidden_acts.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>

#include "base/system_call.h"
#include "worker/sandbox/system_call_filter.h"

namespace isopool::worker {

namespace {

constexpr size_t kCalls = 512;  // numbers from here on share the last counter
constexpr size_t kMaxNames = 64;
constexpr size_t kMaxNameBytes = 256;
constexpr int kFromFilter = 1;  // SYS_SECCOMP, which some libc headers lack

std::array<std::atomic<uint32_t>, kCalls> timesOfCall{};
std::atomic<uint32_t> forks{0};
std::atomic<bool> news{false};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Keeps every name that was ever counted, so that the number of names that are reported is bounded.
std::vector<ipc::ForbiddenAct>& otherActs() {
  static auto* acts = new std::vector<ipc::ForbiddenAct>;
  return *acts;
}

std::array<uint64_t, 2> filterKey{};

// The registers of a thread that tried a system call: the first four arguments of the call, and its
// result. The system calls of Linux, see syscall(2).
class CallRegisters {
 public:
#if defined(__x86_64__)
  explicit CallRegisters(mcontext_t& thread) : registers_(thread.gregs) {}
  std::array<long, 4> arguments() const {
    return {registers_[REG_RDI], registers_[REG_RSI], registers_[REG_RDX], registers_[REG_R10]};
  }
  void setResult(long result) { registers_[REG_RAX] = result; }

 private:
  greg_t* registers_;
#elif defined(__aarch64__)
  explicit CallRegisters(mcontext_t& thread) : registers_(thread.regs) {}
  std::array<long, 4> arguments() const {
    return {static_cast<long>(registers_[0]), static_cast<long>(registers_[1]),
            static_cast<long>(registers_[2]), static_cast<long>(registers_[3])};
  }
  void setResult(long result) { registers_[0] = static_cast<unsigned long long>(result); }

 private:
  unsigned long long* registers_;
#endif
};

// If the call concerns another thread of this process, makes it on behalf of the thread that tried
// and returns its result.
std::optional<long> callForOwnThread(int number, const std::array<long, 4>& arguments) {
  const std::optional<size_t> which = threadArgument(number);
  if (!which) return std::nullopt;
  const int saved = errno;
  std::optional<long> outcome;
  // Signal 0 checks whether this process has such a thread.
  if (::syscall(SYS_tgkill, ::getpid(), arguments[*which], 0) == 0) {
    const long result = ::syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                                  filterKey[0], filterKey[1]);
    outcome = result == -1 ? -errno : result;
  }
  errno = saved;
  return outcome;
}

// Handler of SIGSYS. Ignores a SIGSYS that another process or kill() sent.
void refuseCall(int, siginfo_t* info, void* context) {
  if (info->si_code != kFromFilter) return;
  CallRegisters registers(static_cast<ucontext_t*>(context)->uc_mcontext);
  if (const auto outcome = callForOwnThread(info->si_syscall, registers.arguments())) {
    registers.setResult(*outcome);
    return;
  }
  registers.setResult(-EPERM);
  const auto number = static_cast<size_t>(info->si_syscall);
  timesOfCall[std::min(number, kCalls - 1)].fetch_add(1, std::memory_order_relaxed);
  news.store(true, std::memory_order_release);
}

}  // namespace

void countForbiddenCalls(const FilterOptions& options) {
  filterKey = {options.key[0], options.key[1]};
  struct sigaction action {};
  action.sa_sigaction = refuseCall;
  // No SA_RESTART: the system calls that the handler interrupts must not be restarted. SA_NODEFER:
  // the handler may interrupt itself.
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  base::checkSystemCall(::sigaction(SIGSYS, &action, nullptr), "sigaction", "SIGSYS");
}

void countForbiddenAct(const std::string& act) {
  std::string name = act.substr(0, kMaxNameBytes);
  auto& acts = otherActs();
  const auto named = [&](const ipc::ForbiddenAct& each) { return each.act == name; };
  auto found = std::find_if(acts.begin(), acts.end(), named);
  if (found == acts.end() && acts.size() + 1 >= kMaxNames) {
    name = "other acts";
    found = std::find_if(acts.begin(), acts.end(), named);
  }
  if (found != acts.end()) {
    ++found->times;
  } else {
    acts.push_back({std::move(name), 1});
  }
  news.store(true, std::memory_order_release);
}

void countForbiddenFork() noexcept {
  forks.fetch_add(1, std::memory_order_relaxed);
  news.store(true, std::memory_order_release);
}

bool anyForbiddenActs() noexcept { return news.load(std::memory_order_relaxed); }

std::vector<ipc::ForbiddenAct> takeForbiddenActs() {
  if (!news.exchange(false, std::memory_order_acquire)) return {};
  std::vector<ipc::ForbiddenAct> acts;
  for (ipc::ForbiddenAct& act : otherActs()) {
    if (act.times > 0) acts.push_back({act.act, std::exchange(act.times, 0)});
  }
  for (size_t number = 0; number < kCalls; ++number) {
    const uint32_t times = timesOfCall[number].exchange(0, std::memory_order_relaxed);
    if (times == 0) continue;
    acts.push_back(
        {"system call " + forbiddenCallName(number).value_or(std::to_string(number)), times});
  }
  if (const uint32_t times = forks.exchange(0)) {
    acts.push_back({"start of a process (fork)", times});
  }
  return acts;
}

}  // namespace isopool::worker
