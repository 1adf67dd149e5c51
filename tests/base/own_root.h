// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "testing/temporary_folder.h"

namespace isopool::base {

/// A folder in place of "/", with the files of /proc and /sys that a test writes. The destructor
/// removes it.
class OwnRoot {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return folder_.path(); }

 private:
  const tests::TemporaryFolder folder_;
};

}  // namespace isopool::base
