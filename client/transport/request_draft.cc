// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/request_draft.h"

#include <ATen/core/ivalue.h>
#include <pthread.h>

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "client/program/caller_modes.h"
#include "client/program/thread_objects.h"
#include "ipc/channel/operation.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

// Both without a destructor, so that they work as long as the thread runs.
constinit thread_local RequestDraft* threadDraft = nullptr;

void endDraft(void*) { delete std::exchange(threadDraft, nullptr); }

// Ends the draft of a thread that ends. A thread_local object would end with the thread's other
// ones, but calls may come later: from destructors of objects that were made before it, and of
// keys, and on the main thread from destructors of static objects. Such a call makes another draft.
// The system ends that one in its next round of keys, and none after the last round, nor at exit().
class EndOfDrafts {
 public:
  EndOfDrafts() : error_(::pthread_key_create(&key_, &endDraft)) {}
  /// False if there is no memory for it, or no key was free.
  bool atEndOfThread() const {
    return error_ == 0 && ::pthread_setspecific(key_, &threadDraft) == 0;
  }

 private:
  pthread_key_t key_{};
  const int error_;
};

// Made when the library is loaded, see process_fork.cc.
const EndOfDrafts endOfDrafts;

RequestDraft& draftOfThread() {
  if (threadDraft == nullptr) {
    makeThreadObjects();
    auto made = std::make_unique<RequestDraft>();
    if (!endOfDrafts.atEndOfThread()) throw std::bad_alloc();
    threadDraft = made.release();
  }
  return *threadDraft;
}

template <typename Write>
void writeUntil(const Deadline& deadline, ipc::PayloadWriter& writer, Write&& write) {
  writer.stopAt(deadline);
  try {
    write(writer);
  } catch (const ipc::OutOfTime&) {
    writer.releaseStorages();
    throw DeadlineExceeded(
        "the deadline passed while the arguments of the call were being written; it will not run",
        /*started=*/false);
  } catch (...) {
    writer.releaseStorages();
    throw;
  }
}

// Adds to a refusal which argument it is; `place` makes that text.
template <typename Place>
void addArgument(ipc::PayloadWriter& writer, const at::IValue& value, const Place& place) {
  try {
    writer.addValue(value);
  } catch (const ipc::ValueError& error) {
    throw ipc::ValueError(place() + ": " + error.what());
  }
}

}  // namespace

void prepareThread() { draftOfThread(); }

RequestDraft& requestDraft() {
  RequestDraft& draft = draftOfThread();
  // One by one: the end of a storage may run code of the user, which may call this function.
  while (!draft.exports.empty()) {
    const ExportedStorage last = std::move(draft.exports.back());
    draft.exports.pop_back();
  }
  draft.writer.clear();
  draft.records.clear();
  draft.flags = 0;
  draft.tag = 0;
  draft.runTime.reset();
  draft.onlyForThisCaller = false;
  draft.modes = callerModes();
  return draft;
}

uint32_t flagsOf(const CallOptions& options) {
  uint32_t flags = 0;
  if (options.permissive) flags |= ipc::kPermissive;
  if (options.pickledErrors) flags |= ipc::kPickledError;
  return flags;
}

void draftArguments(RequestDraft& draft, at::ArrayRef<at::IValue> args,
                    const NamedArguments* kwargs, const Deadline& deadline) {
  writeUntil(deadline, draft.writer, [&](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(static_cast<uint32_t>(args.size()));
    for (size_t i = 0; i < args.size(); ++i) {
      addArgument(writer, args[i], [&] { return "args[" + std::to_string(i) + "]"; });
    }
    writer.packer().pack_map(kwargs == nullptr ? 0 : static_cast<uint32_t>(kwargs->size()));
    if (kwargs == nullptr) return;
    for (const auto& [name, value] : *kwargs) {
      writer.packer().pack(name);
      addArgument(writer, value, [&name = name] { return "kwargs['" + name + "']"; });
    }
  });
}

void draftValue(RequestDraft& draft, const at::IValue& value, const Deadline& deadline) {
  writeUntil(deadline, draft.writer, [&](ipc::PayloadWriter& writer) { writer.addValue(value); });
}

}  // namespace isopool::client
