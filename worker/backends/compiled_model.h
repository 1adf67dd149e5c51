// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ipc/memory/memory_object.h"

namespace isopool::worker {

/// A model compiled by AOTInductor, its library loaded from a memory object, so that all workers
/// have its pages in common and the library is not unpacked to a folder. For one thread at a time.
/// The library's code is native code of the user: it may crash this process.
class CompiledModel : public torch::inductor::AOTIModelContainerRunner {
 public:
  /// `library` is the private mapping of the same file as `path`; the model's weights lie in it
  /// afterwards, where that is possible, and keep it. `operators` describes those that the library
  /// calls through torch's dispatcher, empty if there are none; AOTInductor's runtime reads them
  /// from a folder (anonymous_folder.h), which is needed until the constructor returns. Throws
  /// std::runtime_error with the remedy if there is no such folder, base::SystemCallError, and what
  /// torch's runtime throws.
  CompiledModel(const std::string& path, std::shared_ptr<const ipc::Mapping> library,
                const std::string& operators);

  /// Without gradients. The number of inputs is checked by the library. Throws what the library
  /// and torch's runtime throw.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  class Place;
  CompiledModel(const Place& place, const std::shared_ptr<const ipc::Mapping>& library);
  void shareWeights(const std::shared_ptr<const ipc::Mapping>& library);

  std::unordered_map<std::string, at::Tensor> weights_;  ///< the library refers to them
};

}  // namespace isopool::worker
