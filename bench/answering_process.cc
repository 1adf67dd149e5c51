// SPDX-License-Identifier: BSD-3-Clause
#include "bench/answering_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <new>
#include <optional>
#include <stdexcept>

#include "base/parent_death.h"
#include "base/system_call.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/layout.h"
#include "ipc/channel/ring.h"
#include "ipc/channel/shared_memory.h"
#include "ipc/channel/spin.h"

namespace bench {

namespace base = isopool::base;
namespace ipc = isopool::ipc;

namespace {

constexpr size_t kSlots = 2;
struct EmptySlot {};

}  // namespace

struct AnsweringProcess::Ring {
  alignas(128) ipc::SharedWord<uint32_t> tail{0};
  alignas(128) ipc::SharedWord<uint32_t> head{0};
  alignas(128) ipc::SharedWord<uint32_t> sleeping{0};
  std::array<EmptySlot, kSlots> slots;
};

struct AnsweringProcess::Rings {
  Ring questions;
  Ring answers;
  alignas(128) ipc::SharedWord<bool> spins{false};
};

/// One process's side of both rings.
class AnsweringProcess::End {
 public:
  End(Ring& out, Ring& in)
      : out_(out.slots, out.tail, out.head, out.sleeping, {}),
        in_(std::span<const EmptySlot, kSlots>(in.slots), in.tail, in.head, in.sleeping, {}),
        inTail_(in.tail) {}

  void send() {
    out_.publish([](EmptySlot&) {});
  }

  void receive(bool spins, std::optional<std::chrono::nanoseconds> patience) {
    if (!spins ||
        !ipc::spinUntil([this] { return in_.ready(); }, ipc::monotonicNow(), ipc::kLongestSpin)) {
      while (!in_.ready()) sleep(patience);
    }
    in_.consume();
  }

 private:
  void sleep(std::optional<std::chrono::nanoseconds> patience) {
    bool slept = false;
    ipc::sleepUnless([this](auto&& step) { step(in_); }, [this] { return in_.ready(); },
                     [&] {
                       const ipc::FutexWatch watch{&inTail_, in_.consumed()};
                       ipc::futexWait({&watch, 1}, patience);
                       slept = true;
                     });
    if (slept && patience && !in_.ready()) {
      throw std::runtime_error("the process that answers empty slots does not answer");
    }
  }

  ipc::RingWriter<ipc::SharedMemory, EmptySlot, kSlots> out_;
  ipc::RingReader<ipc::SharedMemory, EmptySlot, kSlots> in_;
  const ipc::SharedWord<uint32_t>& inTail_;
};

AnsweringProcess::AnsweringProcess() {
  void* page =
      ::mmap(nullptr, ipc::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("no memory for two rings");
  memory_ = ipc::Mapping(page, ipc::kPageBytes);
  rings_ = new (page) Rings;
  static_assert(sizeof(Rings) <= ipc::kPageBytes);
  const pid_t self = ::getpid();
  other_ = base::checkSystemCall(::fork(), "fork");
  if (other_ > 0) {
    end_ = std::make_unique<End>(rings_->questions, rings_->answers);
    return;
  }
  base::endWithParent(self);
  for (End end(rings_->answers, rings_->questions);;) {
    end.receive(rings_->spins.load(std::memory_order_relaxed), {});
    end.send();
  }
}

AnsweringProcess::~AnsweringProcess() {
  ::kill(other_, SIGKILL);
  ::waitpid(other_, nullptr, 0);
}

void AnsweringProcess::ask(bool spinning) {
  rings_->spins.store(spinning, std::memory_order_relaxed);
  end_->send();
  end_->receive(spinning, std::chrono::seconds(5));
}

}  // namespace bench
