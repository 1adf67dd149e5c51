// SPDX-License-Identifier: BSD-3-Clause
// How many calls of a Python-bound model several workers answer, compared with threads in one
// interpreter and with threads that run the same model as TorchScript. All take turns, round by
// round.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/script.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/in_process_model.h"
#include "bench/latency.h"
#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using Model = std::function<at::Tensor(const at::Tensor&)>;

struct Options {
  std::string packages;
  bool quick = false;
};

/// A number of threads that call one model without a pause.
struct Contender {
  std::string route;
  std::string name;
  size_t callers;
  Model model;
  std::string
      yardstick;  ///< the name of the contender of the same route with which its rate is compared
  bench::Latency latency{};
  std::vector<double> rates{};
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        inProcess_(file("transformer.pt"), "model", "transformer.pkl"),
        script_(torch::jit::load(file("transformer.ts"))) {
    const Model threads = [this](const at::Tensor& input) {
      const bench::GilHeld held;
      return inProcess_(input);
    };
    // Each call uses a copy of the handle: forward() is not const.
    const Model script = [this](const at::Tensor& input) {
      torch::jit::Module module = script_;
      return module.forward({input}).toTensor();
    };
    contenders_ = {{"isopool", "1 worker", 1, pool(1), ""},
                   {"isopool", "2 workers", 2, pool(2), "1 worker"},
                   {"isopool", "4 workers", 4, pool(4), "2 workers"},
                   {"isopool", "8 workers, 8 callers", 8, pool(8), "2 workers"},
                   {"isopool", "2 workers, 16 callers", 16, pool(2), "2 workers"},
                   {"in-process threads", "1 thread", 1, threads, ""},
                   {"in-process threads", "2 threads", 2, threads, "1 thread"},
                   {"TorchScript threads", "1 thread", 1, script, ""},
                   {"TorchScript threads", "2 threads", 2, script, "1 thread"}};
  }

  void run() {
    const bench::GilReleased released;
    checkAnswers();
    const int rounds = options_.quick ? 3 : 11;
    for (int round = 0; round < rounds; ++round) {
      for (Contender& contender : contenders_) {
        bench::announce(contender.route + ", " + contender.name + ", round " +
                        std::to_string(round + 1) + " of " + std::to_string(rounds));
        measure(contender);
      }
    }
    for (const Contender& contender : contenders_) report(contender);
  }

 private:
  std::string file(const char* name) const { return options_.packages + "/" + name; }

  Model pool(size_t workers) {
    bench::announce("pool of " + std::to_string(workers));
    managers_.push_back(std::make_unique<isopool::InterpreterManager>(workers));
    isopool::ReplicatedObj model = managers_.back()
                                       ->loadPackage(file("transformer.pt"))
                                       .loadPickle("model", "transformer.pkl");
    // Every worker unpickles the model and makes its first calls before the measurement.
    for (int i = 0; i < 3; ++i) model.callOnAll({input_});
    return [model](const at::Tensor& input) { return model({at::IValue(input)}).toTensor(); };
  }

  void checkAnswers() const {
    const c10::InferenceMode inference;
    const at::Tensor expected = contenders_.front().model(input_).clone();
    for (const Contender& contender : contenders_) {
      // TorchScript's first calls compile.
      for (int i = 0; i < 5; ++i) {
        if (!at::allclose(contender.model(input_), expected, 1e-3, 1e-4)) {
          throw std::runtime_error(contender.route + " gives another answer");
        }
      }
    }
  }

  void measure(Contender& contender) const {
    const auto duration = std::chrono::milliseconds(options_.quick ? 200 : 800);
    std::vector<std::vector<double>> times(contender.callers);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    const auto begin = std::chrono::steady_clock::now();
    for (auto& own : times) {
      threads.emplace_back([&] {
        const c10::InferenceMode inference;
        const at::Tensor input = isopool::empty(input_.sizes()).copy_(input_);
        while (!over.load(std::memory_order_relaxed)) {
          own.push_back(bench::microsecondsOf([&] { contender.model(input); }));
        }
      });
    }
    std::this_thread::sleep_for(duration);
    over = true;
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::vector<double> all;
    for (const auto& own : times) all.insert(all.end(), own.begin(), own.end());
    contender.latency.add(all);
    contender.rates.push_back(static_cast<double>(all.size()) / took.count());
  }

  void report(const Contender& contender) const {
    bench::report({"scaling", contender.name}, contender.route, contender.latency);
    const bench::Summary rate = bench::summarize(contender.rates);
    bench::Row row{"scaling", contender.route, contender.name, "rate",
                   "calls/s", rate.median,     rate.spread,    "",
                   {}};
    for (const Contender& other : contenders_) {
      if (other.route != contender.route || other.name != contender.yardstick) continue;
      std::vector<double> ratios;
      for (size_t i = 0; i < other.rates.size(); ++i) {
        ratios.push_back(contender.rates[i] / other.rates[i]);
      }
      row.ratioTo = other.name;
      row.ratio = bench::summarize(ratios).median;
    }
    bench::print(row);
  }

  const Options options_;
  const at::Tensor input_ = at::linspace(-1, 1, 16 * 64).reshape({16, 64});
  std::vector<std::unique_ptr<isopool::InterpreterManager>> managers_;
  bench::InProcessModel inProcess_;
  torch::jit::Module script_;
  std::vector<Contender> contenders_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Calls a second of a Python-bound model: workers, threads, and TorchScript.");
  Options options;
  app.add_option("--packages", options.packages, "folder with transformer.pt and transformer.ts")
      ->required();
  app.add_flag("--quick", options.quick, "fewer and shorter rounds");
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    Bench(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scaling: %s\n", error.what());
    return 1;
  }
}
