// SPDX-License-Identifier: BSD-3-Clause
// Writes the steps of ipc/channel as Promela, in the order in which the shipped code makes them:
// runs the code over a memory that records each access. channel.pml defines what each step means.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "ipc/channel/await_outcome.h"
#include "ipc/channel/ring.h"

namespace isopool::model {
namespace {

using Steps = std::vector<std::string>;
Steps steps;

/// Records each access under the word's name.
struct NotingMemory {
  template <typename T>
  struct Word {
    const char* name;
    T value = 0;
    T load(std::memory_order) const {
      note("load", name);
      return value;
    }
    void store(T stored, std::memory_order) {
      note("store", name);
      value = stored;
    }
    T exchange(T stored, std::memory_order) {
      note("exchange", name);
      return std::exchange(value, stored);
    }
  };
  static void note(const char* act, const char* name) {
    steps.push_back(std::string(act) + "_" + name);
  }
  static void wake(const Word<uint32_t>& word) { note("wake", word.name); }
  static void reach(ipc::CrashPoint) { steps.emplace_back("may_die"); }
};
using Memory = NotingMemory;
struct Slot {};

/// The client that awaitOutcome() needs; records each step.
struct NotingClient {
  int turns = 1;
  bool died = false;
  bool announced = false;

  void deliver() { steps.emplace_back("deliver"); }
  bool hasOutcome() {
    steps.emplace_back("has_outcome");
    return turns-- == 0;
  }
  bool workerDied() {
    steps.emplace_back(announced ? "look_again_worker_died" : "worker_died");
    return died;
  }
  void settle() { steps.emplace_back("settle"); }
  bool leaves() {
    steps.emplace_back("leaves");
    return false;
  }
  void watch() { steps.emplace_back("watch"); }
  void sleep() { steps.emplace_back("sleep_client"); }
  bool completionReady() {
    steps.emplace_back("look_again_ready");
    return false;
  }
  void announceSleep() {
    announced = true;
    steps.emplace_back("exchange_client_sleeping");
  }
  void withdrawSleep() { steps.emplace_back("store_client_sleeping"); }
};

Steps taken() { return std::exchange(steps, {}); }

void write(const char* name, const Steps& made) {
  std::printf("inline %s() {\n", name);
  for (const std::string& step : made) std::printf("  %s();\n", step.c_str());
  std::printf("}\n\n");
}

Steps publishSteps(const char* tail, const char* sleeping, bool readerSleeps) {
  Slot slots[1];
  Memory::Word<uint32_t> tailWord{tail};
  Memory::Word<uint32_t> head{"head"};
  Memory::Word<uint32_t> sleepingWord{sleeping, readerSleeps ? 1U : 0U};
  ipc::RingWriter<Memory, Slot, 1> writer(slots, tailWord, head, sleepingWord, {});
  writer.publish([](Slot&) { steps.emplace_back("fill"); });
  return taken();
}

/// Steps of a writer that finds its reader asleep. Without a sleeping reader, the steps must be the
/// same except for the wake.
Steps publishSteps(const char* tail, const char* sleeping) {
  const Steps woken = publishSteps(tail, sleeping, true);
  Steps awake = publishSteps(tail, sleeping, false);
  Steps withoutWake;
  for (const std::string& step : woken) {
    if (step.rfind("wake_", 0) != 0) withoutWake.push_back(step);
  }
  if (withoutWake != awake || woken.size() != awake.size() + 1) {
    std::fprintf(stderr, "publish() differs by more than a wake; channel.pml lacks that\n");
    std::exit(1);
  }
  return woken;
}

}  // namespace
}  // namespace isopool::model

int main() {
  using namespace isopool::model;
  using isopool::ipc::RingReader;
  std::printf("/* Written by channel_steps.cc from ipc/channel: do not edit. */\n\n");
  write("publish_call", publishSteps("call_tail", "worker_sleeping"));
  write("publish_answer", publishSteps("answer_tail", "client_sleeping"));

  const Slot slots[1];
  Memory::Word<uint32_t> tail{"call_tail"};
  Memory::Word<uint32_t> head{"call_head"};
  Memory::Word<uint32_t> sleeping{"worker_sleeping"};
  RingReader<Memory, Slot, 1> reader(slots, tail, head, sleeping, {});
  reader.consume();
  write("consume_call", taken());
  isopool::ipc::sleepUnless([&](auto&& step) { step(reader); },
                            [] {
                              steps.emplace_back("look_again_call");
                              return false;
                            },
                            [] { steps.emplace_back("sleep_worker"); });
  write("worker_sleeps", taken());

  Memory::Word<uint64_t> started{"started"};
  Memory::Word<uint64_t> recalled{"recalled"};
  isopool::ipc::startCall<Memory>(started, recalled, 1);
  write("start_call", taken());
  isopool::ipc::recallCall<Memory>(recalled, started, 1);
  write("recall_call", taken());

  NotingClient idle;
  isopool::ipc::awaitOutcome(idle);
  Steps turn = taken();
  turn.resize(turn.size() - 2);  // the second turn, which ends at once
  write("idle_turn", turn);
  NotingClient bereft;
  bereft.died = true;
  isopool::ipc::awaitOutcome(bereft);
  Steps end = taken();
  end.erase(end.begin(), end.begin() + 3);  // as far as an idle turn
  write("worker_is_dead", end);
  return 0;
}
