// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isopool::cli {

/// Keys of a terminal, from the bytes that it sends. A key of several bytes may arrive in parts.
/// Not thread-safe.
class Keys {
 public:
  enum class Key { kCharacter, kUp, kDown, kPageUp, kPageDown, kHome, kEnd };
  struct Press {
    Key key;
    char character = 0;  ///< of Key::kCharacter; ASCII only
  };

  /// The keys that are complete with these bytes. Unknown sequences are ignored.
  std::vector<Press> read(std::string_view bytes);

 private:
  std::string incomplete_;
};

}  // namespace isopool::cli
