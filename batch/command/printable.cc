// SPDX-License-Identifier: BSD-3-Clause
#include "batch/command/printable.h"

#include "base/utf8.h"

namespace isopool::batch {

std::string printable(std::string_view text, size_t most) {
  std::string result;
  while (!text.empty()) {
    if (result.size() >= most) return result + "...";
    const base::Character character = base::firstCharacter(text);
    const bool shown = character.valid && !base::isControlCharacter(character.code);
    result += shown ? text.substr(0, character.bytes) : "?";
    text.remove_prefix(character.bytes);
  }
  return result;
}

}  // namespace isopool::batch
