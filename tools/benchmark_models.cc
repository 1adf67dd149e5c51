// SPDX-License-Identifier: BSD-3-Clause
#include "tools/benchmark_models.h"

#include <torch/csrc/jit/serialization/import.h>

#include <memory>
#include <utility>

#include "device_model_source.h"
#include "tools/worker_module.h"

namespace tools {

std::vector<at::IValue> exampleInputs(isopool::Package& package) {
  auto session = package.acquireSession();
  const auto stored = session.self.attr("load_pickle")({"model", "example.pkl"});
  const at::IValue inputs = session.global("builtins", "tuple")({stored}).toIValue();
  return inputs.toTupleRef().elements().vec();
}

WorkItem pythonModel(isopool::Package& package) {
  return [model = package.loadPickle("model", "model.pkl")](
             size_t /*thread*/, const std::vector<at::IValue>& inputs) { model(inputs); };
}

WorkItem cudaModel(isopool::InterpreterManager& manager, isopool::Package& package,
                   size_t workers) {
  const auto model = package.loadPickle("model", "model.pkl");
  // A handle belongs to its session's worker, so both are kept until the last call.
  struct Copy {
    isopool::InterpreterSession session;
    isopool::Obj onDevice;
  };
  auto copies = std::make_shared<std::vector<Copy>>();
  for (const auto& interpreter : manager.allInstances().slice(0, workers)) {
    auto session = model.acquireSession(&interpreter);
    const WorkerModule module(session, "device_model", kDeviceModelSource);
    auto onDevice = module.get("DeviceModel")({session.self});
    copies->push_back({std::move(session), std::move(onDevice)});
  }
  return [copies](size_t thread, const std::vector<at::IValue>& inputs) {
    (*copies)[thread % copies->size()].onDevice(inputs).toIValue();
  };
}

size_t cudaDevices(isopool::InterpreterManager& manager) {
  auto session = manager.acquireOne();
  const WorkerModule module(session, "device_model", kDeviceModelSource);
  return static_cast<size_t>(
      module.get("device_count")(at::ArrayRef<isopool::Obj>()).toIValue().toInt());
}

WorkItem scriptModel(const std::string& file) {
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(file));
  module->eval();
  return [module](size_t /*thread*/, std::vector<at::IValue> inputs) {
    module->forward(std::move(inputs));
  };
}

}  // namespace tools
