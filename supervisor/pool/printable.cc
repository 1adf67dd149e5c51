// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/printable.h"

#include <algorithm>

namespace isopool::supervisor {

std::string printable(std::string text, size_t longest) {
  text.resize(std::min(text.size(), longest));
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return text;
}

}  // namespace isopool::supervisor
