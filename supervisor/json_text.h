// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isopool::supervisor {

/// Appends the text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD each,
/// so the result is always valid. Of a text that would take more than `most` bytes only the
/// beginning is taken, with "..." behind it.
void appendJsonString(std::string& out, std::string_view text, size_t most = SIZE_MAX);

}  // namespace isopool::supervisor
