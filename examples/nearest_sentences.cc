// SPDX-License-Identifier: BSD-3-Clause

// Calls a language model, with its tokenizer in Python, with strings: every call has another
// length. Encodes sentences on several threads and finds, for each, the sentence with the
// nearest meaning.

#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "isopool/isopool.h"

namespace {

using std::chrono::steady_clock;

/// Pairs (0 and 1, 2 and 3, ...) have the same meaning and almost no words in common.
const std::vector<std::string> kSentences = {
    "The cat is sleeping on the sofa.",
    "A kitten naps on the couch.",
    "Interest rates were raised by the central bank.",
    "The central bank decided to make loans more expensive.",
    "How do I reset my password?",
    "I cannot log in because I forgot my login code.",
    "The train to Vienna leaves at nine.",
    "Our railway journey to Austria starts in the morning.",
    "Bake the bread until the crust is golden brown.",
    "Leave the loaf in the oven until it is crisp on the outside.",
    "The rocket reached orbit eight minutes after lift-off.",
    "A satellite was launched into space on Tuesday.",
};

size_t partnerOf(size_t sentence) { return sentence ^ 1; }

double secondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

/// One row per sentence.
at::Tensor encode(const isopool::ReplicatedObj& encoder,
                  const std::vector<std::string>& sentences) {
  return encoder({sentences}).toTensor();
}

/// Encodes each sentence with its own call, on its own thread.
at::Tensor encodeOneByOne(const isopool::ReplicatedObj& encoder) {
  std::vector<std::future<at::Tensor>> answers;
  for (const std::string& sentence : kSentences) {
    answers.push_back(std::async(std::launch::async,
                                 [&encoder, &sentence] { return encode(encoder, {sentence}); }));
  }
  std::vector<at::Tensor> rows;
  for (std::future<at::Tensor>& answer : answers) rows.push_back(answer.get());
  return at::cat(rows);
}

/// Prints every sentence with its nearest neighbour. Returns true if each neighbour is the partner.
bool printNeighbours(const at::Tensor& vectors) {
  at::Tensor similarity = vectors.matmul(vectors.t());
  similarity.fill_diagonal_(-1);
  const auto [nearest, index] = similarity.max(/*dim=*/1);
  bool allRight = true;
  for (size_t i = 0; i < kSentences.size(); ++i) {
    const size_t neighbour = index[i].item<int64_t>();
    const bool right = neighbour == partnerOf(i);
    allRight = allRight && right;
    std::printf("   %s\n   %.2f  %s%s\n\n", kSentences[i].c_str(), nearest[i].item<double>(),
                kSentences[neighbour].c_str(), right ? "" : "   <-- WRONG");
  }
  return allRight;
}

bool run(const std::string& folder, size_t workers) {
  const std::string file = folder + "/sentence_encoder.pt";
  std::printf("Opening %s on %zu worker processes ...\n", file.c_str(), workers);
  auto start = steady_clock::now();
  isopool::InterpreterManager manager(workers);
  isopool::Package package = manager.loadPackage(file);
  const isopool::ReplicatedObj encoder = package.loadPickle("model", "model.pkl");
  std::printf("   ready after %.1f s\n", secondsSince(start));

  std::printf("Encoding %zu sentences, each on its own thread ...\n", kSentences.size());
  start = steady_clock::now();
  const at::Tensor vectors = encodeOneByOne(encoder);
  std::printf("   done after %.2f s; this includes loading the model in the other workers\n\n",
              secondsSince(start));
  const bool allRight = printNeighbours(vectors);

  start = steady_clock::now();
  const at::Tensor batch = encode(encoder, kSentences);
  const double difference = (batch - vectors).abs().max().item<double>();
  std::printf("All of them in one call: %.0f ms, largest difference %.0e\n",
              1e3 * secondsSince(start), difference);
  return allRight && difference < 1e-4;
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder;
  size_t workers = std::max(1u, std::thread::hardware_concurrency());
  CLI::App app{
      "Finds, for each of some sentences, the one with the nearest meaning, with all-MiniLM-L6-v2 "
      "(Python) "
      "called from C++ threads.\nExit code: 0 if the pairs are right, 1 if not, 2 if the pool "
      "failed."};
  app.add_option("folder", folder, "The folder that package_sentence_encoder.py --out wrote")
      ->required();
  app.add_option("--workers", workers, "Worker processes")->capture_default_str();
  try {
    app.parse(argc, argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return run(folder, workers) ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const c10::Error& error) {  // the package can't be opened
    std::fprintf(stderr, "nearest_sentences: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nearest_sentences: %s\n", error.what());
  }
  return 2;
}
