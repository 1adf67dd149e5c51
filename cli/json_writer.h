// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace isopool::cli {

/// Writes one JSON value, on one line. The caller opens and closes in order. Whatever the texts hold,
/// the result is valid JSON in UTF-8: a byte that is no UTF-8 becomes U+FFFD.
class JsonWriter {
 public:
  JsonWriter& beginObject() { return open('{'); }
  JsonWriter& endObject() { return close('}'); }
  JsonWriter& beginArray() { return open('['); }
  JsonWriter& endArray() { return close(']'); }
  JsonWriter& name(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  /// Finite.
  JsonWriter& value(double number);
  JsonWriter& null() { return plain("null"); }
  template <std::integral Number>
  JsonWriter& value(Number number) {
    if constexpr (std::same_as<Number, bool>) return plain(number ? "true" : "false");
    return plain(std::to_string(number));
  }

  template <typename Value>
  JsonWriter& field(std::string_view key, const Value& its) {
    return name(key).value(its);
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& plain(std::string_view text);
  void separate();
  void appendText(std::string_view text);

  std::string text_;
  bool needsComma_ = false;
};

}  // namespace isopool::cli
