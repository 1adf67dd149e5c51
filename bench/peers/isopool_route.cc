// SPDX-License-Identifier: BSD-3-Clause
// isopool's C++ API as one of the routes that bench/peers/run.py compares. The protocol is that of
// measuring.py: it reads "OPERATION FLOATS CALLS" and prints a JSON list of microseconds, or reads
// "copied" and prints the bytes copied so far.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Operation {
  const char* pickle;
  float added;
};
const std::map<std::string, Operation> kOperations = {{"identity", {"identity.pkl", 0}},
                                                      {"made", {"add_one.pkl", 1}}};

/// Sets the three elements that distinguish one call's input from another's.
void mark(const at::Tensor& input, size_t call) {
  auto* const data = input.data_ptr<float>();
  const auto last = input.numel() - 1;
  for (const int64_t i : {int64_t{0}, last / 2, last}) data[i] = static_cast<float>(call + 2);
}

struct WrongAnswer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(const at::Tensor& answer, const at::Tensor& input, float added, bool whole) {
  if (answer.sizes() != input.sizes() || answer.scalar_type() != input.scalar_type()) {
    throw WrongAnswer("shape or type of an answer");
  }
  const auto* const given = input.data_ptr<float>();
  const auto* const got = answer.data_ptr<float>();
  const auto last = input.numel() - 1;
  for (const int64_t i : {int64_t{0}, last / 2, last}) {
    if (got[i] != given[i] + added) throw WrongAnswer("content of an answer");
  }
  if (whole && !at::equal(answer, input + added)) throw WrongAnswer("content of an answer");
}

class Route {
 public:
  Route(const std::string& packages, bool shared)
      : shared_(shared), manager_(1), package_(manager_.loadPackage(packages + "/calls.pt")) {
    for (const auto& [name, operation] : kOperations) {
      models_.emplace(name, package_.loadPickle("model", operation.pickle));
    }
  }

  std::string measure(const std::string& operation, int64_t floats, size_t calls) const {
    const auto& model = models_.at(operation);
    const float added = kOperations.at(operation).added;
    const at::Tensor input =
        shared_ ? isopool::empty({floats}).fill_(1.5f) : at::full({floats}, 1.5f);
    std::vector<double> times;
    times.reserve(calls);
    for (size_t call = 0; call < calls; ++call) {
      mark(input, call);
      const auto begin = Clock::now();
      const at::Tensor answer = model({at::IValue(input)}).toTensor();
      const auto end = Clock::now();
      check(answer, input, added, call + 1 == calls);
      times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    }
    std::ostringstream list;
    for (size_t i = 0; i < times.size(); ++i) list << (i == 0 ? "[" : ",") << times[i];
    list << "]";
    return list.str();
  }

 private:
  const bool shared_;
  isopool::InterpreterManager manager_;
  isopool::Package package_;
  std::map<std::string, isopool::ReplicatedObj> models_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Answers \"OPERATION FLOATS CALLS\" on stdin with the times of these calls.");
  std::string packages;
  bool shared = false;
  app.add_option("--packages", packages, "folder with calls.pt")->required();
  app.add_flag("--shared", shared, "inputs lie in shared memory already");
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    const Route route(packages, shared);
    std::cout << "ready" << std::endl;
    std::string operation;
    int64_t floats = 0;
    size_t calls = 0;
    while (std::cin >> operation) {
      if (operation == "copied") {
        std::cout << isopool::copyCounters().total() << std::endl;
        continue;
      }
      std::cin >> floats >> calls;
      std::cout << route.measure(operation, floats, calls) << std::endl;
    }
  } catch (const WrongAnswer& error) {
    std::cout << "wrong " << error.what() << std::endl;
    return 1;
  } catch (const std::exception& error) {
    std::cout << "failed " << error.what() << std::endl;
    return 1;
  }
}
