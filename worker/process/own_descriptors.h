// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace isopool::worker {

/// Descriptors that the worker needs, and that any code can close or replace by others.
class OwnDescriptors {
 public:
  explicit OwnDescriptors(std::initializer_list<int> descriptors) {
    for (const int fd : descriptors) {
      struct stat status {};
      if (::fstat(fd, &status) == 0) known_.push_back({fd, status.st_dev, status.st_ino});
    }
  }

  bool areThere() const noexcept {
    return std::all_of(known_.begin(), known_.end(), [](const Known& each) {
      struct stat status {};
      return ::fstat(each.fd, &status) == 0 && status.st_dev == each.device &&
             status.st_ino == each.node;
    });
  }

 private:
  struct Known {
    int fd;
    dev_t device;
    ino_t node;
  };
  std::vector<Known> known_;
};

}  // namespace isopool::worker
