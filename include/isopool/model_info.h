// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace isopool {

/// One argument or one result of a model.
struct ModelValue {
  std::string name;
  /// The dtype of a tensor as torch calls it ("float32"), or what the model's code or schema calls
  /// its type ("Tensor", "int"); empty if nothing states it.
  std::string type;
  /// -1 for a size that may vary. Nothing if nothing states the shape.
  std::optional<std::vector<int64_t>> shape;
};

/// What a model is and what it takes, as far as its file states it. A plain value.
///
/// A torch.package may state it in the text resource `model_info.json` beside the object's pickle
/// (PackageExporter.save_text(package, "model_info.json", ...)), a JSON object with any of the
/// fields "version" and "description" (texts), "inputs" and "outputs": lists of objects with
/// "name", "dtype" and "shape", a list of numbers, null for a size that may vary. What it states
/// has precedence over what the worker finds in the loaded object.
struct ModelInfo {
  std::string name;     ///< see ReplicatedObj::name()
  std::string format;   ///< "torch.package", "torchscript", "aot_inductor", "torch.export", "onnx"
  std::string file;     ///< the path as it was given; empty for a moved object
  uint64_t bytes = 0;   ///< of that file
  std::string version;  ///< from model_info.json
  std::string description;                 ///< from model_info.json
  std::string pythonVersion;               ///< that made the package: "3.11.2"
  std::vector<std::string> externModules;  ///< that the package expects in the workers' Python
  std::vector<ModelValue> inputs;          ///< in order; empty if nothing states them
  std::vector<ModelValue> outputs;
};

}  // namespace isopool
