// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace isopool::base {

/// A folder in place of "/", with the files of /proc and /sys that a test writes. The destructor
/// removes it.
class OwnRoot {
 public:
  OwnRoot() {
    std::string folder = std::filesystem::temp_directory_path() / "isopool-root-XXXXXX";
    path_ = ::mkdtemp(folder.data());
  }
  ~OwnRoot() { std::filesystem::remove_all(path_); }
  OwnRoot(const OwnRoot&) = delete;
  OwnRoot& operator=(const OwnRoot&) = delete;

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + path).parent_path());
    std::ofstream(path_ + path) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace isopool::base
