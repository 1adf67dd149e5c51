// SPDX-License-Identifier: BSD-3-Clause
// Measures throughput and latency of packaged models by number of threads, and of TorchScript.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "isopool/isopool.h"
#include "tools/benchmark_case.h"
#include "tools/benchmark_models.h"

namespace {

constexpr size_t kThreadCounts[] = {1, 2, 4, 8, 16, 32, 40};
constexpr double kPercentiles[] = {25, 50, 95};

struct Options {
  size_t maxThreads = 1;
  std::string device;
  std::string jit;
  std::vector<std::string> packages;
  double seconds = 5;
  bool sharedMemory = false;

  bool cuda() const { return device == "cuda"; }
};

constexpr const char* kDescription =
    "Measures packaged models called by 1, 2, 4, 8, 16, 32 and 40 threads (up to max_threads), and "
    "prints one CSV row for each package, number of threads n and strategy:\n"
    "  one_python    n threads call one worker\n"
    "  multi_python  n threads call n workers\n"
    "  jit           n threads call one TorchScript module in this process\n\n"
    "Every process computes with one thread. Gradients are off. Each call gets its own copies of "
    "the inputs, made outside the measured time. Latencies are in seconds.";

constexpr const char* kFooter =
    "A package PKG has the pickles model.pkl (the model) and example.pkl (a tuple with the "
    "arguments of one call) in its resource `model`:\n"
    "  with torch.package.PackageExporter(PKG) as e:\n"
    "      e.intern('my_models.**')\n"
    "      e.save_pickle('model', 'model.pkl', model)\n"
    "      e.save_pickle('model', 'example.pkl', (torch.rand(1, 3, 224, 224),))\n"
    "  torch.jit.script(model).save(PKG + '_jit')   # for jit\n\n"
    "Example: deploy_benchmark 4 none jit resnet18 > resnet18.csv";

void printHeader() {
  std::cout << "benchmark, strategy, n_threads, work_items_completed, work_items_per_second";
  for (const double percent : kPercentiles) std::cout << ", p" << percent << "_latency";
  std::cout << ", device" << std::endl;
}

void printRow(const Options& options, const std::string& package, const std::string& strategy,
              size_t threads, const tools::CaseResult& result) {
  std::cout << package << ", " << strategy << ", " << threads << ", " << result.calls << ", "
            << result.callsPerSecond;
  for (const double percent : kPercentiles) std::cout << ", " << result.latency(percent);
  std::cout << ", " << (options.cuda() ? "cuda" : "cpu") << std::endl;
}

class Benchmark {
 public:
  explicit Benchmark(const Options& options) : options_(options), manager_(options.maxThreads) {
    at::set_num_threads(1);
    for (const auto& interpreter : manager_.allInstances()) {
      interpreter.acquireSession().global("torch", "set_num_threads")({1});
    }
    if (options.cuda() && tools::cudaDevices(manager_) == 0) {
      throw isopool::Error(
          "device cuda: the workers' torch finds no CUDA device: pass none instead, or install a "
          "torch with CUDA on a machine with a CUDA device");
    }
  }

  void run() {
    printHeader();
    for (const std::string& package : options_.packages) {
      if (jitWanted(package)) script_ = tools::scriptModel(jitFile(package));
      for (const size_t threads : kThreadCounts) {
        if (threads > options_.maxThreads) break;
        measure(package, "one_python", threads);
        measure(package, "multi_python", threads);
        if (script_) measure(package, "jit", threads);
      }
      script_ = nullptr;
    }
  }

 private:
  static std::string jitFile(const std::string& package) { return package + "_jit"; }

  bool jitWanted(const std::string& package) const {
    if (options_.jit != "jit") return false;
    if (std::filesystem::exists(jitFile(package))) return true;
    std::cerr << "deploy_benchmark: no jit rows for " << package << ": missing file "
              << jitFile(package) << std::endl;
    return false;
  }

  void measure(const std::string& file, const std::string& strategy, size_t threads) {
    const size_t workers = strategy == "one_python" ? 1 : threads;
    manager_.debugLimitInterpreters(workers);
    auto package = manager_.loadPackage(file);
    const std::vector<at::IValue> inputs = tools::exampleInputs(package);
    tools::CaseSetting setting;
    setting.threads = threads;
    setting.least = std::chrono::duration<double>(options_.seconds);
    setting.sharedInputs = options_.sharedMemory;
    const tools::WorkItem item = strategy == "jit" ? script_
                                 : options_.cuda() ? tools::cudaModel(manager_, package, workers)
                                                   : tools::pythonModel(package);
    printRow(options_, file, strategy, threads, tools::runCase(item, inputs, setting));
  }

  const Options& options_;
  isopool::InterpreterManager manager_;
  tools::WorkItem script_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kDescription, "deploy_benchmark");
  app.footer(kFooter);
  app.set_version_flag("--version", "deploy_benchmark of isopool " ISOPOOL_VERSION);
  Options options;
  app.add_option("max_threads", options.maxThreads, "Number of workers, and the most threads")
      ->required()
      ->check(CLI::Range(1, 1024));
  app.add_option("device", options.device, "cuda or none: where the workers compute")
      ->required()
      ->check(CLI::IsMember({"cuda", "none"}));
  app.add_option("jit", options.jit, "jit or none: also measure TorchScript, from the file PKG_jit")
      ->required()
      ->check(CLI::IsMember({"jit", "none"}));
  app.add_option("packages", options.packages, "Files made by torch.package")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--seconds", options.seconds, "How long each row is measured")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--shared-memory", options.sharedMemory,
               "Copy the inputs into memory that the workers share, so that calls copy nothing");
  try {
    app.parse(argc, argv);
    if (options.cuda() && options.jit == "jit") {
      throw CLI::ValidationError("jit",
                                 "TorchScript is measured on the CPU only: pass none with cuda");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    Benchmark(options).run();
  } catch (const std::exception& error) {
    std::cerr << "deploy_benchmark: " << error.what() << std::endl;
    return 1;
  }
}
