// SPDX-License-Identifier: BSD-3-Clause
// What one call costs through the whole C++ API, beside the same call made in this process through
// CPython's C API. The two take turns, round by round, so that both see the same machine.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/in_process_model.h"
#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Size {
  const char* name;
  int64_t floats;
};
constexpr Size kSizes[] = {{"64 B", 16}, {"1 MB", 250'000}, {"100 MB", 25'000'000}};

struct Operation {
  const char* name;
  const char* pickle;
  bool touchesData;
};
constexpr Operation kOperations[] = {{"identity", "identity.pkl", false},
                                     {"made (x + 1)", "add_one.pkl", true},
                                     {"made (clone)", "clone.pkl", true},
                                     {"kept", "keep.pkl", true}};

struct Options {
  std::string packages;
  std::string only;
  bool quick = false;
};

/// The times of one round's calls, in microseconds.
std::vector<double> timeCalls(size_t count, const std::function<void()>& call) {
  std::vector<double> times;
  times.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return times;
}

/// So many that a round takes long enough to be steady and short enough to be repeated.
size_t callsPerRound(const Size& size, bool touchesData, bool quick) {
  const size_t most = quick ? 500 : 3000;
  if (!touchesData) return most;
  const size_t bytes = static_cast<size_t>(size.floats) * 4;
  return std::clamp<size_t>((quick ? 50'000'000 : 300'000'000) / bytes, 3, most);
}

struct Route {
  std::vector<double> p50, p99;
  void add(const std::vector<double>& times) {
    p50.push_back(bench::quantile(times, 0.5));
    p99.push_back(bench::quantile(times, 0.99));
  }
};

class Roundtrip {
 public:
  explicit Roundtrip(const Options& options)
      : options_(options), manager_(1), package_(manager_.loadPackage(file())) {}

  void run() {
    for (const Operation& operation : kOperations) {
      auto pooled = package_.loadPickle("model", operation.pickle);
      const bench::InProcessModel inProcess(file(), "model", operation.pickle);
      for (const Size& size : kSizes) {
        for (const bool shared : {true, false}) measure(operation, pooled, inProcess, size, shared);
      }
    }
  }

 private:
  std::string file() const { return options_.packages + "/calls.pt"; }

  void measure(const Operation& operation, const isopool::ReplicatedObj& pooled,
               const bench::InProcessModel& inProcess, const Size& size, bool shared) const {
    const std::string subject =
        std::string(operation.name) + " " + size.name + (shared ? " shared" : " outside");
    if (subject.find(options_.only) == std::string::npos) return;
    bench::announce(subject);
    const at::Tensor input =
        shared ? isopool::empty({size.floats}).fill_(1.5f) : at::full({size.floats}, 1.5f);
    // With one copy outside shared memory even an identity call takes as long as its data.
    const size_t calls = callsPerRound(size, operation.touchesData || !shared, options_.quick);
    const size_t rounds = options_.quick ? 5 : 15;
    const auto callPool = [&] { check(pooled({at::IValue(input)}).toTensor(), input); };
    const auto callInProcess = [&] { check(inProcess(input), input); };
    timeCalls(std::min<size_t>(calls, 20), callInProcess);
    timeCalls(std::min<size_t>(calls, 20), callPool);

    Route pool, process;
    std::vector<double> over;
    const uint64_t copiedBefore = isopool::copyCounters().total();
    for (size_t round = 0; round < rounds; ++round) {
      process.add(timeCalls(calls, callInProcess));
      pool.add(timeCalls(calls, callPool));
      over.push_back(pool.p50.back() - process.p50.back());
    }
    const double copied = static_cast<double>(isopool::copyCounters().total() - copiedBefore) /
                          static_cast<double>(calls * rounds);

    report("in-process", subject, "p50", process.p50, {});
    report("in-process", subject, "p99", process.p99, {});
    report("isopool", subject, "p50", pool.p50, process.p50);
    report("isopool", subject, "p99", pool.p99, process.p99);
    report("isopool", subject, "over_in_process", over, {});
    bench::print({"roundtrip", "isopool", subject, "bytes_copied", "B", copied, {}, "", {}});
  }

  /// Both routes look at the result, so that none can be wrong or lazy unseen.
  static void check(const at::Tensor& result, const at::Tensor& input) {
    if (result.numel() != input.numel() || result.data_ptr<float>()[0] < 1.5f) {
      throw std::runtime_error("a call gave a wrong result");
    }
  }

  static void report(const char* route, const std::string& subject, const char* metric,
                     const std::vector<double>& values, const std::vector<double>& yardstick) {
    const bench::Summary summary = bench::summarize(values);
    bench::Row row{"roundtrip",    route,          subject, metric, "us",
                   summary.median, summary.spread, "",      {}};
    if (!yardstick.empty()) {
      row.ratioTo = "in-process";
      row.ratio = summary.median / bench::summarize(yardstick).median;
    }
    bench::print(row);
  }

  const Options options_;
  isopool::InterpreterManager manager_;
  isopool::Package package_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One call through isopool beside the same call in-process.");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt")->required();
  app.add_option("--only", options.only, "only cases whose name contains this text");
  app.add_flag("--quick", options.quick, "fewer repetitions");
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    Roundtrip(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "roundtrip: %s\n", error.what());
    return 1;
  }
}
