// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace isopool::worker {

/// Which files a worker may use, and how. Others it can't open, make, change or remove; what it has
/// open it keeps, and memory objects are no files.
class FileAccess {
 public:
  /// What a program that runs Python needs of every Linux system.
  static FileAccess ofTheSystem(bool network);

  /// A path that is not there is left out. Folders include what is in them.
  void allowPrograms(const std::string& path) { add(path, Use::kPrograms); }
  void allowReading(const std::string& path) { add(path, Use::kReading); }
  void allowWriting(const std::string& path) { add(path, Use::kWriting); }

  /// From here on the calling thread and what it starts is bound by these rules and, if not
  /// `network`, can't use TCP; it can't signal other processes or reach their abstract sockets. As
  /// far as `version` of Landlock goes (0: not at all). `folder`: a descriptor of one more folder
  /// to write in, or -1. The process must have no_new_privs. Throws SystemCallError.
  void restrictSelf(int version, bool network, int folder) const;

  /// True if a use of this path was refused by these rules, or would be: it lies outside of all
  /// folders, or where one may only read and the file's own permissions would have let us write.
  bool forbids(const std::string& path) const;
  /// True if the rules let nobody read there.
  bool hides(const std::string& path) const;

 private:
  enum class Use { kPrograms, kReading, kWriting, kDevice };
  struct Rule {
    std::string path;  ///< as it was given, /proc/self for whoever is restricted
    std::string real;  ///< without links
    Use use;
  };

  static uint64_t rightsFor(Use use, uint64_t handled);
  void add(const std::string& path, Use use);
  const Rule* ruleFor(const std::string& path) const;

  std::vector<Rule> rules_;
};

}  // namespace isopool::worker
