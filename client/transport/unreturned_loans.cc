// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/unreturned_loans.h"

#include <list>
#include <utility>

#include "base/mutex.h"
#include "client/program/process_fork.h"
#include "client/transport/worker_link.h"

namespace isopool::client {

namespace {

struct Kept {
  base::Mutex mutex;
  std::list<std::shared_ptr<WorkerLink>> links ISOPOOL_GUARDED_BY(mutex);
};

Kept& kept() {
  static PerProcess<Kept> kept;
  return kept.get();
}

}  // namespace

void keepUntilReturned(std::shared_ptr<WorkerLink> link) {
  releaseReturned();
  if (!link->loansInUse()) return;
  Kept& all = kept();
  base::MutexLock lock(all.mutex);
  all.links.push_back(std::move(link));
}

void releaseReturned() {
  std::list<std::shared_ptr<WorkerLink>> returned;  // destroyed after the lock is released
  Kept& all = kept();
  base::MutexLock lock(all.mutex);
  for (auto link = all.links.begin(); link != all.links.end();) {
    const auto next = std::next(link);
    if (!(*link)->loansInUse()) returned.splice(returned.end(), all.links, link);
    link = next;
  }
}

}  // namespace isopool::client
