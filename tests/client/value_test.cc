// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/Context.h>
#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/client/harness.h"
#include "tests/client/values.h"

namespace isopool::tests {
namespace {

std::string listed(at::IntArrayRef numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

/// Sizes and strides of a tensor on this side, as Subject.facts prints them. The offset is left
/// out: a copied storage begins at another offset, a multiple of 64 bytes.
std::string layoutOf(const at::Tensor& x) { return listed(x.sizes()) + " " + listed(x.strides()); }

// ---- tensors ---------------------------------------------------------------------------------

struct NamedDtype {
  at::ScalarType type;
  const char* python;
};

class Dtype : public ::testing::TestWithParam<NamedDtype> {};

TEST_P(Dtype, CrossesBothWaysBitByBit) {
  const auto [type, python] = GetParam();
  const auto bytes = at::randint(0, 256, {4096}, at::kByte);
  // A bool has only two valid values; the other types may have any bits.
  const at::Tensor x = type == at::kBool ? bytes.gt(127) : bytes.view(type).clone();
  EXPECT_EQ(sharedSubject().text("facts", {x}).find(std::string("torch.") + python + " "), 0u)
      << sharedSubject().text("facts", {x});
  const at::Tensor y = sharedSubject().tensor("clone", {x});
  ASSERT_EQ(y.scalar_type(), type);
  ASSERT_EQ(y.sizes(), x.sizes());
  EXPECT_EQ(std::memcmp(y.const_data_ptr(), x.const_data_ptr(), x.nbytes()), 0);

  at::Tensor shared = empty(x.sizes(), x.options());
  std::memcpy(shared.data_ptr(), x.const_data_ptr(), x.nbytes());
  const at::Tensor z = sharedSubject().tensor("clone", {shared});
  EXPECT_EQ(std::memcmp(z.const_data_ptr(), x.const_data_ptr(), x.nbytes()), 0);
  EXPECT_EQ(sharedSubject().tensor("identity", {shared}).const_data_ptr(), shared.const_data_ptr());
}

INSTANTIATE_TEST_SUITE_P(
    Value, Dtype,
    ::testing::Values(NamedDtype{at::kByte, "uint8"}, NamedDtype{at::kChar, "int8"},
                      NamedDtype{at::kShort, "int16"}, NamedDtype{at::kInt, "int32"},
                      NamedDtype{at::kLong, "int64"}, NamedDtype{at::kUInt16, "uint16"},
                      NamedDtype{at::kUInt32, "uint32"}, NamedDtype{at::kUInt64, "uint64"},
                      NamedDtype{at::kHalf, "float16"}, NamedDtype{at::kBFloat16, "bfloat16"},
                      NamedDtype{at::kFloat, "float32"}, NamedDtype{at::kDouble, "float64"},
                      NamedDtype{at::kFloat8_e4m3fn, "float8_e4m3fn"},
                      NamedDtype{at::kFloat8_e5m2, "float8_e5m2"},
                      NamedDtype{at::kComplexHalf, "complex32"},
                      NamedDtype{at::kComplexFloat, "complex64"},
                      NamedDtype{at::kComplexDouble, "complex128"}, NamedDtype{at::kBool, "bool"}),
    [](const auto& test) { return std::string(test.param.python); });

struct Layout {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> of;  ///< a view of a 12 x 20 x 6 tensor
};

class LayoutOf : public ::testing::TestWithParam<Layout> {};

TEST_P(LayoutOf, ATensorIsTheSameOnTheOtherSide) {
  for (const bool isInSharedMemory : {false, true}) {
    const at::Tensor whole = isInSharedMemory ? empty({12, 20, 6}) : at::empty({12, 20, 6});
    whole.copy_(at::arange(12 * 20 * 6).view({12, 20, 6}));
    const at::Tensor x = GetParam().of(whole);
    const std::string facts = sharedSubject().text("facts", {x});
    EXPECT_NE(facts.find(layoutOf(x)), std::string::npos) << facts << ", here " << layoutOf(x);
    if (isInSharedMemory && x.numel() > 0) {
      EXPECT_NE(facts.find("offset " + std::to_string(x.storage_offset()) + " "), std::string::npos)
          << facts;
    }
    const at::Tensor back = sharedSubject().tensor("identity", {x});
    EXPECT_EQ(back.sizes(), x.sizes());
    EXPECT_EQ(back.strides(), x.strides());
    EXPECT_TRUE(back.equal(x));
    EXPECT_TRUE(sharedSubject().tensor("clone", {x}).equal(x));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Value, LayoutOf,
    ::testing::Values(
        Layout{"Contiguous", [](const at::Tensor& x) { return x; }},
        Layout{"Transposed", [](const at::Tensor& x) { return x.transpose(0, 2); }},
        Layout{"WithAnOffset", [](const at::Tensor& x) { return x.slice(0, 5, 9); }},
        Layout{"WithSteps", [](const at::Tensor& x) { return x.slice(1, 1, 19, 3); }},
        Layout{"Narrow", [](const at::Tensor& x) { return x.select(2, 5).select(1, 19); }},
        Layout{"OfNoDimension", [](const at::Tensor& x) { return x[3][4][5]; }},
        Layout{"Empty", [](const at::Tensor& x) { return x.slice(0, 12); }},
        Layout{"EmptyInTheMiddle", [](const at::Tensor& x) { return x.slice(1, 4, 4); }},
        Layout{"Expanded",
               [](const at::Tensor& x) {
                 return x.select(1, 0).unsqueeze(1).expand({12, 9, 6});
               }},
        Layout{"Overlapping",
               [](const at::Tensor& x) {
                 return x.as_strided({10, 10}, {1, 1}, 7);
               }},
        Layout{"OfFiveDimensions",
               [](const at::Tensor& x) {
                 return x.view({3, 4, 5, 4, 6}).permute({4, 0, 2, 1, 3});
               }},
        Layout{"ChannelsLast",
               [](const at::Tensor& x) {
                 return x.view({4, 3, 20, 6}).contiguous(at::MemoryFormat::ChannelsLast);
               }}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Value, LazyConjugatesAndNegativesStayLazy) {
  const at::Tensor x = at::randn({200}, at::kComplexFloat);
  const at::Tensor conjugate = x.conj();
  ASSERT_TRUE(conjugate.is_conj());
  EXPECT_NE(sharedSubject().text("facts", {conjugate}).find("conj True"), std::string::npos);
  const at::Tensor back = sharedSubject().tensor("identity", {conjugate});
  EXPECT_TRUE(back.is_conj());
  EXPECT_TRUE(back.equal(conjugate));
  EXPECT_TRUE(sharedSubject().tensor("resolve", {conjugate}).equal(conjugate.resolve_conj()));

  const at::Tensor negative = at::imag(conjugate);
  ASSERT_TRUE(negative.is_neg());
  EXPECT_NE(sharedSubject().text("facts", {negative}).find("neg True"), std::string::npos);
  EXPECT_TRUE(sharedSubject().tensor("resolve", {negative}).equal(negative.resolve_neg()));
}

TEST(Value, AnInputThatRequiresAGradientDoesSoThereAndIsALeaf) {
  const at::Tensor x = at::ones({100}).set_requires_grad(true);
  const std::string facts = sharedSubject().text("facts", {x});
  EXPECT_NE(facts.find("grad True"), std::string::npos) << facts;
  EXPECT_NE(facts.find("leaf True"), std::string::npos) << facts;
  EXPECT_NE(sharedSubject().text("facts", {x.detach()}).find("grad False"), std::string::npos);
}

TEST(Value, AnUndefinedTensorIsNone) {
  EXPECT_EQ(sharedSubject().text("describe", {at::Tensor()}), "NoneType None");
}

TEST(Value, ViewsOfOneStorageShareItThere) {
  for (const at::Tensor& x : {at::arange(1000), empty({1000}).fill_(1)}) {
    EXPECT_TRUE(sharedSubject().ask("same_storage", {x, x.slice(0, 500)}).toBool());
    EXPECT_FALSE(sharedSubject().ask("same_storage", {x, x.clone()}).toBool());
  }
}

// ---- other values ----------------------------------------------------------------------------

struct Plain {
  const char* name;
  at::IValue value;
  const char* python;
};

template <typename T>
c10::List<T> listOf(std::initializer_list<T> elements) {
  return c10::List<T>(elements);
}

c10::Dict<std::string, int64_t> someDict() {
  c10::Dict<std::string, int64_t> dict;
  dict.insert("one", 1);
  return dict;
}

class PlainValue : public ::testing::TestWithParam<Plain> {};

TEST_P(PlainValue, IsWhatPythonCallsItAndComesBackEqual) {
  EXPECT_EQ(sharedSubject().text("describe", {GetParam().value}), GetParam().python);
  const at::IValue back = sharedSubject().ask("identity", {GetParam().value});
  EXPECT_EQ(back.tagKind(), GetParam().value.tagKind());
  EXPECT_EQ(back, GetParam().value);
}

INSTANTIATE_TEST_SUITE_P(
    Value, PlainValue,
    ::testing::Values(
        Plain{"None", at::IValue(), "NoneType None"}, Plain{"True", true, "bool True"},
        Plain{"False", false, "bool False"}, Plain{"Integer", int64_t{42}, "int 42"},
        Plain{"SmallestInteger", std::numeric_limits<int64_t>::min(), "int -9223372036854775808"},
        Plain{"LargestInteger", std::numeric_limits<int64_t>::max(), "int 9223372036854775807"},
        Plain{"Float", 0.1, "float 0.1"}, Plain{"WholeFloat", 3.0, "float 3.0"},
        Plain{"NegativeZero", -0.0, "float -0.0"},
        Plain{"Infinity", std::numeric_limits<double>::infinity(), "float inf"},
        Plain{"Complex", c10::complex<double>(1, -2), "complex (1-2j)"},
        Plain{"EmptyText", std::string(), "str ''"},
        Plain{"Text", std::string("gr\u00fc\u00dfe \U0001f600"),
              "str 'gr\u00fc\u00dfe \U0001f600'"},
        Plain{"TextWithANul", std::string("a\0b", 3), "str 'a\\x00b'"},
        Plain{"Integers", listOf<int64_t>({1, 2}), "list [1, 2]"},
        Plain{"Floats", listOf<double>({1, 2.5}), "list [1.0, 2.5]"},
        Plain{"Bools", listOf<bool>({true, false}), "list [True, False]"},
        Plain{"Texts", listOf<std::string>({"a", "b"}), "list ['a', 'b']"},
        Plain{"Nested", listOf<c10::List<int64_t>>({listOf<int64_t>({1}), listOf<int64_t>({2})}),
              "list [[1], [2]]"},
        Plain{"Tuple", c10::ivalue::Tuple::create({int64_t{1}, std::string("two"), 3.0}),
              "tuple (1, 'two', 3.0)"},
        Plain{"EmptyTuple", c10::ivalue::Tuple::create(std::vector<at::IValue>{}), "tuple ()"},
        Plain{"Dict", someDict(), "dict {'one': 1}"},
        Plain{"Device", c10::Device("cpu"), "device device(type='cpu')"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Value, NanStaysNan) {
  EXPECT_TRUE(std::isnan(sharedSubject().ask("identity", {std::nan("")}).toDouble()));
}

TEST(Value, AnEmptyListIsAnArgumentButNoResult) {
  EXPECT_EQ(sharedSubject().text("describe", {c10::List<int64_t>()}), "list []");
}

TEST(Value, ContainersOfTensorsCross) {
  const at::Tensor x = at::rand({300});
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("x", x);
  const at::IValue back =
      sharedSubject().ask("identity", {c10::ivalue::Tuple::create({dict, int64_t{3}})});
  const auto& elements = back.toTupleRef().elements();
  EXPECT_TRUE(elements[0].toGenericDict().at("x").toTensor().equal(x));
  EXPECT_EQ(elements[1].toInt(), 3);
}

// ---- what can't cross ------------------------------------------------------------------------

std::string refusalOfArgument(const at::IValue& value) {
  return refusalOf([&] { sharedSubject().ask("identity", {value}); });
}

TEST(Value, ASparseArgumentIsRefusedWithTheWayOut) {
  EXPECT_TRUE(contains(refusalOfArgument(at::eye(3).to_sparse()), ".to_dense()"));
}

TEST(Value, AQuantisedArgumentIsRefusedWithTheWayOut) {
  const at::Tensor x = at::quantize_per_tensor(at::ones({4}), 0.1, 0, at::kQInt8);
  EXPECT_TRUE(contains(refusalOfArgument(x), ".dequantize()"));
}

TEST(Value, AMetaArgumentIsRefused) {
  EXPECT_TRUE(contains(refusalOfArgument(at::empty({3}, at::kMeta)), "can't cross"));
}

TEST(Value, ACudaArgumentIsRefusedWithTheWayOut) {
  if (!at::hasCUDA()) GTEST_SKIP() << "this machine has no CUDA device";
  EXPECT_TRUE(contains(refusalOfArgument(at::ones({3}, at::kCUDA)), ".cpu()"));
}

TEST(Value, AFutureIsRefused) {
  const auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  EXPECT_TRUE(contains(refusalOfArgument(future), "Future"));
}

TEST(Value, AnObjectOfACustomClassIsRefused) {
  struct Custom : torch::CustomClassHolder {};
  EXPECT_FALSE(refusalOfArgument(at::IValue::make_capsule(c10::make_intrusive<Custom>())).empty());
}

TEST(Value, WhatASessionCantTakeIsRefusedToo) {
  InterpreterSession session = sharedManager().acquireOne();
  const at::Tensor sparse = at::eye(3).to_sparse();
  EXPECT_TRUE(contains(refusalOf([&] { session.fromIValue(sparse); }), ".to_dense()"));
  const Obj print = session.global("builtins", "print");
  EXPECT_TRUE(contains(refusalOf([&] { print({sparse}); }), ".to_dense()"));
  EXPECT_TRUE(contains(refusalOf([&] { print.callKwargs({{"sep", sparse}}); }), ".to_dense()"));
}

struct BadResult {
  const char* kind;
  const char* said;
};

class ResultThat : public ::testing::TestWithParam<BadResult> {};

TEST_P(ResultThat, CantCrossIsRefusedInClearWords) {
  const std::string text =
      refusalOf([] { sharedSubject().ask("result_of_kind", {GetParam().kind}); });
  EXPECT_TRUE(contains(text, GetParam().said)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Value, ResultThat,
    ::testing::Values(BadResult{"empty list",
                                "List trace inputs must have elements. The permissive conversion "
                                "takes it (CallOptions::permissive"},
                      BadResult{"empty dict",
                                "Dictionary inputs must have entries. The permissive conversion "
                                "takes it (CallOptions::permissive"},
                      BadResult{"mixed list", "Tracer cannot infer type of [1, 2.0]"},
                      BadResult{"set", "value of type set"},
                      BadResult{"function", "Tracer cannot infer type"},
                      BadResult{"module", "torch.nn.Module"}, BadResult{"huge integer", "64 bits"},
                      BadResult{"surrogate", "UTF-8"}, BadResult{"sparse", ".to_dense()"},
                      BadResult{"sparse in a list", ".to_dense()"},
                      BadResult{"meta", "can't cross"}, BadResult{"generator", "Generator"}),
    [](const auto& test) {
      std::string name = test.param.kind;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

}  // namespace
}  // namespace isopool::tests
