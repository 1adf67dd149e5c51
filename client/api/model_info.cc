// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/model_info.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "client/models/package_contents.h"
#include "client/pool/pool_call.h"
#include "client/pool/replicated_object.h"
#include "isopool/obj.h"
#include "isopool/replicated_obj.h"

namespace isopool {

namespace {

constexpr const char* kModule = "isopool_worker.model_description";
constexpr const char* kResource = "model_info.json";

std::optional<std::vector<int64_t>> shapeIn(const base::Json& sizes) {
  if (sizes.is_null()) return std::nullopt;
  std::vector<int64_t> shape;
  for (const base::Json& size : sizes) shape.push_back(size.is_null() ? -1 : size.get<int64_t>());
  return shape;
}

// From the worker: lists of [name, type, shape].
std::vector<ModelValue> foundIn(const base::Json& values) {
  std::vector<ModelValue> found;
  if (values.is_null()) return found;
  for (const base::Json& each : values) {
    found.push_back({each.at(0), each.at(1), shapeIn(each.at(2))});
  }
  return found;
}

// From a package: lists of objects. Leaves `values` as they are if the package does not state them.
void replaceByStated(std::vector<ModelValue>& values, const base::Json& info, const char* field) {
  if (!info.contains(field)) return;
  values.clear();
  for (const base::Json& each : info.at(field)) {
    values.push_back({each.value("name", ""), each.value("dtype", ""),
                      shapeIn(each.contains("shape") ? each.at("shape") : base::Json())});
  }
}

void addStated(ModelInfo& model, const std::string& text) {
  try {
    const base::Json info = base::Json::parse(text);
    model.version = info.value("version", "");
    model.description = info.value("description", "");
    replaceByStated(model.inputs, info, "inputs");
    replaceByStated(model.outputs, info, "outputs");
  } catch (const base::Json::exception& error) {
    throw Error(model.file + ": its " + kResource +
                " is not what isopool/model_info.h describes: " + error.what());
  }
}

}  // namespace

ModelInfo ReplicatedObj::info(const CallOptions& options) const {
  const ReplicatedObjImpl& object = impl();
  const client::Deadline deadline = client::deadlineOf(*object.pool, options);
  const auto left = [&] { return client::optionsUntil(deadline); };
  ModelInfo model;
  model.name = object.definition.name;
  model.format = object.origin.format;
  model.file = object.origin.file;
  model.bytes = object.origin.bytes;
  InterpreterSession session = acquireSession(nullptr, left());
  const Obj describe = session.global(kModule, "describe", left());
  const std::string text =
      describe.call(at::ArrayRef<Obj>(session.self), left()).toIValue(left()).toStringRef();
  try {
    const base::Json found = base::Json::parse(text);
    model.inputs = foundIn(found.at("inputs"));
    model.outputs = foundIn(found.at("outputs"));
  } catch (const base::Json::exception& error) {
    throw Error("a worker's description of " + model.name + " is invalid: " + error.what());
  }
  if (!object.origin.package) return model;
  client::PackageContents contents = client::readPackage(*object.origin.package);
  model.pythonVersion = std::move(contents.pythonVersion);
  model.externModules = std::move(contents.externModules);
  const auto stated = client::readResource(*object.origin.package, object.origin.module, kResource);
  if (stated) addStated(model, *stated);
  return model;
}

}  // namespace isopool
