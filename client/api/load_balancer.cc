// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/load_balancer.h"

#include <mutex>
#include <string>

#include "client/program/process_fork.h"
#include "isopool/errors.h"

namespace isopool {

namespace {

// One for all LoadBalancers. Not a member: a forked child would inherit it locked if a thread of
// the parent was using the LoadBalancer. The counts are consistent at any time.
constinit client::PerProcess<std::mutex> mutex;

}  // namespace

LoadBalancer::LoadBalancer(size_t n) : users_(n), limit_(n) {
  if (n == 0) throw Error("a LoadBalancer needs at least one resource");
}

void LoadBalancer::setResourceLimit(size_t n) {
  if (n == 0 || n > users_.size()) {
    throw Error("setResourceLimit(" + std::to_string(n) + "): the limit must be between 1 and " +
                std::to_string(users_.size()) + ", the number of the LoadBalancer's resources");
  }
  std::lock_guard lock(mutex.get());
  limit_ = n;
}

int LoadBalancer::acquire() {
  // One value for all balancers: if it comes from another one, only the preference is lost.
  thread_local size_t last = 0;
  std::lock_guard lock(mutex.get());
  size_t best = last < limit_ ? last : 0;
  for (size_t i = 0; i < limit_ && users_[best] > 0; ++i) {
    const size_t next = (last + i) % limit_;
    if (users_[next] < users_[best]) best = next;
  }
  last = best;
  ++users_[best];
  return static_cast<int>(best);
}

void LoadBalancer::free(int where) {
  std::lock_guard lock(mutex.get());
  if (where < 0 || static_cast<size_t>(where) >= users_.size()) {
    throw Error("free(" + std::to_string(where) + "): the LoadBalancer has resources 0 to " +
                std::to_string(users_.size() - 1));
  }
  size_t& users = users_[static_cast<size_t>(where)];
  if (users == 0) throw Error("free(" + std::to_string(where) + "): the resource has no user");
  --users;
}

}  // namespace isopool
