// SPDX-License-Identifier: BSD-3-Clause
#include "base/control_groups.h"

#include <fstream>
#include <sstream>
#include <utility>

namespace isopool::base {

namespace {

bool lists(const std::string& controllers, std::string_view name) {
  return ("," + controllers + ",").find("," + std::string(name) + ",") != std::string::npos;
}

std::vector<std::string> upwards(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  for (;;) {
    folders.push_back(mount + path);
    if (path.empty()) return folders;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

}  // namespace

std::vector<ControlGroup> controlGroupsFor(std::string_view controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  const std::string mounts = root + "/sys/fs/cgroup";
  std::ifstream list(root + "/proc/self/cgroup");
  // HIERARCHY:CONTROLLERS:PATH; version 2 has no controllers.
  for (std::string line; std::getline(list, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      groups.push_back({2, upwards(mounts, std::move(path))});
    } else if (lists(controllers, controller)) {
      const std::string mount = mounts + "/" + std::string(controller);
      groups.push_back({1, upwards(mount, std::move(path))});
    }
  }
  return groups;
}

std::optional<UnifiedGroup> unifiedGroup(const std::string& root) {
  std::string path;
  std::ifstream own(root + "/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (line.starts_with("0::/")) path = line.substr(3);
  }
  // ID PARENT MAJOR:MINOR ROOT MOUNT OPTIONS [TAGS...] - TYPE SOURCE OPTIONS
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; !path.empty() && std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string ignored;
    std::string top;
    std::string mount;
    words >> ignored >> ignored >> ignored >> top >> mount;
    while (words >> ignored && ignored != "-") {
    }
    std::string type;
    if (!(words >> type) || type != "cgroup2") continue;
    // The mount may show a part of the hierarchy only.
    if (top == "/") top.clear();
    if (path.compare(0, top.size(), top) != 0) continue;
    std::string below = path.substr(top.size());
    if (below == "/") below.clear();
    if (!below.empty() && below.front() != '/') continue;
    return UnifiedGroup{root + mount + below, path == "/"};
  }
  return std::nullopt;
}

}  // namespace isopool::base
