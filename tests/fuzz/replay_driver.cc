// SPDX-License-Identifier: BSD-3-Clause
// The main of a fuzzer that is built without libFuzzer: runs the kept inputs, then mutations of
// them.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/mutation.h"

namespace isopool::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    " [--inputs N] [--seconds S] [--seed N] KEPT...\n"
    "Runs every kept input (files, and folders of them), then mutations of them: N, or as many as "
    "S\n"
    "seconds allow, none if neither is given. The same seed makes the same mutations; without\n"
    "--seed, ISOPOOL_TEST_SEED is taken, or a new one, which is printed. An input that crashes, "
    "or\n"
    "takes longer than 10 seconds, is left in the working folder as crash-NAME-SEED-NUMBER, to be\n"
    "given as KEPT.\n";
/// Longer than any input takes, even on a busy machine.
constexpr unsigned kSecondsPerInput = 10;

struct Options {
  uint64_t inputs = 0;
  double seconds = 0;
  uint64_t seed = 0;
  std::vector<std::filesystem::path> kept;
};

// What a signal handler needs to save the input that was running.
const uint8_t* runningData = nullptr;
size_t runningSize = 0;
char crashPath[256];
size_t crashPathLength = 0;

void write(int file, const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file, bytes, size);
    if (written <= 0) return;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void saveInputAndDie(int signal) {
  ::signal(signal, SIG_DFL);
  const int file = ::open(crashPath, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0) write(file, runningData, runningSize);
  constexpr char kText[] = "the input that caused this is in ";
  write(STDERR_FILENO, kText, sizeof kText - 1);
  write(STDERR_FILENO, crashPath, crashPathLength);
  write(STDERR_FILENO, "\n", 1);
  ::raise(signal);
}

// An exception is a finding: noexcept ends the process.
void run(GuardedMemory& memory, const Input& input, const std::string& name) noexcept {
  const std::string path = "crash-" + name;
  crashPathLength = std::min(path.size(), sizeof crashPath - 1);
  std::copy_n(path.data(), crashPathLength, crashPath);
  crashPath[crashPathLength] = '\0';
  runningData = memory.placeAtEnd(input.data(), input.size());
  runningSize = input.size();
  ::alarm(kSecondsPerInput);
  LLVMFuzzerTestOneInput(runningData, runningSize);
}

Options optionsOf(const std::vector<std::string>& words) {
  Options options;
  const char* seed = std::getenv("ISOPOOL_TEST_SEED");
  std::random_device device;
  options.seed = seed != nullptr ? std::stoull(seed) : uint64_t{device()};
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.rfind("--", 0) != 0) {
      options.kept.emplace_back(word);
      continue;
    }
    if (i + 1 == words.size()) throw std::invalid_argument(word + " needs a number");
    const std::string& value = words[++i];
    if (word == "--inputs") {
      options.inputs = std::stoull(value);
    } else if (word == "--seconds") {
      options.seconds = std::stod(value);
    } else if (word == "--seed") {
      options.seed = std::stoull(value);
    } else {
      throw std::invalid_argument("there is no option " + word);
    }
  }
  if (options.inputs == 0 && options.seconds > 0) {
    options.inputs = std::numeric_limits<uint64_t>::max();
  }
  return options;
}

Input contentOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument("can't read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<Input> keptInputs(const std::vector<std::filesystem::path>& places) {
  std::vector<std::filesystem::path> files;
  for (const auto& place : places) {
    if (!std::filesystem::is_directory(place)) {
      files.push_back(place);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(place)) files.push_back(entry);
  }
  // Folders list files in any order, and the mutations of a seed must not depend on it.
  std::sort(files.begin(), files.end());
  std::vector<Input> inputs;
  for (const auto& file : files) inputs.push_back(contentOf(file));
  if (inputs.empty()) throw std::invalid_argument("there is no kept input to begin with");
  return inputs;
}

int fuzz(const std::string& name, const Options& options) {
  const std::vector<Input> kept = keptInputs(options.kept);
  const size_t longest = std::max_element(kept.begin(), kept.end(), [](auto& a, auto& b) {
                           return a.size() < b.size();
                         })->size();
  GuardedMemory memory(std::max(longest, kLongestMutation));
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) {
    ::signal(signal, saveInputAndDie);
  }
  std::cout << name << ": seed " << options.seed << std::endl;  // flushed: the next may crash

  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  for (size_t i = 0; i < kept.size(); ++i)
    run(memory, kept[i], name + "-kept-" + std::to_string(i));
  const bool showsProgress = ::isatty(STDERR_FILENO) == 1;
  std::mt19937_64 random(options.seed);
  uint64_t done = 0;
  for (; done < options.inputs; ++done) {
    if (options.seconds > 0 && seconds() >= options.seconds) break;
    if (showsProgress && done % 4096 == 0) std::cerr << '\r' << name << ": " << done << " inputs";
    run(memory, mutated(kept, random),
        name + "-" + std::to_string(options.seed) + "-" + std::to_string(done));
  }
  ::alarm(0);
  if (showsProgress) std::cerr << '\r';
  const double took = seconds();
  std::cout << name << ": " << kept.size() << " kept inputs and " << done << " mutations in "
            << took << " s, "
            << static_cast<uint64_t>(static_cast<double>(kept.size() + done) / took) << " inputs/s"
            << std::endl;
  return 0;
}

}  // namespace
}  // namespace isopool::fuzz

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    std::cout << name << isopool::fuzz::kUsage;
    return words.empty() ? 2 : 0;
  }
  try {
    return isopool::fuzz::fuzz(name, isopool::fuzz::optionsOf(words));
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << " (" << name << " --help)\n";
    return 2;
  }
}
