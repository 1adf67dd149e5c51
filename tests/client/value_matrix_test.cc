// SPDX-License-Identifier: BSD-3-Clause
// Every dtype in every layout, in both directions, inside and outside shared memory.
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <map>
#include <sstream>

#include "tests/client/values.h"

namespace isopool::tests {
namespace {

using at::ScalarType;

/// False for element types that are quantised or that no CPU tensor of torch itself can have.
bool isForTensors(ScalarType type) {
  return type != ScalarType::Undefined && type != ScalarType::NumOptions && !c10::isQIntType(type);
}

std::vector<ScalarType> allDtypes() {
  std::vector<ScalarType> types;
  for (int i = 0; i < static_cast<int>(ScalarType::NumOptions); ++i) {
    if (isForTensors(static_cast<ScalarType>(i))) types.push_back(static_cast<ScalarType>(i));
  }
  return types;
}

/// 720 elements with different bits, as a 12 x 20 x 3 tensor.
at::Tensor someTensor(ScalarType type, bool isInSharedMemory) {
  const std::map<size_t, ScalarType> integers = {
      {1, at::kByte}, {2, at::kShort}, {4, at::kInt}, {8, at::kLong}};
  const size_t bytes = c10::elementSize(type);
  at::Tensor numbers;
  if (type == at::kBool) {
    numbers = at::arange(720).remainder(3).eq(1);
  } else if (integers.count(bytes) > 0) {
    numbers = at::arange(720).to(integers.at(bytes)).view(type);
  } else {
    numbers = at::arange(720).to(type);  // complex128
  }
  if (!isInSharedMemory) return numbers.view({12, 20, 3});
  const at::Tensor shared = empty({static_cast<int64_t>(720 * bytes)}, at::kByte);
  std::memcpy(shared.data_ptr(), numbers.const_data_ptr(), 720 * bytes);
  return shared.view(type).view({12, 20, 3});
}

/// The bytes of the elements of any type, in the order of the indices.
std::vector<std::byte> bitsOf(const at::Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.storage().data());
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  std::vector<std::byte> bits;
  std::vector<int64_t> index(static_cast<size_t>(tensor.dim()), 0);
  for (int64_t n = 0; n < tensor.numel(); ++n) {
    int64_t at = tensor.storage_offset();
    for (size_t i = 0; i < index.size(); ++i) {
      at += index[i] * tensor.stride(static_cast<int64_t>(i));
    }
    bits.insert(bits.end(), data + at * bytes, data + (at + 1) * bytes);
    for (size_t i = index.size(); i-- > 0;) {
      if (++index[i] < tensor.size(static_cast<int64_t>(i))) break;
      index[i] = 0;
    }
  }
  return bits;
}

struct View {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> of;
};

const std::vector<View>& views() {
  static const std::vector<View> all = {
      {"contiguous", [](const at::Tensor& x) { return x; }},
      {"transposed", [](const at::Tensor& x) { return x.transpose(0, 2); }},
      {"with an offset", [](const at::Tensor& x) { return x.slice(0, 5, 9); }},
      {"with steps", [](const at::Tensor& x) { return x.slice(1, 1, 19, 3); }},
      {"expanded",
       [](const at::Tensor& x) {
         return x.slice(1, 0, 1).expand({12, 9, 3});
       }},
      {"overlapping",
       [](const at::Tensor& x) {
         return x.as_strided({10, 10}, {1, 1}, 7);
       }},
      {"of no dimension", [](const at::Tensor& x) { return x[3][4][2]; }},
      {"empty", [](const at::Tensor& x) { return x.slice(1, 4, 4); }},
  };
  return all;
}

void expectSame(const at::Tensor& there, const at::Tensor& here) {
  EXPECT_EQ(there.scalar_type(), here.scalar_type());
  EXPECT_EQ(there.sizes(), here.sizes());
  EXPECT_EQ(there.strides(), here.strides());
  EXPECT_EQ(bitsOf(there), bitsOf(here));
}

class EveryDtype : public ::testing::TestWithParam<ScalarType> {};

TEST_P(EveryDtype, EveryLayoutIsTheSameThereAndBack) {
  for (const bool isInSharedMemory : {false, true}) {
    const at::Tensor whole = someTensor(GetParam(), isInSharedMemory);
    for (const View& view : views()) {
      SCOPED_TRACE(std::string(view.name) + (isInSharedMemory ? ", in shared memory" : ""));
      const at::Tensor x = view.of(whole);
      std::ostringstream facts;
      facts << x.sizes() << " " << x.strides() << " grad False conj False neg False";
      EXPECT_TRUE(contains(valuesSubject().text("facts", {x}), facts.str()))
          << valuesSubject().text("facts", {x}) << ", here " << facts.str();
      // The argument itself, a copy of a tensor that the model keeps, and a moved result.
      expectSame(valuesSubject().tensor("identity", {x}), x);
      expectSame(valuesSubject().tensor("kept", {x}), x);
      expectSame(valuesSubject().tensor("fresh", {x}), x);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ValueMatrix, EveryDtype, ::testing::ValuesIn(allDtypes()),
                         [](const auto& test) { return std::string(toString(test.param)); });

TEST(ValueMatrix, TorchHasNoDtypeThatIsNotInIt) {
  // Python's dtypes, as the numbers that the strict conversion makes of them.
  InterpreterSession session = sharedManager().acquireOne();
  const Obj torch = session.global("__main__", "torch");
  const at::IValue names = session.global("builtins", "dir")({torch}).toIValue();
  const auto dtype = session.global("torch", "dtype");
  const auto isInstance = session.global("builtins", "isinstance");
  const auto getAttribute = session.global("builtins", "getattr");
  size_t found = 0;
  for (const std::string& name : names.to<std::vector<std::string>>()) {
    const Obj value = getAttribute({torch, session.fromIValue(name)});
    if (!isInstance({value, dtype}).toIValue().toBool()) continue;
    ++found;
    const auto type = static_cast<ScalarType>(value.toIValue().toInt());
    EXPECT_TRUE(isForTensors(type) || c10::isQIntType(type)) << name;
  }
  EXPECT_GT(found, 30u);
}

// ---- properties of tensors --------------------------------------------------------------------

TEST(ValueMatrix, AnInferenceTensorCrossesBothWays) {
  for (const bool isInSharedMemory : {false, true}) {
    at::Tensor x;
    {
      const c10::InferenceMode guard;
      x = isInSharedMemory ? empty({100}).fill_(2) : at::full({100}, 2.0f);
      ASSERT_TRUE(x.is_inference());
      const at::IValue there = valuesSubject().ask("is_inference", {x});
      EXPECT_EQ(shown(there), "(False, True)") << "in the worker it is an ordinary tensor";
      const at::Tensor back = valuesSubject().tensor("fresh", {x});
      EXPECT_TRUE(back.equal(x));
    }
    EXPECT_EQ(shown(valuesSubject().ask("is_inference", {x})), "(False, False)");
    EXPECT_TRUE(valuesSubject().tensor("identity", {x}).equal(x));
  }
}

TEST(ValueMatrix, ATensorThatRequiresAGradientComesBackDetached) {
  for (const bool isInSharedMemory : {false, true}) {
    at::Tensor x = isInSharedMemory ? empty({50}).fill_(1) : at::ones({50});
    x.set_requires_grad(true);
    EXPECT_TRUE(contains(valuesSubject().text("facts", {x}), "grad True"));
    // A view of the tensor is not a leaf here; in the worker it requires a gradient too.
    EXPECT_TRUE(contains(valuesSubject().text("facts", {x.slice(0, 1, 9)}), "grad True"));
    for (const char* method : {"identity", "kept", "fresh"}) {
      EXPECT_FALSE(valuesSubject().tensor(method, {x}).requires_grad()) << method;
    }
    EXPECT_TRUE(x.requires_grad());
  }
}

TEST(ValueMatrix, ConjugateAndNegativeBitsCrossInEveryLayout) {
  for (const bool isInSharedMemory : {false, true}) {
    const at::Tensor whole = someTensor(at::kComplexFloat, isInSharedMemory);
    for (const View& view : views()) {
      SCOPED_TRACE(view.name);
      const at::Tensor conjugate = view.of(whole).conj();
      EXPECT_TRUE(contains(valuesSubject().text("facts", {conjugate}), "conj True neg False"));
      const at::Tensor negative = at::imag(conjugate);
      EXPECT_TRUE(contains(valuesSubject().text("facts", {negative}), "conj False neg True"));
      for (const char* method : {"identity", "kept"}) {
        EXPECT_TRUE(valuesSubject().tensor(method, {conjugate}).is_conj());
        EXPECT_TRUE(valuesSubject().tensor(method, {negative}).is_neg());
      }
    }
  }
}

TEST(ValueMatrix, WhatACallWritesIntoAnArgumentIsSeenIfItLiesInSharedMemory) {
  for (const View& view : views()) {
    SCOPED_TRACE(view.name);
    const at::Tensor shared = empty({12, 20, 3}).fill_(1);
    const at::Tensor outside = at::ones({12, 20, 3});
    const at::Tensor expected = at::ones({12, 20, 3});
    // zero_ does not support tensors whose elements overlap.
    if (std::string(view.name) == "overlapping" || std::string(view.name) == "expanded") continue;
    view.of(expected).zero_();
    valuesSubject().ask("zero_everything", {view.of(shared)});
    valuesSubject().ask("zero_everything", {view.of(outside)});
    EXPECT_TRUE(shared.equal(expected));
    EXPECT_TRUE(outside.equal(at::ones({12, 20, 3})));
  }
}

}  // namespace
}  // namespace isopool::tests
