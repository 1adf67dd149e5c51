// SPDX-License-Identifier: BSD-3-Clause
#include "tests/ipc/channel/stepped_process.h"

#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <utility>

#include "base/system_call.h"

namespace isopool::tests {

namespace {

// Places in the code whose addresses the tracer knows: the process is a fork and has the same ones.
// Their bodies differ, so that no linker merges them.
std::atomic<int> placesPassed{0};
[[gnu::noinline]] void firstInstruction() { placesPassed.fetch_add(1); }
[[gnu::noinline]] void behindLastInstruction() { placesPassed.fetch_add(2); }

// More than any act takes. The limit ends a tracer that has lost its process.
constexpr uint64_t kMostSteps = 1'000'000;

uintptr_t addressOf(void (*place)()) { return reinterpret_cast<uintptr_t>(place); }

uintptr_t programCounter(pid_t pid) {
  user_regs_struct registers{};
  iovec place{&registers, sizeof registers};
  base::checkSystemCall(static_cast<int>(::ptrace(PTRACE_GETREGSET, pid,
                                                  reinterpret_cast<void*>(NT_PRSTATUS), &place)),
                        "ptrace(PTRACE_GETREGSET)", pid);
#if defined(__x86_64__)
  return registers.rip;
#else
  return registers.pc;
#endif
}

}  // namespace

SteppedProcess::SteppedProcess(const std::function<void()>& prepare,
                               const std::function<void()>& act) {
  pid_ = base::checkSystemCall(::fork(), "fork");
  if (pid_ == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(errno);
    prepare();
    ::raise(SIGSTOP);
    firstInstruction();
    act();
    behindLastInstruction();
    ::_exit(0);
  }
  int status = 0;
  base::checkSystemCall(::waitpid(pid_, &status, 0), "waitpid", pid_);
  if (WIFEXITED(status)) {
    pid_ = -1;
    throw base::SystemCallError("ptrace(PTRACE_TRACEME)", "", WEXITSTATUS(status));
  }
  // The kernel kills the process if the test is killed.
  ::ptrace(PTRACE_SETOPTIONS, pid_, nullptr, reinterpret_cast<void*>(PTRACE_O_EXITKILL));
  stepTo(addressOf(&firstInstruction));
}

SteppedProcess::~SteppedProcess() { kill(); }

uint64_t SteppedProcess::step(uint64_t count) {
  for (uint64_t steps = 0; steps < count; ++steps) {
    if (programCounter(pid_) == addressOf(&behindLastInstruction)) return steps;
    oneStep();
  }
  return count;
}

void SteppedProcess::kill() {
  if (pid_ == -1) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
}

void SteppedProcess::oneStep() {
  base::checkSystemCall(static_cast<int>(::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr)),
                        "ptrace(PTRACE_SINGLESTEP)", pid_);
  int status = 0;
  base::checkSystemCall(::waitpid(pid_, &status, 0), "waitpid", pid_);
  if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) fail(status);
}

void SteppedProcess::stepTo(uintptr_t address) {
  for (uint64_t steps = 0; steps < kMostSteps; ++steps) {
    if (programCounter(pid_) == address) return;
    oneStep();
  }
  throw std::runtime_error("the stepped process never reached the expected address");
}

void SteppedProcess::fail(int status) const {
  throw std::runtime_error("the stepped process " + std::to_string(pid_) +
                           " ended or was stopped by something else, wait status " +
                           std::to_string(status));
}

std::string whyNoneCanBeStepped() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "the instructions of a sanitizer are not those that are shipped";
#elif !defined(__x86_64__) && !defined(__aarch64__)
  return "the program counter of this kind of processor is not known to the test";
#else
  try {
    SteppedProcess process([] {}, [] {});
    return process.step(kMostSteps) > 0 ? "" : "a traced process makes no steps";
  } catch (const std::exception& error) {
    return std::string("no process can be traced: ") + error.what();
  }
#endif
}

}  // namespace isopool::tests
