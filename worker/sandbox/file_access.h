// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isopool::worker {

/// Which files a worker may use, and how (Landlock rules). The worker cannot open, create, change
/// or remove any other file. Descriptors that are already open stay usable; memory objects are not
/// restricted. One thread.
class FileAccess {
 public:
  /// The files and devices that a Python program needs on every Linux system; with `network` also
  /// those for name look-ups.
  static FileAccess ofTheSystem(bool network);

  /// Adds NVIDIA's devices, all of them: which one a worker uses is left to CUDA_VISIBLE_DEVICES.
  void allowGpus();
  /// Adds a rule. A path that does not exist is ignored. A rule for a folder includes what
  /// is in it.
  void allowPrograms(const std::string& path) { add(path, Use::kPrograms); }
  void allowReading(const std::string& path) { add(path, Use::kReading); }
  void allowWriting(const std::string& path) { add(path, Use::kWriting); }

  /// Restricts the calling thread and what it starts from then on, without a way back: to these
  /// rules for files; to no TCP unless `network`; to no signals to other processes and no
  /// abstract sockets of theirs. Applies what `version` of Landlock supports (0: nothing).
  /// `folder`: a descriptor of one more folder to write in, or -1. The process must have
  /// no_new_privs. Throws SystemCallError.
  void restrictSelf(int version, bool network, int folder) const;

  /// True if these rules, and not the file's own permissions, forbid some use of `path`: no rule
  /// covers it, or a rule allows only reading while the permissions allow writing.
  bool forbids(const std::string& path) const;
  /// True if no rule allows reading `path`.
  bool hides(const std::string& path) const;

 private:
  enum class Use { kPrograms, kReading, kWriting, kDevice };
  struct Rule {
    std::string path;  ///< as it was given; /proc/self is that of the restricted process
    std::string real;  ///< without symbolic links
    Use use;
  };

  static uint64_t rightsFor(Use use, uint64_t handled);
  void add(const std::string& path, Use use);
  const Rule* ruleFor(const std::string& path) const;

  std::vector<Rule> rules_;
};

}  // namespace isopool::worker
