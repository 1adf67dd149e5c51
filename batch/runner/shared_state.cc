// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/shared_state.h"

#include <chrono>
#include <set>
#include <utility>

namespace isopool::batch {

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
/// So many items tell a mistake in the job from one in the inputs.
constexpr uint64_t kAlike = 20;

/// Without numbers and what is quoted, as in names of files.
std::string causeOf(const BatchFailure& failure) {
  std::string cause = failure.phase + ' ' + failure.type + ' ';
  bool quoted = false;
  for (const char character : failure.message) {
    if (character == '\'' || character == '"') quoted = !quoted;
    if (!quoted && (character < '0' || character > '9')) cause += character;
  }
  return cause;
}

}  // namespace

SharedState::SharedState(Journal& journal, FailureLimit limit, const BatchControl& control,
                         bool needsSchema)
    : journal_(journal), limit_(limit), control_(control) {
  const JournalCounts counts = journal.counts();
  items_ = counts.items;
  chunks_ = counts.chunks;
  chunksDone_ = counts.chunksDone;
  failed_ = counts.quarantined;
  done_ = static_cast<int64_t>(counts.rows);
  anyResult_ = counts.rows > 0;
  const std::vector<int64_t> unfinished = journal.unfinishedChunks();
  if (!needsSchema) {
    left_.assign(unfinished.begin(), unfinished.end());
    return;
  }
  sample_.emplace(journal.chunks());
  const std::set<int64_t> open(unfinished.begin(), unfinished.end());
  for (const int64_t chunk : sample_->order()) {
    if (open.contains(chunk)) {
      left_.push_back(chunk);
    } else {
      sample_->add(chunk, {}, 0);  // no part can be there: it had no rows
    }
  }
}

std::optional<int64_t> SharedState::take() {
  base::MutexLock lock(mutex_);
  while (!ending() && left_.empty() && !waiting_.empty()) changed_.wait_for(lock, kTick);
  if (ending() || left_.empty()) return std::nullopt;
  const int64_t chunk = left_.front();
  left_.pop_front();
  return chunk;
}

std::optional<std::vector<std::string>> SharedState::computed(int64_t chunk, int64_t items,
                                                              std::string types) {
  const base::MutexLock lock(mutex_);
  // Another lane has made them known meanwhile: the chunk can be finished.
  if (!sample_) return std::vector<std::string>();
  sample_->add(chunk, std::move(types), static_cast<uint64_t>(items));
  auto complete = sample_->complete();
  if (!complete && items > 0) waiting_[chunk] = items;
  return complete;
}

void SharedState::schemaIsKnown() {
  const base::MutexLock lock(mutex_);
  sample_.reset();
  for (auto chunk = waiting_.rbegin(); chunk != waiting_.rend(); ++chunk) {
    left_.push_front(chunk->first);
    done_ -= chunk->second;  // counted again by the lane that opens it
  }
  waiting_.clear();
  changed_.notify_all();
}

void SharedState::giveBack(int64_t chunk) {
  const base::MutexLock lock(mutex_);
  left_.push_front(chunk);
}

void SharedState::countDone(int64_t items) {
  done_ += items;
  if (items > 0) anyResult_ = true;
}

void SharedState::quarantine(const QuarantinedItem& item) {
  journal_.quarantine(item);
  const uint64_t failed = ++failed_;
  endIfAllFailAlike(item.failure, failed);
  if (control_.failure) {
    const base::MutexLock lock(mutex_);
    control_.failure(item.failure);
  }
  if (limit_.exceeded(failed, static_cast<uint64_t>(done_.load()))) {
    end(BatchEnd::kFailures, std::to_string(failed) +
                                 " items were set aside, more than allowed; "
                                 "the last one is " +
                                 item.failure.id + ": " + item.failure.message);
  }
}

// A mistake in the job, and not in its inputs: a missing import, another number of arguments.
void SharedState::endIfAllFailAlike(const BatchFailure& failure, uint64_t failed) {
  if (limit_.isSet() || anyResult_) return;
  const std::string cause = causeOf(failure);
  const base::MutexLock lock(mutex_);
  alike_ = alike_ && failure.reason == BatchReason::kRaised && (failed == 1 || cause == cause_);
  cause_ = cause;
  if (!alike_ || failed < kAlike || error_) return;
  error_ = std::make_exception_ptr(
      BatchRefused("each of the first " + std::to_string(failed) + " items failed alike, in " +
                   failure.phase + ": " + failure.type + ": " + failure.message +
                   ". To set such items aside all the same, allow it with --max-failures 100%\n" +
                   failure.traceback));
  mistaken_ = true;
  ending_ = true;
}

void SharedState::end(BatchEnd end, const std::string& message) {
  const base::MutexLock lock(mutex_);
  if (!end_) {
    end_ = end;
    message_ = message;
  }
  ending_ = true;
}

void SharedState::fail(std::exception_ptr error) {
  const base::MutexLock lock(mutex_);
  if (!error_) error_ = std::move(error);
  ending_ = true;
}

std::exception_ptr SharedState::error() {
  const base::MutexLock lock(mutex_);
  return error_;
}

std::optional<BatchEnd> SharedState::end() {
  const base::MutexLock lock(mutex_);
  return end_;
}

std::string SharedState::message() {
  const base::MutexLock lock(mutex_);
  return message_;
}

BatchProgress SharedState::progress() const {
  BatchProgress progress;
  progress.items = items_;
  progress.chunks = chunks_;
  progress.chunksDone = chunksDone_;
  progress.done = static_cast<uint64_t>(done_.load());
  progress.doneNow = static_cast<uint64_t>(computed_.load());
  progress.failed = failed_;
  return progress;
}

}  // namespace isopool::batch
