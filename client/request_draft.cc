// SPDX-License-Identifier: BSD-3-Clause
#include "client/request_draft.h"

#include <pthread.h>

#include <cerrno>
#include <memory>
#include <new>
#include <string>

#include "client/caller_modes.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

thread_local RequestDraft* draftOfThread = nullptr;

void dropDraft(void* draft) {
  draftOfThread = nullptr;
  delete static_cast<RequestDraft*>(draft);
}

/// Deletes each thread's draft at the thread's end. A thread_local with a destructor would do the
/// same, but glibc needs memory to note it, and ends the program where there is none.
class ThreadEnds {
 public:
  ThreadEnds() {
    if (::pthread_key_create(&key_, dropDraft) != 0) {
      throw Error(
          "isopool has no place in the program's threads: all keys that a process may have "
          "for thread-specific data (PTHREAD_KEYS_MAX) are taken");
    }
  }
  ~ThreadEnds() { ::pthread_key_delete(key_); }
  ThreadEnds(const ThreadEnds&) = delete;
  ThreadEnds& operator=(const ThreadEnds&) = delete;

  void watch(const RequestDraft* draft) const {
    // Anything but ENOMEM: the process ends, and with it the key has.
    if (::pthread_setspecific(key_, draft) == ENOMEM) throw std::bad_alloc();
  }

 private:
  pthread_key_t key_{};
};

RequestDraft& makeDraft() {
  static const ThreadEnds threadEnds;
  auto draft = std::make_unique<RequestDraft>();
  threadEnds.watch(draft.get());
  draftOfThread = draft.release();
  return *draftOfThread;
}

}  // namespace

RequestDraft& requestDraft() {
  RequestDraft& draft = draftOfThread != nullptr ? *draftOfThread : makeDraft();
  draft.writer.clear();
  draft.records.clear();
  draft.exports.clear();
  draft.flags = 0;
  draft.modes = callerModes();
  return draft;
}

}  // namespace isopool::client
