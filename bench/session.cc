// SPDX-License-Identifier: BSD-3-Clause
// What the steps of a session cost, one at a time and back to back, compared with the same steps
// in-process; and what the release of a thousand results costs.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/in_process_model.h"
#include "bench/latency.h"
#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using bench::Latency;
using Values = std::vector<at::IValue>;

struct Options {
  std::string packages;
  bool quick = false;
};

/// The number of the last request of this process. Counts notifications too, which observers do not
/// see.
class RequestNumbers {
 public:
  RequestNumbers() {
    isopool::setCallObserver([this](const isopool::CallRecord& call) {
      last_ = call.sequence;
      ++calls_;
    });
  }
  ~RequestNumbers() { isopool::setCallObserver({}); }
  RequestNumbers(const RequestNumbers&) = delete;
  RequestNumbers& operator=(const RequestNumbers&) = delete;
  uint64_t last() const { return last_; }
  uint64_t calls() const { return calls_; }

 private:
  uint64_t last_ = 0;
  uint64_t calls_ = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        manager_(1),
        package_(manager_.loadPackage(options.packages + "/calls.pt")),
        model_(package_.loadPickle("model", "identity.pkl")),
        inProcess_(options.packages + "/calls.pt", "model", "identity.pkl") {
    inProcess_.hold(input_);
  }

  void run() {
    isopool::InterpreterSession session = model_.acquireSession();
    const isopool::Obj model = session.self;
    const isopool::Obj tensor = session.fromIValue(input_);
    measure(
        "attr", [&] { model.attr("training"); }, [&] { inProcess_.touchAttribute("training"); });
    measure(
        "Obj call", [&] { model({tensor}); }, [&] { inProcess_.callHeld(); });
    measure(
        "toIValue", [&] { check(tensor.toIValue().toTensor()); },
        [&] { check(inProcess_.unpackHeld()); });
    measure(
        "attr, Obj call and toIValue",
        [&] {
          model.attr("training");
          check(model({tensor}).toIValue().toTensor());
        },
        [&] {
          inProcess_.touchAttribute("training");
          check(inProcess_(input_));
        });
    measureReleases(session);
  }

 private:
  static constexpr size_t kResults = 1000;

  void measure(const char* name, const std::function<void()>& step,
               const std::function<void()>& sameInProcess) const {
    bench::announce(name);
    const size_t calls = options_.quick ? 500 : 3000;
    bench::timeCalls(20, step);
    bench::timeCalls(20, sameInProcess);
    Latency pool, process;
    for (int round = 0; round < (options_.quick ? 3 : 15); ++round) {
      process.add(bench::timeCalls(calls, sameInProcess));
      pool.add(bench::timeCalls(calls, step));
    }
    const bench::Subject subject{"session", name};
    bench::report(subject, "in-process", process);
    bench::reportOver(subject, "isopool", pool, process);
  }

  /// The program releases results that the worker counts. Then it makes one step, which sends the
  /// last releases.
  void measureReleases(isopool::InterpreterSession& session) {
    bench::announce("1,000 releases");
    isopool::ReplicatedObj counting = package_.loadPickle("model", "counted.pkl");
    const isopool::Obj maker = counting.toObj(&session);
    const RequestNumbers numbers;
    std::vector<double> each, callsMade, messages;
    for (int round = 0; round < (options_.quick ? 3 : 15); ++round) {
      std::vector<isopool::Obj> results;
      for (size_t i = 0; i < kResults; ++i) results.push_back(maker(at::ArrayRef<at::IValue>{}));
      if (left(maker) != static_cast<int64_t>(kResults))
        throw std::runtime_error("results are lost");
      const uint64_t before = numbers.last(), calls = numbers.calls();
      each.push_back(bench::microsecondsOf([&] { results.clear(); }) / kResults);
      callsMade.push_back(static_cast<double>(numbers.calls() - calls));
      const int64_t kept = left(maker);
      if (kept != 0) throw std::runtime_error(std::to_string(kept) + " results were not let go");
      // The messages between the two steps that ask how many results are left.
      messages.push_back(static_cast<double>(numbers.last() - before - 2));
    }
    report("time_per_release", "us", each);
    report("round_trips", "", callsMade);
    report("notifications", "", messages);
  }

  static int64_t left(const isopool::Obj& maker) { return maker.attr("living").toIValue().toInt(); }

  static void report(const char* metric, const char* unit, const std::vector<double>& values) {
    const bench::Summary summary = bench::summarize(values);
    bench::print({"session",
                  "isopool",
                  "1000 releases",
                  metric,
                  unit,
                  summary.median,
                  summary.spread,
                  "",
                  {}});
  }

  static void check(const at::Tensor& result) {
    if (result.numel() != 16 || result.data_ptr<float>()[0] != 1.5f) {
      throw std::runtime_error("a step gave a wrong result");
    }
  }

  const Options options_;
  const at::Tensor input_ = isopool::empty({16}).fill_(1.5f);
  isopool::InterpreterManager manager_;
  isopool::Package package_;
  isopool::ReplicatedObj model_;
  bench::InProcessModel inProcess_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What the steps of a session cost, beside the same steps in-process.");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt")->required();
  app.add_flag("--quick", options.quick, "fewer repetitions");
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    Bench(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "session: %s\n", error.what());
    return 1;
  }
}
