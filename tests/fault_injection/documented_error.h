// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <string>

#include "isopool/isopool.h"

namespace isopool::tests {

/// Runs `use`. Returns the text of the documented error (docs/errors.md) in which it ended, or an
/// empty text. Any other error fails the test.
template <typename Use>
std::string documentedErrorOf(Use&& use) {
  try {
    use();
    return {};
  } catch (const Error& error) {
    return error.what();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    return "bad_alloc";
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an error that is not in docs/errors.md: " << error.what();
    return error.what();
  }
}

}  // namespace isopool::tests
