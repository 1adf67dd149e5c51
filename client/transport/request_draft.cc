// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/request_draft.h"

#include <ATen/core/ivalue.h>

#include "client/program/caller_modes.h"
#include "client/program/thread_objects.h"
#include "ipc/channel/operation.h"

namespace isopool::client {

namespace {

// Its constructor ends immediately before the program registers its destructor.
struct ThreadDraft : RequestDraft {
  ThreadDraft() { makeThreadObjects(); }
};

RequestDraft& threadDraft() {
  thread_local ThreadDraft draft;
  return draft;
}

}  // namespace

void prepareThread() { threadDraft(); }

RequestDraft& requestDraft() {
  RequestDraft& draft = threadDraft();
  draft.writer.clear();
  draft.records.clear();
  draft.exports.clear();
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
                    const NamedArguments* kwargs) {
  auto& packer = draft.writer.packer();
  packer.pack_array(static_cast<uint32_t>(args.size()));
  for (const at::IValue& value : args) draft.writer.addValue(value);
  packer.pack_map(kwargs == nullptr ? 0 : static_cast<uint32_t>(kwargs->size()));
  if (kwargs == nullptr) return;
  for (const auto& [name, value] : *kwargs) {
    packer.pack(name);
    draft.writer.addValue(value);
  }
}

}  // namespace isopool::client
