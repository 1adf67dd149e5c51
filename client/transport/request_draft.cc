// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/request_draft.h"

#include "client/program/caller_modes.h"

namespace isopool::client {

RequestDraft& requestDraft() {
  thread_local RequestDraft draft;
  draft.writer.clear();
  draft.records.clear();
  draft.exports.clear();
  draft.flags = 0;
  draft.modes = callerModes();
  return draft;
}

}  // namespace isopool::client
