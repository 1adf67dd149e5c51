// SPDX-License-Identifier: BSD-3-Clause
// isopool-worker as a wheel has it: starts the user's own interpreter with the worker as an
// extension module (extension_module.cc). Many Pythons have no shared libpython that a program
// could link.
#include <errno.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/settings/environment.h"

namespace {

// Its arguments are the file of the extension module and those of this program.
constexpr const char* kStart = R"(
import sys
if sys.version_info[:2] != tuple(map(int, sys.argv[1].split("."))):
    sys.exit(f"isopool-worker: {sys.executable} is not Python {sys.argv[1]}, which this isopool was built for")
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
loader = ExtensionFileLoader("isopool_worker_program", sys.argv[2])
module = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(module)
module.run(sys.argv[3:])
)";

std::filesystem::path ownFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

// The interpreter in whose environment this program is installed: the first that a folder above
// this program has in its bin/. Empty if none has one.
std::string surroundingPython() {
  const std::string name = "bin/python" ISOPOOL_PYTHON_VERSION;
  std::error_code error;
  for (auto folder = ownFolder(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / name, error)) return folder / name;
  }
  return {};
}

// Without Python's packages below the user's home folder, which a worker may be allowed to write.
bool isStrict() { return isopool::base::settingInEnvironment("ISOPOOL_SANDBOX").text == "strict"; }

int start(int argc, char** argv) {
  std::string python = isopool::base::settingInEnvironment("ISOPOOL_PYTHON_EXECUTABLE").text;
  if (python.empty()) python = surroundingPython();
  if (python.empty()) {
    std::fprintf(stderr,
                 "isopool-worker: no bin/python" ISOPOOL_PYTHON_VERSION
                 " in a folder above %s: name the interpreter in ISOPOOL_PYTHON_EXECUTABLE\n",
                 ownFolder().c_str());
    return 1;
  }
  ::setenv("ISOPOOL_PYTHON_EXECUTABLE", python.c_str(), 1);
  const std::string module = ownFolder() / ISOPOOL_WORKER_MODULE;
  // -P: the current folder is no place for modules.
  std::vector<const char*> words{python.c_str(), "-P"};
  if (isStrict()) words.push_back("-s");
  words.insert(words.end(), {"-c", kStart, ISOPOOL_PYTHON_VERSION, module.c_str()});
  words.insert(words.end(), argv, argv + argc);
  words.push_back(nullptr);
  ::execv(python.c_str(), const_cast<char**>(words.data()));
  std::fprintf(stderr, "isopool-worker: %s can't be executed: %s\n", python.c_str(),
               std::strerror(errno));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return start(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool-worker: %s\n", error.what());
    return 1;
  }
}
