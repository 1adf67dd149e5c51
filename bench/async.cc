// SPDX-License-Identifier: BSD-3-Clause
// How much more an asynchronous call costs than a synchronous one, and how many of them two workers
// answer.
#include <ATen/ATen.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string packages;
  bool quick = false;
};

double microsecondsOf(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void report(const char* subject, const char* metric, const char* unit,
            const std::vector<double>& values) {
  const bench::Summary summary = bench::summarize(values);
  bench::print({"async", "isopool", subject, metric, unit, summary.median, summary.spread, "", {}});
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        manager_(2),
        identity_(manager_.loadPackage(options.packages + "/calls.pt")
                      .loadPickle("model", "identity.pkl")) {}

  void run() {
    measureLatency("one call, synchronous", [&] { identity_({input_}); });
    measureLatency("one call, callAsync and get", [&] { identity_.callAsync({input_}).get(); });
    measureThroughput("10,000 calls, 4 threads", [&] { callFromThreads(); });
    measureThroughput("10,000 calls, futures", [&] { callWithFutures(); });
    measureThroughput("10,000 calls, completion queue", [&] { callWithQueue(); });
  }

 private:
  static constexpr int kCalls = 10'000;

  void measureLatency(const char* subject, const std::function<void()>& call) {
    bench::announce(subject);
    std::vector<double> medians;
    for (int round = 0; round < (options_.quick ? 2 : 9); ++round) {
      std::vector<double> times;
      for (int i = 0; i < 2000; ++i) times.push_back(microsecondsOf(call));
      medians.push_back(bench::quantile(times, 0.5));
    }
    report(subject, "p50", "us", medians);
  }

  void measureThroughput(const char* subject, const std::function<void()>& calls) {
    bench::announce(subject);
    std::vector<double> rates;
    for (int round = 0; round < (options_.quick ? 2 : 9); ++round) {
      rates.push_back(kCalls / microsecondsOf(calls) * 1e6);
    }
    report(subject, "rate", "calls/s", rates);
  }

  void callFromThreads() {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < kCalls / 4; ++i) identity_({input_});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void callWithFutures() {
    std::vector<isopool::PendingCall> calls;
    calls.reserve(kCalls);
    for (int i = 0; i < kCalls; ++i) calls.push_back(identity_.callAsync({input_}));
    for (const isopool::PendingCall& call : calls) call.get();
  }

  void callWithQueue() {
    isopool::CompletionQueue queue;
    for (uint64_t tag = 0; tag < kCalls; ++tag) identity_.callAsync({input_}, queue, tag);
    size_t ended = 0;
    while (ended < kCalls) {
      pollfd watched{queue.fd(), POLLIN, 0};
      ::poll(&watched, 1, -1);
      for (const isopool::Completed& each : queue.take()) ended += each.outcome.ok() ? 1 : kCalls;
    }
  }

  const Options options_;
  const at::Tensor input_ = isopool::empty({16}).fill_(1.0f);
  isopool::InterpreterManager manager_;
  isopool::ReplicatedObj identity_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What asynchronous calls cost, on two workers, 64 bytes there and back.");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt")->required();
  app.add_flag("--quick", options.quick, "fewer repetitions");
  CLI11_PARSE(app, argc, argv);
  try {
    Bench(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "async: %s\n", error.what());
    return 1;
  }
}
