// SPDX-License-Identifier: BSD-3-Clause
// A worker's control group, and its limit of memory.
#include "supervisor/pool/worker.h"

#include "base/log/log.h"

namespace isopool::supervisor {

namespace {

// The worker's interpreter, its folder for temporary files (64 MiB), page tables, kernel memory.
constexpr uint64_t kOwnNeeds = uint64_t{256} << 20;

}  // namespace

// The worker becomes ready only afterwards, and runs no user code before: it has no channel.
void Worker::confine() {
  Processes& processes = services_.processes;
  confined_ = !processes.hasControlGroups();
  if (confined_) return;
  services_.loop.runInBackground([&processes, self = self_.weak(), worker = pid(),
                                  memory = memoryAllowance(),
                                  tasks = services_.options.workerProcesses] {
    return base::EventLoop::Handler(
        [&processes, self, worker, problem = processes.confine(worker, memory, tasks)] {
          if (!problem.empty()) {
            base::log(base::LogLevel::kWarning, "worker process " + std::to_string(worker) +
                                                    " gets no control group: " + problem);
          }
          Worker* alive = self.get();
          if (alive == nullptr || alive->stage_ != Stage::kStarting) {
            return processes.forgetGroup(worker);
          }
          alive->confined_ = true;
          if (alive->saidReady_) alive->becomeReady();
        });
  });
}

// The kernel charges a page to the group of the process that touches it first, so this is what the
// worker may touch: sandbox.memory, what it copies of the zygote's memory, and all memory that it
// shares with its clients. 0: no limit.
uint64_t Worker::memoryAllowance() const {
  const uint64_t cap = services_.options.recycling.memoryCap;
  if (cap == 0) return 0;
  uint64_t bytes = cap + kOwnNeeds + sharedBytes() +
                   services_.processes.residentAnonymousBytes(services_.zygote.pid());
  for (const auto& [client, attachment] : attachments_) {
    bytes += attachment.inputBytes;
    for (const auto& [package, size] : attachment.packages) bytes += size;
  }
  return bytes;
}

void Worker::allowMemory() {
  if (!services_.processes.hasControlGroups()) return;
  if (const uint64_t bytes = memoryAllowance(); bytes != 0) {
    services_.processes.allowMemory(pid(), bytes);
  }
}

}  // namespace isopool::supervisor
