// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <clocale>

namespace isopool::tests {

/// While it exists, this process has a locale with UTF-8 (LC_CTYPE).
class Utf8Locale {
 public:
  Utf8Locale() { std::setlocale(LC_CTYPE, "C.UTF-8"); }
  ~Utf8Locale() { std::setlocale(LC_CTYPE, "C"); }
};

}  // namespace isopool::tests
