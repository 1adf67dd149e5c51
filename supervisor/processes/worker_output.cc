// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/worker_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/log/log.h"
#include "base/standard_streams.h"
#include "base/system_call.h"

namespace isopool::supervisor {

namespace {

constexpr int kPipeBytes = 256 << 10;
constexpr size_t kLongestLine = 3072;  // a line of the log has room for it
constexpr int kPiecesAtOnce = 4;       // then the loop's other handlers run
constexpr int kPiecesAtTheEnd = 32;
constexpr base::Milliseconds kLineTime(1000);
constexpr base::Milliseconds kDropReport(5000);
// What a line of the log has besides the text; otherwise empty lines would cost nothing.
constexpr size_t kLineCost = 128;
constexpr uint64_t kMillisecondsPerSecond = 1000;

std::pair<base::Fd, base::Fd> makePipe() {
  int ends[2];
  base::checkSystemCall(::pipe2(ends, O_CLOEXEC), "pipe2");
  base::Fd toWrite = base::awayFromStandardStreams(base::Fd(ends[1]));
  return {base::awayFromStandardStreams(base::Fd(ends[0])), std::move(toWrite)};
}

}  // namespace

WorkerOutput::WorkerOutput(base::EventLoop& loop, OutputQuota& quota,
                           std::function<OutputSource()> source)
    : loop_(loop),
      quota_(quota),
      source_(std::move(source)),
      ends_(makePipe()),
      watch_(loop, ends_.first.get()),
      lineEnd_(loop),
      dropReport_(loop),
      budgetAt_(loop.now()) {
  // Only this end: user code expects its streams to block.
  ::fcntl(ends_.first.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(ends_.first.get(), F_SETPIPE_SZ, kPipeBytes);
  watch_.onReadable([this] {
    read(kPiecesAtOnce);
    if (ended_) watch_.pause();
    if (!line_.empty() && !lineEnd_.isSet()) lineEnd_.setAfter(kLineTime, [this] { endLine(); });
  });
}

void WorkerOutput::finish() {
  read(kPiecesAtTheEnd);
  if (!line_.empty()) endLine();
  reportDropped();
  reportQuota();
}

void WorkerOutput::read(int pieces) {
  std::array<char, 65536> bytes;
  for (int piece = 0; piece < pieces; ++piece) {
    const ssize_t got = ::read(ends_.first.get(), bytes.data(), bytes.size());
    if (got == 0) ended_ = true;
    if (got <= 0) return;
    take({bytes.data(), static_cast<size_t>(got)});
  }
}

void WorkerOutput::take(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t bytes = std::min(end, text.size());
    const size_t taken = std::min(bytes, kLongestLine - line_.size());
    line_ += text.substr(0, taken);
    text.remove_prefix(taken);
    if (taken == bytes && end != std::string_view::npos) {
      text.remove_prefix(1);
      endLine();
    } else if (line_.size() == kLongestLine) {
      endLine();
    }
  }
}

void WorkerOutput::endLine() {
  lineEnd_.cancel();
  const std::string line = std::exchange(line_, {});
  if (!isWithinRate(std::max(line.size(), kLineCost))) {
    drop(OutputQuota::Reason::kRate, line.size() + 1);
  } else if (!isWithinQuota()) {
    drop(OutputQuota::Reason::kQuota, line.size() + 1);
  } else {
    logLine(line);
  }
}

void WorkerOutput::logLine(const std::string& line) {
  const OutputSource source = source_();
  std::vector<base::LogField> fields{{"source", source.kind}};
  if (source.processId != 0) fields.emplace_back("worker_pid", source.processId);
  if (source.pool) fields.emplace_back("pool", *source.pool);
  if (source.slot) fields.emplace_back("slot", *source.slot);
  if (!source.model.empty()) fields.emplace_back("model", source.model);
  std::string_view text = line;
  const auto level = source.namesLevels ? base::takeLevel(text) : base::LogLevel::kInfo;
  quota_.charge(share_, base::logOutput(level, text, fields));
}

bool WorkerOutput::isWithinRate(size_t bytes) {
  const auto passed = std::chrono::duration_cast<base::Milliseconds>(loop_.now() - budgetAt_);
  const uint64_t gained =
      static_cast<uint64_t>(passed.count()) * kBytesPerSecond / kMillisecondsPerSecond;
  if (gained > 0) {
    budget_ = std::min(kBurst, budget_ + std::min(gained, kBurst));
    budgetAt_ = loop_.now();
  }
  if (bytes > budget_) return false;
  budget_ -= bytes;
  return true;
}

bool WorkerOutput::isWithinQuota() {
  const uint64_t before = share_.hour;
  const bool allowed = quota_.allows(share_, loop_.now());
  if (share_.hour != before) reportQuota();
  return allowed;
}

void WorkerOutput::drop(OutputQuota::Reason reason, size_t bytes) {
  quota_.countDropped(reason);
  const bool byRate = reason == OutputQuota::Reason::kRate;
  Dropped& dropped = byRate ? aboveRate_ : aboveQuota_;
  const bool first = dropped.lines++ == 0;
  dropped.bytes += bytes;
  if (byRate) {
    if (!dropReport_.isSet()) dropReport_.setAfter(kDropReport, [this] { reportDropped(); });
    return;
  }
  if (!first) return;
  const OutputSource source = source_();
  const auto left = std::chrono::ceil<std::chrono::minutes>(quota_.leftOfHour(loop_.now()));
  base::log(base::LogLevel::kWarning,
            std::string("output of a ") + source.kind + " is dropped for the next " +
                std::to_string(left.count()) + " min: it has used what " +
                std::to_string(quota_.limit() >> 10) +
                " KiB an hour for all processes leave to one (worker_output_quota)",
            {{"worker_pid", source.processId}});
}

void WorkerOutput::reportDropped() {
  if (aboveRate_.lines == 0) return;
  const OutputSource source = source_();
  const Dropped dropped = std::exchange(aboveRate_, {});
  base::log(base::LogLevel::kWarning,
            std::string("output of a ") + source.kind + " was dropped: it writes more than " +
                std::to_string(kBytesPerSecond >> 10) + " KiB a second",
            {{"worker_pid", source.processId}, {"lines", dropped.lines}, {"bytes", dropped.bytes}});
}

void WorkerOutput::reportQuota() {
  if (aboveQuota_.lines == 0) return;
  const OutputSource source = source_();
  const Dropped dropped = std::exchange(aboveQuota_, {});
  base::log(base::LogLevel::kWarning,
            std::string("output of a ") + source.kind +
                " was dropped after it had used its share of an hour (worker_output_quota)",
            {{"worker_pid", source.processId}, {"lines", dropped.lines}, {"bytes", dropped.bytes}});
}

}  // namespace isopool::supervisor
