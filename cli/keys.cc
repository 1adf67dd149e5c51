// SPDX-License-Identifier: BSD-3-Clause
#include "cli/keys.h"

#include <map>
#include <utility>

namespace isopool::cli {

namespace {

constexpr char kEscape = '\x1b';
constexpr size_t kLongestSequence = 16;

// The length of the escape sequence at the front of the text; 0 if its end has not arrived.
size_t sequenceLength(std::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] != '[' && text[1] != 'O') return 1;  // the key Escape, and then another
  for (size_t at = 2; at < text.size(); ++at) {
    if (text[at] >= '@' && text[at] <= '~') return at + 1;
  }
  // A sequence without an end is not one.
  return text.size() < kLongestSequence ? 0 : text.size();
}

}  // namespace

std::vector<Keys::Press> Keys::read(std::string_view bytes) {
  static const std::map<std::string_view, Key> kSequences{
      {"\x1b[A", Key::kUp},   {"\x1bOA", Key::kUp},      {"\x1b[B", Key::kDown},
      {"\x1bOB", Key::kDown}, {"\x1b[5~", Key::kPageUp}, {"\x1b[6~", Key::kPageDown},
      {"\x1b[H", Key::kHome}, {"\x1bOH", Key::kHome},    {"\x1b[1~", Key::kHome},
      {"\x1b[F", Key::kEnd},  {"\x1bOF", Key::kEnd},     {"\x1b[4~", Key::kEnd}};
  const std::string text = std::exchange(incomplete_, {}) + std::string(bytes);
  std::vector<Press> presses;
  for (std::string_view rest = text; !rest.empty();) {
    size_t length = 1;
    if (rest.front() != kEscape) {
      presses.push_back({Key::kCharacter, rest.front()});
    } else {
      length = sequenceLength(rest);
      if (length == 0) {
        incomplete_ = rest;
        break;
      }
      const auto known = kSequences.find(rest.substr(0, length));
      if (known != kSequences.end()) presses.push_back({known->second});
    }
    rest.remove_prefix(length);
  }
  return presses;
}

}  // namespace isopool::cli
