// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/named_objects.h"

namespace isopool::ipc {

std::string namedObjectsOf(const std::string& folders, base::Epoch worker) {
  return namedObjectsOf(folders) + std::to_string(worker.value) + "-";
}

std::string namedObjectsOf(const std::string& folders) {
  return folders.substr(folders.rfind('/') + 1) + "-";
}

}  // namespace isopool::ipc
