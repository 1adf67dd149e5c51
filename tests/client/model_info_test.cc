// SPDX-License-Identifier: BSD-3-Clause
// What a program can learn of a model: ReplicatedObj::info().
#include <filesystem>
#include <string>
#include <vector>

#include "isopool/model_info.h"
#include "tests/client/harness.h"
#include "tests/client/model_files.h"

namespace isopool::tests {
namespace {

using Shape = std::vector<int64_t>;

std::vector<std::string> namesOf(const std::vector<ModelValue>& values) {
  std::vector<std::string> names;
  for (const ModelValue& each : values) names.push_back(each.name);
  return names;
}

TEST(ModelInformation, OfAPackageIsItsFileAndWhatItsResourceStates) {
  Package package = sharedManager().loadPackage(packagePath("described.pt"));
  const ModelInfo model = package.loadPickle("good.part", "model.pkl").info();
  EXPECT_EQ(model.name, "described.pt:good.part/model.pkl");
  EXPECT_EQ(model.format, "torch.package");
  EXPECT_EQ(model.file, packagePath("described.pt"));
  EXPECT_EQ(model.bytes, std::filesystem::file_size(packagePath("described.pt")));
  EXPECT_EQ(model.version, "7");
  EXPECT_EQ(model.description, "a layer");
  EXPECT_EQ(model.pythonVersion.rfind("3.", 0), 0u) << model.pythonVersion;
  ASSERT_EQ(namesOf(model.inputs), std::vector<std::string>{"rows"});
  EXPECT_EQ(model.inputs[0].type, "float32");
  EXPECT_EQ(model.inputs[0].shape, (Shape{-1, 2}));
  EXPECT_TRUE(model.outputs.empty());
}

TEST(ModelInformation, OfAPackageThatStatesNothingIsTheSignature) {
  const ModelInfo model =
      sharedManager().loadPackage(packagePath("one.pt")).loadPickle("model", "model.pkl").info();
  ASSERT_EQ(namesOf(model.inputs), std::vector<std::string>{"input"});
  EXPECT_EQ(model.inputs[0].type, "Tensor");
  EXPECT_FALSE(model.inputs[0].shape);
  EXPECT_EQ(model.version, "");
}

TEST(ModelInformation, ThatIsNotInTheDocumentedFormIsRefused) {
  Package package = sharedManager().loadPackage(packagePath("described.pt"));
  const ReplicatedObj object = package.loadPickle("bad", "model.pkl");
  try {
    object.info();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model_info.json"), std::string::npos) << error.what();
  }
}

TEST(ModelInformation, OfAnOnnxModelHasNamesTypesAndShapes) {
  const ModelInfo model = sharedManager().loadModel(modelPath("model.onnx")).info();
  EXPECT_EQ(model.format, "onnx");
  ASSERT_EQ(namesOf(model.inputs), (std::vector<std::string>{"x", "y"}));
  ASSERT_EQ(namesOf(model.outputs), (std::vector<std::string>{"z"}));
  EXPECT_EQ(model.inputs[0].type, "float32");
  EXPECT_EQ(model.inputs[0].shape, (Shape{-1, 2048}));
  EXPECT_EQ(model.outputs[0].shape, (Shape{-1, 2048}));
}

TEST(ModelInformation, OfAnExportedProgramHasNamesTypesAndShapes) {
  const ModelInfo model = sharedManager().loadModel(modelPath("exported.pt2")).info();
  EXPECT_EQ(model.format, "torch.export");
  ASSERT_EQ(namesOf(model.inputs), (std::vector<std::string>{"x", "y"}));
  ASSERT_EQ(model.outputs.size(), 1u);
  for (const ModelValue& each : {model.inputs[0], model.inputs[1], model.outputs[0]}) {
    EXPECT_EQ(each.type, "float32");
    ASSERT_TRUE(each.shape);
    EXPECT_EQ(each.shape->size(), 2u);
  }
}

TEST(ModelInformation, OfATorchScriptModelHasNamesAndTypes) {
  const ModelInfo model = sharedManager().loadModel(modelPath("script.pt")).info();
  EXPECT_EQ(model.format, "torchscript");
  ASSERT_EQ(namesOf(model.inputs), (std::vector<std::string>{"x", "y", "rounds"}));
  EXPECT_EQ(model.inputs[0].type, "Tensor");
  EXPECT_EQ(model.inputs[2].type, "int");
  EXPECT_FALSE(model.inputs[0].shape);
  EXPECT_EQ(model.outputs.size(), 1u);
}

TEST(ModelInformation, OfACompiledModelHasItsArguments) {
  const ModelInfo model = sharedManager().loadModel(modelPath("compiled.pt2")).info();
  EXPECT_EQ(model.format, "aot_inductor");
  EXPECT_EQ(model.inputs.size(), 2u);
}

TEST(ModelInformation, OfAMovedObjectHasItsTypesNameAndNoFile) {
  InterpreterSession session = sharedManager().acquireOne();
  const ReplicatedObj moved =
      session.createMovable(session.global("torch", "arange")({at::IValue(10)}));
  const ModelInfo model = moved.info();
  EXPECT_EQ(model.name, "torch:Tensor");
  EXPECT_EQ(model.file, "");
  EXPECT_EQ(model.bytes, 0u);
}

}  // namespace
}  // namespace isopool::tests
