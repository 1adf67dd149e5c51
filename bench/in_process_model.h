// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace bench {

/// The reference: the same packaged object, called in this process through CPython's C API. The
/// first object starts the interpreter. From then on its thread holds the GIL, except while a
/// GilReleased lives; other threads need a GilHeld around their calls.
class InProcessModel {
 public:
  /// Throws std::runtime_error with the text of Python's error.
  InProcessModel(const std::string& package, const std::string& module, const std::string& file);
  ~InProcessModel();

  at::Tensor operator()(const at::Tensor& argument) const;

  /// Gets an attribute and releases it.
  void touchAttribute(const char* name) const;
  /// Keeps `argument` as a Python object for callHeld() and unpackHeld().
  void hold(const at::Tensor& argument);
  /// Calls the object with the held argument and releases the result.
  void callHeld() const;
  at::Tensor unpackHeld() const;

 private:
  struct Object;
  std::unique_ptr<Object> object_;
};

/// Releases the calling thread's GIL for the lifetime of this object.
class GilReleased {
 public:
  GilReleased();
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  void* state_;
};

/// Holds the GIL in the calling thread for the lifetime of this object. Python and torch may
/// release it during calls.
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
