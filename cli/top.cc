// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/system_call.h"
#include "cli/keys.h"
#include "cli/rates.h"
#include "cli/report_json.h"
#include "cli/sorting.h"
#include "cli/styled_text.h"
#include "cli/supervisor_link.h"
#include "cli/terminal.h"
#include "cli/top_page.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {

namespace {

using Clock = SupervisorLink::Clock;
using std::chrono::milliseconds;

struct Observation {
  ipc::Report report;
  std::optional<Rates> rates;
};

Observation observe(ipc::Report report, RateMeter& meter) {
  std::optional<Rates> rates = meter.compare(report, Clock::now());
  sortBy(report, rates, SortOrder::kActivity);
  return {std::move(report), std::move(rates)};
}

std::string timeOfDay() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%H:%M:%S", &parts)};
}

std::string headingNow() { return "  at " + timeOfDay(); }

std::string jsonOf(const Observation& seen) {
  const auto sinceEpoch = std::chrono::system_clock::now().time_since_epoch();
  const base::Json json{
      {"time_ms", std::chrono::duration_cast<milliseconds>(sinceEpoch).count()},
      {"calls_per_second", seen.rates ? rateJson(seen.rates->total) : base::Json()},
      {"status", statusJson(seen.report)},
      {"workers", workersJson(seen.report, WithRates::kYes, seen.rates)},
      {"clients", clientsJson(seen.report, WithRates::kYes, seen.rates)},
      {"models", modelsJson(seen.report)},
  };
  return base::jsonText(json) + "\n";
}

/// Receives the signals that end or change the view through a descriptor. The destructor restores
/// the signal mask.
class Signals {
 public:
  Signals() {
    sigset_t mask;
    ::sigemptyset(&mask);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) {
      ::sigaddset(&mask, signal);
    }
    ::sigprocmask(SIG_BLOCK, &mask, &before_);
    fd_ = base::Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    base::checkSystemCall(fd_.get(), "signalfd");
  }
  ~Signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }
  /// The next pending signal; 0 if there is none.
  int next() {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  sigset_t before_{};
  base::Fd fd_;
};

/// `top` on a terminal: one loop that waits for keys, signals and reports.
class LiveView {
 public:
  LiveView(SupervisorLink& link, const TopOptions& options)
      : link_(link),
        options_(options),
        colours_(outputHasColours() ? Colours::kYes : Colours::kNo) {
    screen_.emplace();
  }

  void run() {
    askAt_ = Clock::now();
    while (!ended_) {
      if (!asked_ && Clock::now() >= askAt_) {
        link_.request();
        asked_ = true;
      }
      const auto next = asked_ ? link_.deadline() : askAt_;
      const auto left = std::chrono::ceil<milliseconds>(next - Clock::now());
      // Between two reports the link becomes readable only when the supervisor ends.
      std::array<pollfd, 3> waiting{{{link_.fd(), POLLIN, 0},
                                     {signals_.fd(), POLLIN, 0},
                                     {keysEnded_ ? -1 : STDIN_FILENO, POLLIN, 0}}};
      ::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
      if (waiting[1].revents != 0) readSignals();
      if (waiting[2].revents != 0) readKeys();
      if (waiting[0].revents != 0) readReport();
      if (asked_ && Clock::now() >= link_.deadline()) link_.giveUp();
    }
  }

 private:
  void readReport() {
    std::optional<ipc::Report> report = link_.receive();
    if (!report) return;
    asked_ = false;
    askAt_ = Clock::now() + options_.interval;
    seen_ = observe(std::move(*report), meter_);
    draw();
    ended_ = ended_ || (options_.count != 0 && ++shown_ >= options_.count);
  }

  void readKeys() {
    std::array<char, 64> keys;
    const ssize_t got = ::read(STDIN_FILENO, keys.data(), keys.size());
    if (got <= 0) {
      keysEnded_ = true;
      return;
    }
    bool changed = false;
    for (const Keys::Press& press : keys_.read({keys.data(), static_cast<size_t>(got)})) {
      const TopView::Outcome outcome = view_.press(press);
      ended_ = ended_ || outcome == TopView::Outcome::kEnd;
      changed = changed || outcome == TopView::Outcome::kChanged;
    }
    if (changed) draw();
  }

  void readSignals() {
    while (const int signal = signals_.next()) {
      if (signal == SIGWINCH) {
        draw();
      } else if (signal == SIGTSTP) {
        pause();
      } else {
        ended_ = true;
      }
    }
  }

  // Restores the terminal for the shell until this process is continued.
  void pause() {
    screen_.reset();
    ::kill(::getpid(), SIGSTOP);
    screen_.emplace();
    // The deadline has passed while this process was stopped: requests a new report.
    asked_ = false;
    askAt_ = Clock::now();
    draw();
  }

  void draw() {
    if (!seen_) return;
    const Screen::Size size = screen_->size();
    std::string text = "\x1b[H";
    const Page page =
        view_.page(seen_->report, seen_->rates, headingNow(), size.rows, size.columns);
    for (size_t row = 0; row < std::min(page.size(), size.rows); ++row) {
      if (row > 0) text += "\r\n";
      // Clears before the line is written: after a line as wide as the screen it would clear the
      // last character.
      text += "\x1b[K" + painted(page[row], colours_, size.columns);
    }
    writeOut(text + "\x1b[J");
  }

  SupervisorLink& link_;
  const TopOptions& options_;
  const Colours colours_;
  Signals signals_;
  std::optional<Screen> screen_;
  Keys keys_;
  TopView view_;
  RateMeter meter_;
  std::optional<Observation> seen_;
  uint64_t shown_ = 0;
  Clock::time_point askAt_;
  bool asked_ = false;
  bool keysEnded_ = false;
  bool ended_ = false;
};

void printReports(SupervisorLink& link, const TopOptions& options) {
  RateMeter meter;
  TopView view;
  for (uint64_t shown = 0; options.count == 0 || shown < options.count; ++shown) {
    // Between two reports the link becomes readable only when the supervisor ends.
    for (const auto next = Clock::now() + options.interval; shown > 0;) {
      const auto left = std::chrono::ceil<milliseconds>(next - Clock::now());
      if (left.count() <= 0) break;
      pollfd end{link.fd(), POLLIN, 0};
      if (::poll(&end, 1, static_cast<int>(left.count())) > 0) link.receive();
    }
    Observation seen = observe(link.ask(), meter);
    if (options.json) {
      writeOut(jsonOf(seen));
    } else {
      if (shown > 0) writeOut("\n");
      const Page page = view.page(seen.report, seen.rates, headingNow(), SIZE_MAX, SIZE_MAX);
      writeOut(painted(page, Colours::kNo));
    }
  }
}

}  // namespace

void runTop(const std::string& address, const TopOptions& options) {
  SupervisorLink link(address);
  if (options.json || !outputIsTerminal()) return printReports(link, options);
  LiveView(link, options).run();
}

}  // namespace isopool::cli
