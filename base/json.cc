// SPDX-License-Identifier: BSD-3-Clause
#include "base/json.h"

#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace isopool::base {

namespace {

// Escapes U+007F to U+009F, which nlohmann-json leaves as they are. They occur only in strings.
std::string withEscapedControls(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = static_cast<unsigned char>(at + 1 < text.size() ? text[at + 1] : '\0');
    const bool twoBytes = byte == 0xC2 && next >= 0x80 && next <= 0x9F;
    if (byte != 0x7F && !twoBytes) {
      out += text[at];
      continue;
    }
    // The second byte of U+0080 to U+009F is the code point.
    const unsigned code = twoBytes ? next : byte;
    out.append("\\u00").append({kDigits[code >> 4], kDigits[code & 15]});
    at += twoBytes ? 1 : 0;
  }
  return out;
}

}  // namespace

std::string jsonText(const Json& value) {
  return withEscapedControls(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string jsonString(std::string_view text, size_t most) {
  std::string whole = jsonText(Json(text));
  if (whole.size() <= most) return whole;
  constexpr std::string_view kEnd = "...\"";
  std::string out = "\"";
  while (!text.empty()) {
    const size_t bytes = firstCharacter(text).bytes;
    const std::string one = jsonText(Json(text.substr(0, bytes)));  // with its quotes
    if (out.size() + one.size() - 2 + kEnd.size() > most) break;
    out.append(one, 1, one.size() - 2);
    text.remove_prefix(bytes);
  }
  return out.append(kEnd);
}

}  // namespace isopool::base
