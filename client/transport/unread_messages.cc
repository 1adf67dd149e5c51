// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/unread_messages.h"

#include <algorithm>
#include <vector>

#include "base/mutex.h"
#include "client/program/process_fork.h"

namespace isopool::client {

// The connections of this process.
struct UnreadMessages::Known {
  base::Mutex mutex;
  std::vector<const UnreadMessages*> connections ISOPOOL_GUARDED_BY(mutex);
};

UnreadMessages::Known& UnreadMessages::known() {
  static PerProcess<Known> known;
  return known.get();
}

UnreadMessages::UnreadMessages(uint64_t connection) : connection_(connection), all_(known()) {
  base::MutexLock lock(all_.mutex);
  all_.connections.push_back(this);
}

UnreadMessages::~UnreadMessages() {
  base::MutexLock lock(all_.mutex);
  std::erase(all_.connections, this);
}

void UnreadMessages::set(bool unread) noexcept {
  base::MutexLock lock(all_.mutex);
  unread_ = unread;
}

bool UnreadMessages::of(uint64_t connection) {
  Known& all = known();
  base::MutexLock lock(all.mutex);
  return std::any_of(all.connections.begin(), all.connections.end(), [&](const auto* each) {
    return each->connection_ == connection && each->unread_;
  });
}

const char* UnreadMessages::cause() {
  return "messages of the supervisor wait unread, because this program has reached its limit of "
         "open files (RLIMIT_NOFILE): close files, or raise the limit (ulimit -n)";
}

}  // namespace isopool::client
