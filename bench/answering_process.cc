// SPDX-License-Identifier: BSD-3-Clause
#include "bench/wake_pair.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <optional>
#include <stdexcept>

#include "ipc/channel/futex.h"
#include "ipc/system_call.h"

namespace bench {

namespace ipc = isopool::ipc;

struct WakePair::Words {
  alignas(128) ipc::SharedWord<uint32_t> asked{0};
  alignas(128) ipc::SharedWord<uint32_t> answered{0};
};

namespace {

// Sleeps until `word` is no longer `before`.
void sleepThrough(const ipc::SharedWord<uint32_t>& word, uint32_t before,
                  std::optional<std::chrono::nanoseconds> patience) {
  while (word.load(std::memory_order_acquire) == before) {
    const ipc::FutexWatch watch{&word, before};
    ipc::futexWait({&watch, 1}, patience);
    if (patience && word.load(std::memory_order_acquire) == before) {
      throw std::runtime_error("the process that answers wake-ups does not answer");
    }
  }
}

}  // namespace

WakePair::WakePair() {
  void* page =
      ::mmap(nullptr, ipc::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("no memory for a pair of words");
  memory_ = ipc::Mapping(page, ipc::kPageBytes);
  words_ = new (page) Words;
  other_ = ipc::checkSystemCall(::fork(), "fork");
  if (other_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (uint32_t turn = 0;; ++turn) {
    sleepThrough(words_->asked, turn, {});
    words_->answered.store(turn + 1, std::memory_order_release);
    ipc::futexWake(words_->answered);
  }
}

WakePair::~WakePair() {
  ::kill(other_, SIGKILL);
  ::waitpid(other_, nullptr, 0);
}

void WakePair::wakeAndBeWoken() {
  words_->asked.store(turn_ + 1, std::memory_order_release);
  ipc::futexWake(words_->asked);
  sleepThrough(words_->answered, turn_, std::chrono::seconds(5));
  ++turn_;
}

}  // namespace bench
