// SPDX-License-Identifier: BSD-3-Clause
// isopool-describe-model FILE [--pickle MODULE/RESOURCE] [--sandbox LEVEL] [--json]: what
// `isopool models FILE` runs.
// A program of its own, because the command isopool needs no torch and this one does. It uses the
// public interface only: a worker of its own loads the model, so a file that crashes its loader
// ends this program with an error, and the file's code can do no more than the sandbox allows.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "cli/model_file/model_page.h"
#include "isopool/errors.h"
#include "isopool/interpreter_manager.h"
#include "isopool/package.h"
#include "isopool/replicated_obj.h"

namespace {

using isopool::InterpreterManager;
using isopool::ModelInfo;

struct Words {
  std::string file;
  std::string pickle;
  std::string sandbox = "strict";
  bool json = false;
};

// isopool has checked the usage.
Words wordsOf(int argc, char** argv) {
  Words words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      words.json = true;
    } else if (word == "--pickle" && i + 1 < argc) {
      words.pickle = argv[++i];
    } else if (word == "--sandbox" && i + 1 < argc) {
      words.sandbox = argv[++i];
    } else {
      words.file = word;
    }
  }
  return words;
}

// The variable overrides PoolOptions, and a settings file does not override it. With a shared
// supervisor the file's code would run in the workers of other programs.
void chooseSandbox(const std::string& level) {
  ::unsetenv("ISOPOOL_SOCKET");
  ::setenv("ISOPOOL_SANDBOX", level.c_str(), 1);
}

ModelInfo infoOf(const Words& words) {
  isopool::PoolOptions options;
  options.workers = 1;
  options.spares = 0;
  // What the model prints while it is loaded is no part of the answer, but what the sandbox lacks
  // on this system is.
  options.logger = [](isopool::LogLevel level, std::string_view text) {
    if (level < isopool::LogLevel::kWarning || !text.starts_with("the sandbox is weaker")) return;
    std::fprintf(stderr, "isopool: %.*s\n", static_cast<int>(text.size()), text.data());
  };
  InterpreterManager manager(options);
  if (words.pickle.empty()) return manager.loadModel(words.file).info();
  const size_t slash = words.pickle.rfind('/');
  return manager.loadPackage(words.file)
      .loadPickle(words.pickle.substr(0, slash), words.pickle.substr(slash + 1))
      .info();
}

// True if no code of the model has raised it: then its message is about the file, and the frames
// are those of isopool's own loader.
bool isOfLoader(const isopool::RemoteError& error) {
  constexpr std::string_view kFrame = "  File \"";
  constexpr std::string_view kOwn = "<isopool>/";
  const std::string_view text = error.traceback();
  bool any = false;
  for (size_t at = text.find(kFrame); at != text.npos; at = text.find(kFrame, at)) {
    at += kFrame.size();
    if (!text.substr(at).starts_with(kOwn)) return false;
    any = true;
  }
  return any;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("isopool-describe-model " ISOPOOL_VERSION);
    return 0;
  }
  const Words words = wordsOf(argc, argv);
  try {
    chooseSandbox(words.sandbox);
    const ModelInfo info = infoOf(words);
    const std::string text = words.json ? isopool::cli::modelJson(info, words.sandbox) + "\n"
                                        : isopool::cli::modelPage(info, words.sandbox);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "isopool: %s%s\n", error.what_without_backtrace(),
                 words.pickle.empty() ? " (a torch.package needs --pickle MODULE/RESOURCE)" : "");
  } catch (const isopool::RemoteError& error) {
    std::fprintf(stderr, "isopool: %s: %s\n", words.file.c_str(),
                 isOfLoader(error) ? error.message().c_str() : error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool: %s: %s\n", words.file.c_str(), error.what());
  }
  return 1;
}
