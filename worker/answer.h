// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ipc/channel/operation.h"
#include "ipc/tensor/value_codec.h"
#include "worker/client_channel.h"
#include "worker/control_link.h"
#include "worker/copy_counts.h"
#include "worker/page_history.h"

namespace isopool::worker {

/// isopool itself can't do what a call asks.
class Refusal : public std::runtime_error {
 public:
  Refusal(ipc::RefusalKind kind, const std::string& text)
      : std::runtime_error(text), kind_(kind) {}
  ipc::RefusalKind kind() const { return kind_; }

 private:
  ipc::RefusalKind kind_;
};

/// One storage that a call brought, and what its answer may call it.
struct ImportedStorage {
  const c10::StorageImpl* impl = nullptr;  ///< for comparison only
  bool mayEcho = false;
};

/// Writes answers: decides for every storage of a result how it travels, without a copy where it
/// can. Reused from call to call; the call loop's thread.
class AnswerWriter {
 public:
  explicit AnswerWriter(ControlLink& control) : control_(control) {}

  /// Writes a value and lets it go; what it refers to is exported. Throws ipc::ValueError, Refusal.
  void writeValue(ClientChannel& channel, at::IValue value,
                  const std::vector<ImportedStorage>& imported, CopyCounts& copies);
  void writeNothing();
  void writeRefusal(ipc::RefusalKind kind, const std::string& text);
  void writePythonError(const struct PythonError& error);

  /// Ends the answer with what was copied for it (of a value only) and returns its bytes.
  std::span<const std::byte> finish(const CopyCounts& copies);
  ipc::CompletionStatus status() const { return status_; }

 private:
  void begin(ipc::CompletionStatus status);
  ipc::StorageRecord exportStorage(ClientChannel& channel, const c10::Storage& storage,
                                   ipc::StorageExtent extent,
                                   const std::vector<ImportedStorage>& imported,
                                   CopyCounts& copies);
  ipc::StorageRecord exportCopy(ClientChannel& channel, const c10::Storage& storage,
                                ipc::StorageExtent extent, ipc::CopyReason reason,
                                CopyCounts& copies);

  ControlLink& control_;
  PageHistory pages_;
  ipc::PayloadWriter writer_;
  std::vector<ipc::StorageRecord> records_;
  std::deque<std::vector<std::byte>> inlineCopies_;  // what inline records point to
  ipc::CompletionStatus status_ = ipc::CompletionStatus::kValue;
};

}  // namespace isopool::worker
