// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace bench {

/// The yardstick: the same packaged object, called in this very process through CPython's C API.
/// Starts the interpreter on first use. One thread only, which holds the GIL from then on.
class InProcessModel {
 public:
  /// Throws std::runtime_error with Python's own words.
  InProcessModel(const std::string& package, const std::string& module, const std::string& file);
  ~InProcessModel();

  at::Tensor operator()(const at::Tensor& argument) const;

 private:
  struct Object;
  std::unique_ptr<Object> object_;
};

}  // namespace bench
