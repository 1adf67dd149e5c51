// SPDX-License-Identifier: BSD-3-Clause
#include "testing/freezer.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/control_groups.h"

namespace isopool::tests {

namespace {

// A process that the kernel is forking or that waits for a device stops a moment later.
constexpr int kLooks = 2000;

bool write(const std::string& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text;
  stream.flush();
  return stream.good();
}

std::string contentOf(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

std::optional<Freezer> Freezer::make(std::string& why) {
  static std::atomic<int> made{0};
  why = "no control group hierarchy that can freeze is mounted";
  for (const base::ControlGroup& group : base::controlGroupsFor("freezer")) {
    // Version 2 is mounted at one of these, beside version 1 or alone.
    for (const char* mount : {"", "/unified"}) {
      std::string parent = group.folders.front();
      if (group.version == 2 && *mount != 0) {
        const std::string root = "/sys/fs/cgroup";
        parent = root + mount + parent.substr(root.size());
      } else if (*mount != 0) {
        continue;
      }
      const std::string folder =
          parent + "/isopool-test-" + std::to_string(::getpid()) + "-" + std::to_string(++made);
      if (::mkdir(folder.c_str(), 0755) != 0) {
        why = folder + " can't be made: " + std::strerror(errno);
        continue;
      }
      Freezer freezer(folder, parent, group.version);
      if (::access(freezer.stateFile().c_str(), W_OK) == 0) return freezer;
      why = freezer.stateFile() + " can't be written: " + std::strerror(errno);
    }
  }
  return std::nullopt;
}

Freezer::Freezer(Freezer&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      parent_(std::move(other.parent_)),
      version_(other.version_) {}

Freezer::~Freezer() {
  if (folder_.empty()) return;
  thaw();
  for (int look = 0; look < kLooks && ::rmdir(folder_.c_str()) != 0 && errno == EBUSY; ++look) {
    std::ifstream processes(folder_ + "/cgroup.procs");
    for (std::string pid; std::getline(processes, pid);) write(parent_ + "/cgroup.procs", pid);
    ::poll(nullptr, 0, 1);
  }
}

std::string Freezer::stateFile() const {
  return folder_ + (version_ == 1 ? "/freezer.state" : "/cgroup.freeze");
}

bool Freezer::isFrozen() const {
  return version_ == 1
             ? contentOf(stateFile()) == "FROZEN\n"
             : contentOf(folder_ + "/cgroup.events").find("frozen 1") != std::string::npos;
}

void Freezer::add(const std::vector<pid_t>& processes) const {
  for (const pid_t pid : processes) write(folder_ + "/cgroup.procs", std::to_string(pid));
}

void Freezer::freeze() const {
  write(stateFile(), frozen());
  for (int look = 0; look < kLooks && !isFrozen(); ++look) ::poll(nullptr, 0, 1);
}

void Freezer::thaw() const { write(stateFile(), thawed()); }

std::string Freezer::freezingFor(int milliseconds) const {
  const auto write = [&](const char* word) {
    return "echo " + std::string(word) + " > " + stateFile();
  };
  return "echo $$ > " + parent_ + "/cgroup.procs && " + write(frozen()) + "; sleep " +
         std::to_string(milliseconds / 1000.0) + "; " + write(thawed());
}

}  // namespace isopool::tests
