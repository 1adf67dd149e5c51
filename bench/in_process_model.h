// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace bench {

/// The yardstick: the same packaged object, called in this very process through CPython's C API.
/// Starts the interpreter on first use. The thread that made the first one holds the GIL from then
/// on, but while a GilReleased lives; other threads need a GilHeld around their calls.
class InProcessModel {
 public:
  /// Throws std::runtime_error with Python's own words.
  InProcessModel(const std::string& package, const std::string& module, const std::string& file);
  ~InProcessModel();

  at::Tensor operator()(const at::Tensor& argument) const;

  /// Gets an attribute and lets it go.
  void touchAttribute(const char* name) const;
  /// Keeps `argument` as a Python object for callHeld() and unpackHeld().
  void hold(const at::Tensor& argument);
  /// Calls the object with what it holds and lets the result go.
  void callHeld() const;
  at::Tensor unpackHeld() const;

 private:
  struct Object;
  std::unique_ptr<Object> object_;
};

/// The calling thread lets others have the GIL while it lives.
class GilReleased {
 public:
  GilReleased();
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  void* state_;
};

/// The calling thread holds the GIL while it lives, but for what Python and torch let go in calls.
class GilHeld {
 public:
  GilHeld();
  ~GilHeld();
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  int state_;
};

}  // namespace bench
