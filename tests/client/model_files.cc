// SPDX-License-Identifier: BSD-3-Clause
#include "tests/client/model_files.h"

#include <filesystem>
#include <stdexcept>

#include "tests/client/harness.h"

namespace isopool::tests {

std::string modelPath(const std::string& name) {
  static const std::filesystem::path folder = [] {
    const std::filesystem::path path = testFolder() / "models";
    std::filesystem::create_directory(path);
    Program python({PYTHON, TEST_SOURCE_DIR "/make_models.py", path});
    if (python.waitForEnd(milliseconds(180'000)) != 0) {
      throw std::runtime_error("make_models.py failed");
    }
    return path;
  }();
  return folder / name;
}

}  // namespace isopool::tests
