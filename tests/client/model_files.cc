// SPDX-License-Identifier: BSD-3-Clause
#include "tests/client/model_files.h"

#include <filesystem>

#include "tests/client/made_files.h"

namespace isopool::tests {

std::string modelPath(const std::string& name) {
  static const std::filesystem::path folder = madeBy("make_models.py");
  return folder / name;
}

}  // namespace isopool::tests
