// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <vector>

namespace isopool::worker {

/// What the kernel judges the acts of a thread by: its users and groups, also those for files, and
/// its capabilities. Without the sets that only concern programs which it starts (bounding,
/// ambient).
class Credentials {
 public:
  /// Records those of the calling thread.
  Credentials();
  /// True if the calling thread has the same now. Makes six system calls.
  bool areTheSame() const;

 private:
  struct Numbers {
    std::array<uid_t, 4> users{};  ///< real, effective, saved, for files
    std::array<gid_t, 4> groups{};
    std::array<uint32_t, 6> capabilities{};

    bool operator==(const Numbers&) const = default;
  };
  static Numbers numbers() noexcept;

  const Numbers numbers_;
  std::vector<gid_t> supplementary_;
};

}  // namespace isopool::worker
