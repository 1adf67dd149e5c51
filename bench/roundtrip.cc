// SPDX-License-Identifier: BSD-3-Clause
// What one call costs through the whole C++ API, compared with the same call in this process
// through CPython's C API. The two take turns, round by round, so that both see the same load of
// the machine.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/answering_process.h"
#include "bench/in_process_model.h"
#include "bench/latency.h"
#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;
using bench::Latency;

struct Size {
  const char* name;
  int64_t floats;
  bool foremost;  ///< measured with every kind of call, not only with the usual ones
};
constexpr Size kSizes[] = {{"64 B", 16, true},           {"4 KB", 1000, false},
                           {"64 KB", 16'000, false},     {"1 MB", 250'000, true},
                           {"10 MB", 2'500'000, false},  {"100 MB", 25'000'000, true},
                           {"256 MB", 64'000'000, false}};

struct Operation {
  const char* name;
  const char* pickle;
  bool touchesData;
  bool usual;  ///< measured at every size, with shared and with copied inputs
};
constexpr Operation kOperations[] = {{"identity", "identity.pkl", false, true},
                                     {"made", "add_one.pkl", true, true},
                                     {"cloned", "clone.pkl", true, false},
                                     {"kept", "keep.pkl", true, false},
                                     {"remembered", "remember.pkl", true, false}};

struct Options {
  std::string packages;
  std::string only;
  bool quick = false;
  bool asleep = false;
};

/// Makes the library see only one usable processor, on which spinning would keep the worker from
/// running. So neither side of a call spins, as on a loaded machine. The library checks this once,
/// at the program's first call.
class OneProcessor {
 public:
  OneProcessor() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
  ~OneProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  cpu_set_t before_;
};

/// The empty calls of one round, while both sides spin: they take milliseconds, like a round
/// of short calls.
constexpr size_t kEmptyCalls = 3000;

/// How often all cases are measured, one after the other: a virtual machine's processors move
/// between real ones every few seconds, and a case that is measured only once would see only
/// one of them.
constexpr size_t passes(bool quick) { return quick ? 1 : 5; }

/// The sequence of the calls of one case.
struct Pace {
  size_t calls;   ///< of one round
  size_t rounds;  ///< of one pass
  std::chrono::milliseconds pause{};
  bool sleeping = false;  ///< both sides sleep before each call
};

/// The number of calls with which a round is long enough to be steady and short enough
/// to be repeated.
Pace backToBack(const Size& size, bool touchesData, bool quick) {
  const size_t most = quick ? 500 : 3000;
  const size_t bytes = static_cast<size_t>(size.floats) * 4;
  const size_t budget = quick ? 50'000'000 : 300'000'000;
  const size_t calls = touchesData ? std::clamp<size_t>(budget / bytes, 1, most) : most;
  return {calls, 3};
}

std::vector<double> timePaced(const Pace& pace, const std::function<void()>& call) {
  if (pace.pause.count() == 0) return bench::timeCalls(pace.calls, call);
  std::vector<double> times;
  for (size_t i = 0; i < pace.calls; ++i) {
    std::this_thread::sleep_for(pace.pause);
    times.push_back(bench::microsecondsOf(call));
  }
  return times;
}

class Roundtrip {
 public:
  Roundtrip(const Options& options, bench::AnsweringProcess& answering)
      : options_(options), answering_(answering), manager_(1) {
    std::optional<OneProcessor> one;
    if (options.asleep) one.emplace();
    package_.emplace(manager_.loadPackage(file()));
    load("identity.pkl")({at::IValue(at::ones({16}))});
  }

  void run() {
    for (size_t pass = 0; pass < passes(options_.quick); ++pass) {
      options_.asleep ? measureAsleep() : measureAll();
    }
    for (const auto& [name, measured] : cases_) measured.report({"roundtrip", name});
  }

 private:
  /// The rates of memcpy with the same input, in the same rounds.
  struct CopyRates {
    std::vector<double> memcpy, pool, ratios;
  };

  /// The measurements of one case so far.
  struct Case {
    Latency pool, process, empty;
    uint64_t copied = 0;
    size_t calls = 0;
    CopyRates copying;
    std::vector<double> rates;  ///< of several callers

    void report(const bench::Subject& subject) const;
  };

  Case& caseOf(const std::string& name) {
    for (auto& [known, measured] : cases_) {
      if (known == name) return measured;
    }
    return cases_.emplace_back(name, Case{}).second;
  }

  void measureAll() {
    for (const Operation& operation : kOperations) {
      for (const Size& size : kSizes) {
        if (!operation.usual && !size.foremost) continue;
        measure(operation, size, true);
        if (operation.usual) measure(operation, size, false);
      }
    }
    for (const size_t callers : {2, 4, 8}) {
      measureCallers(kSizes[0], callers);
      measureCallers(kSizes[3], callers);
    }
    const Pace sparse{options_.quick ? size_t{40} : size_t{100}, 1, std::chrono::milliseconds(10),
                      true};
    measureCase(kOperations[0], kSizes[0], true, ", calls 10 ms apart", sparse);
    measureCase(kOperations[0], kSizes[3], true, ", calls 10 ms apart", sparse);
  }

  std::string file() const { return options_.packages + "/calls.pt"; }
  isopool::ReplicatedObj load(const char* pickle) { return package_->loadPickle("model", pickle); }
  bool selected(const std::string& name) const {
    return name.find(options_.only) != std::string::npos;
  }

  void measureAsleep() {
    const Pace pace{options_.quick ? size_t{500} : size_t{2000}, 3, std::chrono::milliseconds(0),
                    true};
    measureCase(kOperations[0], kSizes[0], true, ", asleep", pace);
    measureCase(kOperations[0], kSizes[3], true, ", asleep", pace);
  }

  void measure(const Operation& operation, const Size& size, bool shared) {
    // With a copy, the time even of an identity call depends on the size of its data.
    measureCase(operation, size, shared, "",
                backToBack(size, operation.touchesData || !shared, options_.quick));
  }

  void measureCase(const Operation& operation, const Size& size, bool shared,
                   const std::string& state, const Pace& pace) {
    const std::string name =
        std::string(operation.name) + " " + size.name + (shared ? " shared" : " copied") + state;
    if (!selected(name)) return;
    bench::announce(name);
    const auto pooled = load(operation.pickle);
    const bench::InProcessModel inProcess(file(), "model", operation.pickle);
    const at::Tensor input =
        shared ? isopool::empty({size.floats}).fill_(1.5f) : at::full({size.floats}, 1.5f);
    const auto callPool = [&] { check(pooled({at::IValue(input)}).toTensor(), input); };
    const auto callInProcess = [&] { check(inProcess(input), input); };
    std::optional<at::Tensor> copy;
    if (!shared && !operation.touchesData && size.floats >= kSizes[3].floats) {
      copy = at::zeros_like(input);
    }
    for (const auto& call :
         {std::function<void()>(callInProcess), std::function<void()>(callPool)}) {
      timePaced({std::min<size_t>(pace.calls, 20), 1, pace.pause}, call);
    }

    Case& measured = caseOf(name);
    for (size_t round = 0; round < pace.rounds; ++round) {
      measured.process.add(timePaced(pace, callInProcess));
      const uint64_t before = isopool::copyCounters().total();
      measured.pool.add(timePaced(pace, callPool));
      measured.copied += isopool::copyCounters().total() - before;
      measured.calls += pace.calls;
      if (copy) compareWithMemcpy(measured, pace.calls, input, *copy);
      if (pace.sleeping) {
        measured.empty.add(timePaced(pace, [this] { answering_.askAsleep(); }));
      } else {
        measured.empty.add(bench::timeCalls(kEmptyCalls, [this] { answering_.askSpinning(); }));
      }
    }
  }

  static void compareWithMemcpy(Case& measured, size_t calls, const at::Tensor& input,
                                const at::Tensor& copy) {
    const auto bytes = static_cast<double>(input.nbytes());
    const auto times = bench::timeCalls(calls, [&] {
      std::memcpy(copy.mutable_data_ptr(), input.const_data_ptr(), input.nbytes());
    });
    CopyRates& rates = measured.copying;
    rates.memcpy.push_back(bytes / bench::quantile(times, 0.5) / 1e3);
    rates.pool.push_back(bytes / measured.pool.p50().back() / 1e3);
    rates.ratios.push_back(rates.pool.back() / rates.memcpy.back());
  }

  /// One worker, several threads that call it without a pause.
  void measureCallers(const Size& size, size_t callers) {
    const std::string name =
        "identity " + std::string(size.name) + " shared, " + std::to_string(callers) + " callers";
    if (!selected(name)) return;
    bench::announce(name);
    const auto pooled = load("identity.pkl");
    // Enough calls that no thread ends before the others have begun.
    const size_t calls = options_.quick ? 500 : 6000;
    Case& measured = caseOf(name);
    for (size_t round = 0; round <= 3; ++round) {
      std::vector<std::vector<double>> times(callers);
      std::barrier begin(static_cast<std::ptrdiff_t>(callers) + 1);
      std::vector<std::thread> threads;
      for (size_t caller = 0; caller < callers; ++caller) {
        threads.emplace_back([&, caller] {
          const at::Tensor input = isopool::empty({size.floats}).fill_(1.5f);
          begin.arrive_and_wait();
          times[caller] = bench::timeCalls(
              calls, [&] { check(pooled({at::IValue(input)}).toTensor(), input); });
        });
      }
      begin.arrive_and_wait();
      const double duration = bench::microsecondsOf([&] {
        for (std::thread& thread : threads) thread.join();
      });
      if (round == 0) continue;  // during each thread's first calls the arena has to grow
      std::vector<double> all;
      for (const auto& each : times) all.insert(all.end(), each.begin(), each.end());
      measured.pool.add(all);
      measured.rates.push_back(static_cast<double>(calls * callers) / duration * 1e6);
    }
  }

  /// Checks a result. Every route does this, so that a wrong or missing computation is noticed.
  static void check(const at::Tensor& result, const at::Tensor& input) {
    if (result.numel() != input.numel() || result.data_ptr<float>()[0] < 1.5f) {
      throw std::runtime_error("a call gave a wrong result");
    }
  }

  const Options options_;
  bench::AnsweringProcess& answering_;
  isopool::InterpreterManager manager_;
  std::optional<isopool::Package> package_;
  std::vector<std::pair<std::string, Case>> cases_;
};

void Roundtrip::Case::report(const bench::Subject& subject) const {
  const auto row = [&](const char* route, const char* metric, const char* unit,
                       const std::vector<double>& values) {
    const bench::Summary summary = bench::summarize(values);
    return bench::Row{subject.bench,  route,          subject.name, metric, unit,
                      summary.median, summary.spread, "",           {}};
  };
  if (!rates.empty()) {
    bench::report(subject, "isopool", pool);
    bench::print(row("isopool", "rate", "calls/s", rates));
    return;
  }
  bench::report(subject, "in-process", process);
  bench::reportOver(subject, "isopool", pool, process);
  const double each = static_cast<double>(copied) / static_cast<double>(calls);
  bench::print({subject.bench, "isopool", subject.name, "bytes_copied", "B", each, {}, "", {}});
  if (!copying.ratios.empty()) {
    bench::print(row("memcpy", "bandwidth", "GB/s", copying.memcpy));
    bench::Row ours = row("isopool", "bandwidth", "GB/s", copying.pool);
    ours.ratioTo = "memcpy";
    ours.ratio = bench::summarize(copying.ratios).median;
    bench::print(ours);
  }
  bench::report(subject, "empty slots", empty);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One call through isopool beside the same call in-process.");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt")->required();
  app.add_option("--only", options.only, "only cases whose name contains this text");
  app.add_flag("--quick", options.quick, "fewer repetitions");
  app.add_flag("--asleep", options.asleep, "only the cases in which no side spins");
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    bench::AnsweringProcess answering;
    Roundtrip(options, answering).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "roundtrip: %s\n", error.what());
    return 1;
  }
}
