// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/memory_watch.h"

#include <algorithm>

namespace isopool::supervisor {

namespace {

constexpr base::Milliseconds kPeriod(1000);
constexpr base::Milliseconds kShortPeriod(100);
// Memory that RLIMIT_DATA does not count and that sound code has: the main thread's stack, pages of
// libraries that the loader has written, generated code.
constexpr uint64_t kUncounted = uint64_t{128} << 20;

std::string inMebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

std::string whyTooMuchMemory(const Processes::Tree& tree) {
  if (tree.limit == UINT64_MAX) return {};
  if (tree.processes > Processes::Tree::kMostCounted) {
    return "its code has started " + std::to_string(tree.processes) +
           " processes that still run, and isopoold counts the memory of " +
           std::to_string(Processes::Tree::kMostCounted) +
           " at most, so no more are allowed (ISOPOOL_WORKER_MEMORY)";
  }
  const uint64_t used = tree.workerBytes + tree.bytes;
  if (used <= kUncounted || used - kUncounted <= tree.limit) return {};
  std::string who = "it";
  if (tree.processes > 0) {
    who += " and " + std::to_string(tree.processes) +
           (tree.processes == 1 ? " process" : " processes") + " that its code has started";
  }
  return who + (tree.processes > 0 ? " have " : " has ") + inMebibytes(used) +
         " of private memory, and the limit is " + inMebibytes(tree.limit) +
         ", with what a worker has from the start (ISOPOOL_WORKER_MEMORY)";
}

MemoryWatch::MemoryWatch(Services& services, Events events)
    : services_(services), events_(std::move(events)), timer_(services.loop), self_(this) {}

void MemoryWatch::begin() {
  if (services_.options.recycling.memoryCap == 0 || looking_ || timer_.isSet()) return;
  timer_.setAfter(kShortPeriod, [this] { look(); });
}

void MemoryWatch::end() { timer_.cancel(); }

void MemoryWatch::look() {
  std::vector<Subject> subjects = events_.subjects();
  if (subjects.empty()) return;
  const bool busy = std::any_of(subjects.begin(), subjects.end(),
                                [](const Subject& subject) { return subject.busy; });
  looking_ = true;
  services_.loop.runInBackground([&processes = services_.processes, subjects = std::move(subjects),
                                  busy, self = self_.weak()]() -> base::EventLoop::Handler {
    Trees trees;
    for (const Subject& subject : subjects) {
      trees.emplace_back(subject.worker, processes.treeOf(subject.pid));
    }
    return [self, busy, trees = std::move(trees)] {
      if (MemoryWatch* alive = self.get()) alive->judge(trees, busy);
    };
  });
}

void MemoryWatch::judge(const Trees& trees, bool busy) {
  looking_ = false;
  bool processes = false;
  for (const auto& [worker, tree] : trees) {
    processes = processes || tree.processes > 0;
    // A worker that was reaped meanwhile may have lost its pid to another process: its owner knows.
    if (const std::string why = whyTooMuchMemory(tree); !why.empty()) events_.tooMuch(worker, why);
  }
  timer_.setAfter(busy || processes ? kShortPeriod : kPeriod, [this] { look(); });
}

}  // namespace isopool::supervisor
