// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace isopool::base {

/// A JSON value whose objects keep the order in which their fields were added.
using Json = nlohmann::ordered_json;

/// The value as JSON on one line, always valid UTF-8: invalid bytes in its texts become U+FFFD. All
/// control characters are escaped, also U+007F to U+009F, because the text may reach a terminal.
std::string jsonText(const Json& value);

/// The text as a JSON string, quotes included. If that would be longer than `most` bytes, only the
/// text's beginning, followed by "...". `most` is at least 5.
std::string jsonString(std::string_view text, size_t most = SIZE_MAX);

}  // namespace isopool::base
