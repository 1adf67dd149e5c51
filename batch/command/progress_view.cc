// SPDX-License-Identifier: BSD-3-Clause
#include "batch/command/progress_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/mutex.h"
#include "base/terminal_text.h"

namespace isopool::batch {

namespace {

using base::Json;
using Seconds = std::chrono::duration<double>;

/// Rates are of the last ten seconds: a model's speed changes with its inputs.
constexpr double kRateSeconds = 10;
constexpr double kPlainSeconds = 10;
constexpr int kBarWidth = 24;
constexpr size_t kLongestText = 200;
/// Failures that are shown one by one; `isopool batch report` shows all.
constexpr uint64_t kShownFailures = 20;
constexpr const char* kNotShown = "(further ones: isopool batch report)";
constexpr size_t kLongestLine = 2000;

/// Items per second, from the last progress reports.
class Rate {
 public:
  void add(const BatchProgress& progress) {
    samples_.emplace_back(progress.elapsed.count(), progress.doneNow + progress.failed);
    while (samples_.size() > 2 && samples_.back().first - samples_[1].first > kRateSeconds) {
      samples_.pop_front();
    }
  }
  double perSecond() const {
    if (samples_.size() < 2) return 0;
    const double time = samples_.back().first - samples_.front().first;
    const auto count = static_cast<double>(samples_.back().second - samples_.front().second);
    return time > 0 ? count / time : 0;
  }

 private:
  std::deque<std::pair<double, uint64_t>> samples_;
};

std::string rateText(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, rate < 10 ? "%.2f/s" : rate < 100 ? "%.1f/s" : "%.0f/s", rate);
  return text;
}

std::string clockText(double seconds) {
  const auto whole = static_cast<uint64_t>(std::llround(std::min(seconds, 3.6e8)));
  char text[32];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%llu:%02llu:%02llu",
                  static_cast<unsigned long long>(whole / 3600),
                  static_cast<unsigned long long>(whole / 60 % 60),
                  static_cast<unsigned long long>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%llu:%02llu", static_cast<unsigned long long>(whole / 60),
                  static_cast<unsigned long long>(whole % 60));
  }
  return text;
}

std::string failureText(const BatchFailure& failure) {
  const std::string type = base::terminalText(failure.type, kLongestText);
  const std::string message = base::terminalText(failure.message, kLongestText);
  return base::terminalText(failure.id, kLongestText) + "  " + toString(failure.reason) +
         (failure.phase.empty() ? "" : " in " + failure.phase) + ": " + type +
         (type.empty() || message.empty() ? "" : ": ") + message;
}

std::string figures(const BatchProgress& progress, double rate) {
  const uint64_t settled = progress.done + progress.failed;
  std::string text = grouped(settled) + "/" + grouped(progress.items) + "  " + rateText(rate);
  if (rate > 0 && settled < progress.items) {
    text += "  ETA " + clockText(static_cast<double>(progress.items - settled) / rate);
  }
  if (progress.failed > 0) text += "  " + grouped(progress.failed) + " set aside";
  if (progress.restarts > 0) text += "  " + grouped(progress.restarts) + " restarts";
  return text + "  " + grouped(progress.memory >> 20) + " MiB";
}

class TerminalView : public ProgressView {
 public:
  void progress(const BatchProgress& progress) override {
    const base::MutexLock lock(mutex_);
    rate_.add(progress);
    const double share = progress.items == 0
                             ? 1
                             : static_cast<double>(progress.done + progress.failed) /
                                   static_cast<double>(progress.items);
    const int full = static_cast<int>(std::min(share, 1.0) * kBarWidth);
    std::string line;
    for (int i = 0; i < kBarWidth; ++i) line += i < full ? "━" : "─";
    char percent[16];
    std::snprintf(percent, sizeof percent, " %3.0f %%  ", std::floor(share * 100));
    write("\r\033[K" + coloured(line) + fitting(percent + figures(progress, rate_.perSecond())));
  }
  void failure(const BatchFailure& failure) override {
    const base::MutexLock lock(mutex_);
    if (++failures_ > kShownFailures) return;
    write("\r\033[K" + failureText(failure) + "\n");
    if (failures_ == kShownFailures) write(std::string(kNotShown) + "\n");
  }
  void line(const std::string& text) override {
    const base::MutexLock lock(mutex_);
    write("\r\033[K" + base::terminalText(text, kLongestLine) + "\n");
  }
  void end(const BatchSummary&, const std::string& line) override {
    write("\n");
    std::printf("%s\n", line.c_str());
  }

 private:
  static void write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }
  static std::string coloured(const std::string& text) {
    const char* off = std::getenv("NO_COLOR");
    return off != nullptr && *off != '\0' ? text : "\033[36m" + text + "\033[0m";
  }
  /// A line that is too long would begin another one, which is not overwritten.
  static std::string fitting(const std::string& text) {
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col <= kBarWidth) return text;
    return base::terminalText(text, size_t{size.ws_col} - kBarWidth - 1);
  }

  base::Mutex mutex_;
  Rate rate_;
  uint64_t failures_ = 0;
};

class PlainView : public ProgressView {
 public:
  void progress(const BatchProgress& progress) override {
    rate_.add(progress);
    if (progress.elapsed.count() < next_) return;
    next_ = progress.elapsed.count() + kPlainSeconds;
    std::fprintf(stderr, "%s\n", figures(progress, rate_.perSecond()).c_str());
  }
  void failure(const BatchFailure& failure) override {
    if (++failures_ > kShownFailures) return;
    std::fprintf(stderr, "%s\n", failureText(failure).c_str());
    if (failures_ == kShownFailures) std::fprintf(stderr, "%s\n", kNotShown);
  }
  void line(const std::string& text) override {
    std::fprintf(stderr, "%s\n", base::terminalText(text, kLongestLine).c_str());
  }
  void end(const BatchSummary&, const std::string& line) override {
    std::printf("%s\n", line.c_str());
  }

 private:
  Rate rate_;
  double next_ = kPlainSeconds;
  std::atomic<uint64_t> failures_{0};
};

class JsonView : public ProgressView {
 public:
  void progress(const BatchProgress& progress) override {
    rate_.add(progress);
    const bool last = progress.chunks == progress.chunksDone;
    if (progress.elapsed.count() < next_ && !last) return;
    next_ = progress.elapsed.count() + 1;
    print({{"event", "progress"},
           {"items", progress.items},
           {"done", progress.done},
           {"quarantined", progress.failed},
           {"done_in_this_run", progress.doneNow},
           {"rate", rate_.perSecond()},
           {"workers_replaced", progress.restarts},
           {"chunks", progress.chunks},
           {"chunks_done", progress.chunksDone},
           {"memory_bytes", progress.memory},
           {"seconds", progress.elapsed.count()}});
  }
  void failure(const BatchFailure& failure) override {
    print({{"event", "failure"},
           {"id", failure.id},
           {"reason", toString(failure.reason)},
           {"phase", failure.phase},
           {"signal", failure.signal},
           {"exit_code", failure.exitCode},
           {"type", failure.type},
           {"message", failure.message},
           {"attempts", failure.attempts}});
  }
  void line(const std::string& text) override { print({{"event", "output"}, {"text", text}}); }
  void end(const BatchSummary& summary, const std::string& line) override {
    print({{"event", "end"}, {"end", toString(summary.end)}, {"message", line}});
  }

 private:
  void print(const Json& json) {
    const base::MutexLock lock(mutex_);
    std::printf("%s\n", base::jsonText(json).c_str());
    std::fflush(stdout);
  }

  base::Mutex mutex_;
  Rate rate_;
  double next_ = 0;
};

}  // namespace

std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t place = digits.size(); place > 3;) {
    place -= 3;
    digits.insert(place, 1, ',');
  }
  return digits;
}

std::unique_ptr<ProgressView> terminalView() { return std::make_unique<TerminalView>(); }
std::unique_ptr<ProgressView> plainView() { return std::make_unique<PlainView>(); }
std::unique_ptr<ProgressView> jsonView() { return std::make_unique<JsonView>(); }

}  // namespace isopool::batch
