// SPDX-License-Identifier: BSD-3-Clause
#include "tests/client/made_files.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/fd.h"
#include "base/system_call.h"
#include "tests/client/harness.h"

namespace isopool::tests {

namespace fs = std::filesystem;

namespace {

constexpr milliseconds kLongest(180'000);

std::string contentsOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// All on which the files depend: the scripts import modules of both folders.
std::string sources(const std::string& script, const std::vector<std::string>& arguments) {
  std::vector<fs::path> modules;
  for (const char* folder : {TEST_SOURCE_DIR, TEST_SOURCE_DIR "/../worker"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".py") modules.push_back(entry.path());
    }
  }
  std::sort(modules.begin(), modules.end());
  std::string all = script + "\n" + PYTHON + "\n" + TORCH_VERSION + "\n";
  for (const std::string& argument : arguments) all += argument + "\n";
  for (const fs::path& module : modules) all += module.filename().string() + contentsOf(module);
  return all;
}

base::Fd locked(const fs::path& path) {
  base::Fd file(base::checkSystemCall(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600),
                                      "open", path.native()));
  base::checkSystemCall(::flock(file.get(), LOCK_EX), "flock", path.native());
  return file;
}

}  // namespace

fs::path madeBy(const std::string& script, const std::vector<std::string>& arguments) {
  const fs::path all = MADE_FILES_FOLDER;
  const fs::path folder = all / fs::path(script).stem();
  const fs::path stamp = folder.string() + ".sources";
  const std::string wanted = sources(script, arguments);
  fs::create_directories(all);
  // The kernel releases the lock of a process that dies, and the next one begins again.
  const base::Fd lock = locked(folder.string() + ".lock");
  if (contentsOf(stamp) == wanted) return folder;
  fs::remove(stamp);
  fs::remove_all(folder);
  fs::create_directory(folder);
  std::vector<std::string> words{PYTHON, TEST_SOURCE_DIR "/" + script, folder};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Program python(words);
  if (python.waitForEnd(kLongest) != 0) throw std::runtime_error(script + " failed");
  std::ofstream(stamp, std::ios::binary) << wanted;
  return folder;
}

}  // namespace isopool::tests
