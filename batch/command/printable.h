// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace isopool::batch {

/// A text of the model's or of an input for a terminal, which is not trusted with it: control
/// characters and invalid bytes become "?". Of a longer text than `most` bytes only the beginning,
/// followed by "...".
std::string printable(std::string_view text, size_t most);

}  // namespace isopool::batch
