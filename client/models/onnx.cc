// SPDX-License-Identifier: BSD-3-Clause
// The numbers of fields: onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "base/json.h"
#include "client/models/model_formats.h"
#include "client/models/protobuf_fields.h"

namespace isopool::client {

namespace {

using Bytes = std::span<const std::byte>;

namespace model_proto {
constexpr uint64_t kIrVersion = 1;
constexpr uint64_t kGraph = 7;
constexpr uint64_t kOpsetImport = 8;
}  // namespace model_proto
namespace graph_proto {
constexpr uint64_t kInitializer = 5;
}
namespace tensor_proto {
constexpr uint64_t kName = 8;
constexpr uint64_t kExternalData = 13;
constexpr uint64_t kDataLocation = 14;
constexpr uint64_t kExternal = 1;  // a value of data_location
}  // namespace tensor_proto
namespace entry_proto {
constexpr uint64_t kKey = 1;
constexpr uint64_t kValue = 2;
}  // namespace entry_proto

// A model has ten kinds of fields, and some thousands of them if it has many functions.
constexpr size_t kMostFieldsLookedAt = size_t{1} << 20;
// Versions have gone up by one a year.
constexpr uint64_t kLargestIrVersion = 1000;

// A protobuf message has no mark of what it is. This one has a version, and a graph or operators.
bool matches(ModelFile& file) {
  if (file.beginsAsArchive()) return false;
  bool hasVersion = false;
  bool hasContent = false;
  ProtobufFields fields(file.bytes());
  for (size_t i = 0; i < kMostFieldsLookedAt && !(hasVersion && hasContent); ++i) {
    const auto field = fields.next();
    if (!field) return false;
    if (field->isNumber(model_proto::kIrVersion)) {
      if (field->number == 0 || field->number > kLargestIrVersion) return false;
      hasVersion = true;
    }
    hasContent = hasContent || field->isBytes(model_proto::kGraph) ||
                 field->isBytes(model_proto::kOpsetImport);
  }
  return hasVersion && hasContent;
}

void checkWhole(const ProtobufFields& fields) {
  TORCH_CHECK(!fields.damaged(), "it is ", kOnnx.description,
              ", and damaged or cut short. Export or copy it again");
}

std::string quoted(std::string_view text) {
  constexpr size_t kMostShown = 200;
  return base::jsonString(text, kMostShown);
}

// The value of "location" among a tensor's external data.
std::string_view locationIn(Bytes entry) {
  std::string_view key;
  std::string_view value;
  ProtobufFields fields(entry);
  while (const auto field = fields.next()) {
    if (field->isBytes(entry_proto::kKey)) key = field->text();
    if (field->isBytes(entry_proto::kValue)) value = field->text();
  }
  return key == "location" ? value : std::string_view();
}

void checkWeight(Bytes tensor) {
  std::string_view name;
  std::string_view location;
  bool isExternal = false;
  ProtobufFields fields(tensor);
  while (const auto field = fields.next()) {
    if (field->isBytes(tensor_proto::kName)) name = field->text();
    if (field->isNumber(tensor_proto::kDataLocation)) {
      isExternal = field->number == tensor_proto::kExternal;
    }
    if (field->isBytes(tensor_proto::kExternalData)) {
      const std::string_view found = locationIn(field->bytes);
      if (!found.empty()) location = found;
    }
  }
  checkWhole(fields);
  TORCH_CHECK(!isExternal, "its weight ", quoted(name), " lies in another file, ", quoted(location),
              ", and workers are given this one alone. Export the model into one file: "
              "torch.onnx.export(..., external_data=False), or onnx.save(onnx.load(path), path)");
}

PreparedModel prepare(ModelFile& file, const std::string& model) {
  checkOnlyModel(kOnnx, model);
  bool hasGraph = false;
  ProtobufFields fields(file.bytes());
  while (const auto field = fields.next()) {
    if (!field->isBytes(model_proto::kGraph)) continue;
    hasGraph = true;
    ProtobufFields graph(field->bytes);
    while (const auto part = graph.next()) {
      if (part->isBytes(graph_proto::kInitializer)) checkWeight(part->bytes);
    }
    checkWhole(graph);
  }
  checkWhole(fields);
  TORCH_CHECK(hasGraph, "it is ", kOnnx.description, " without a graph");
  return {};
}

}  // namespace

const ModelFormat kOnnx = {
    .name = "onnx",
    .description = "an ONNX model",
    .matches = &matches,
    .prepare = &prepare,
};

}  // namespace isopool::client
