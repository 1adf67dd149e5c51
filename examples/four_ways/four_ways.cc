// SPDX-License-Identifier: BSD-3-Clause
// Loads one model that is stored in four ways and calls each through the same type of handle.
// Prints whether the results agree and how long a call takes.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTolerance = 1e-4;
constexpr int kCalls = 200;

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

struct Way {
  std::string name;
  std::string file;
  /// True for a torch.package, which holds Python source and may hold several objects.
  bool isPackage = false;
};

isopool::ReplicatedObj load(isopool::InterpreterManager& pool, const std::string& folder,
                            const Way& way) {
  const std::string path = folder + "/" + way.file;
  return way.isPackage ? pool.loadPackage(path).loadPickle("model", "model.pkl")
                       : pool.loadModel(path);
}

double medianCall(const isopool::ReplicatedObj& model, const at::Tensor& pictures) {
  std::vector<double> times;
  for (int i = 0; i < kCalls; ++i) {
    const auto begin = Clock::now();
    model({pictures});
    times.push_back(milliseconds(Clock::now() - begin));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

bool compare(const std::string& folder) {
  const std::vector<Way> ways = {{"torch.package", "digits_package.pt", true},
                                 {"TorchScript, script", "digits_script.pt"},
                                 {"TorchScript, trace", "digits_trace.pt"},
                                 {"AOTInductor", "digits_compiled.pt2"}};
  isopool::InterpreterManager pool(2);
  const at::Tensor pictures = isopool::empty({8, 1, 28, 28});
  pictures.copy_(at::rand(pictures.sizes()));

  std::cout << std::left << std::setw(22) << "stored as" << std::right << std::setw(10) << "load ms"
            << std::setw(14) << "first call ms" << std::setw(10) << "call ms" << std::setw(14)
            << "difference"
            << "\n"
            << std::fixed;
  at::Tensor expected;
  bool agree = true;
  for (const Way& way : ways) {
    const auto begin = Clock::now();
    const isopool::ReplicatedObj model = load(pool, folder, way);
    const auto loaded = Clock::now();
    const at::Tensor result = model({pictures}).toTensor();
    const auto called = Clock::now();
    if (!expected.defined()) expected = result;
    const double difference = (result - expected).abs().max().item<double>();
    agree = agree && difference < kTolerance;
    std::cout << std::left << std::setw(22) << way.name << std::right << std::setprecision(1)
              << std::setw(10) << milliseconds(loaded - begin) << std::setw(14)
              << milliseconds(called - loaded) << std::setprecision(3) << std::setw(10)
              << medianCall(model, pictures) << std::setprecision(9) << std::setw(14) << difference
              << "\n";
  }
  std::cout << (agree ? "all four agree\n" : "they do NOT agree\n");
  return agree;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: four_ways FOLDER (made by four_ways/make_models.py)\n";
    return 2;
  }
  try {
    return compare(argv[1]) ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "four_ways: " << error.what() << "\n";
    return 2;
  }
}
