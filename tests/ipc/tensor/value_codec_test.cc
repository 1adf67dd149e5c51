// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/value_codec.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/ipc/seed.h"
#include "tests/ipc/tensor/crossing.h"

namespace isopool::ipc {
namespace {

using at::IValue;

constexpr uint32_t kLargestLease = 4095;

IValue crossed(const IValue& value) { return Crossing({value}).read().at(0); }
at::Tensor crossedTensor(const at::Tensor& tensor) { return crossed(tensor).toTensor(); }

void expectSame(const at::Tensor& there, const at::Tensor& here) {
  EXPECT_EQ(there.scalar_type(), here.scalar_type());
  EXPECT_EQ(there.sizes(), here.sizes());
  EXPECT_EQ(there.strides(), here.strides());
  EXPECT_EQ(there.requires_grad(), here.requires_grad());
  EXPECT_EQ(there.is_conj(), here.is_conj());
  EXPECT_EQ(there.is_neg(), here.is_neg());
  EXPECT_TRUE(at::equal(there, here));
}

// ---- Values ----------------------------------------------------------------------------------

TEST(ValueCodec, ScalarsComeBackAsTheyWere) {
  EXPECT_TRUE(crossed({}).isNone());
  EXPECT_EQ(crossed(true), IValue(true));
  EXPECT_EQ(crossed(false), IValue(false));
  for (const int64_t number :
       {int64_t{0}, int64_t{-1}, int64_t{31}, int64_t{-33}, int64_t{128}, int64_t{1} << 40,
        std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    const IValue there = crossed(number);
    ASSERT_TRUE(there.isInt()) << number;
    EXPECT_EQ(there.toInt(), number);
  }
  for (const double number : {0.0, -0.0, 1.0, -3.0, 0.1, 1e300, 5e-324,
                              std::numeric_limits<double>::infinity(), 4294967296.0}) {
    const IValue there = crossed(number);
    ASSERT_TRUE(there.isDouble()) << number << " became another kind";
    EXPECT_EQ(there.toDouble(), number);
    EXPECT_EQ(std::signbit(there.toDouble()), std::signbit(number));
  }
  EXPECT_TRUE(std::isnan(crossed(std::nan("")).toDouble()));
  const c10::complex<double> complex(-1.5, 2.0);
  EXPECT_EQ(crossed(complex).toComplexDouble(), complex);
  EXPECT_EQ(crossed(c10::Device("cuda:1")).toDevice(), c10::Device("cuda:1"));
}

TEST(ValueCodec, StringsKeepEveryByte) {
  for (const std::string& text : {std::string(), std::string("text"), std::string("\0\xff\n", 3),
                                  std::string(100'000, 'x')}) {
    EXPECT_EQ(crossed(text).toStringRef(), text);
  }
}

TEST(ValueCodec, ContainersComeBackWithTheirTypes) {
  const IValue tuple = c10::ivalue::Tuple::create({IValue(1), IValue("two"), IValue()});
  EXPECT_EQ(crossed(tuple), tuple);
  EXPECT_EQ(crossed(c10::ivalue::Tuple::create(std::vector<IValue>{})).toTupleRef().size(), 0u);

  const IValue ints = c10::List<int64_t>({1, -2, 3});
  EXPECT_EQ(crossed(ints), ints);
  EXPECT_TRUE(crossed(ints).isIntList());
  EXPECT_TRUE(crossed(c10::List<int64_t>()).isIntList()) << "also an empty list";
  EXPECT_TRUE(crossed(c10::List<double>({1, 2})).isDoubleList());
  EXPECT_TRUE(crossed(c10::List<bool>({true})).isBoolList());
  EXPECT_EQ(crossed(c10::List<std::string>({"a", ""})), IValue(c10::List<std::string>({"a", ""})));

  c10::Dict<std::string, int64_t> dict;
  dict.insert("b", 2);
  dict.insert("a", 1);
  const IValue there = crossed(dict);
  ASSERT_TRUE(there.isGenericDict());
  EXPECT_EQ(there.toGenericDict().keyType()->kind(), c10::TypeKind::StringType);
  EXPECT_EQ(there.toGenericDict().valueType()->kind(), c10::TypeKind::IntType);
  std::vector<std::string> keys;
  for (const auto& entry : there.toGenericDict()) keys.push_back(entry.key().toStringRef());
  EXPECT_EQ(keys, (std::vector<std::string>{"b", "a"})) << "a dict keeps its order";

  c10::List<c10::List<int64_t>> nested;
  nested.push_back(c10::List<int64_t>({1}));
  nested.push_back(c10::List<int64_t>());
  EXPECT_EQ(crossed(nested), IValue(nested));
  EXPECT_EQ(*crossed(nested).type(), *IValue(nested).type());

  c10::List<std::optional<at::Tensor>> optionals;
  optionals.push_back(at::ones({2}));
  optionals.push_back(std::nullopt);
  const auto list = crossed(optionals).toList();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(at::equal(list.get(0).toTensor(), at::ones({2})));
  EXPECT_TRUE(list.get(1).isNone());
}

TEST(ValueCodec, ContainersOfAnythingKeepWhatTheyHold) {
  c10::impl::GenericList list(c10::AnyType::get());
  EXPECT_TRUE(crossed(list).toList().empty());
  list.push_back(1);
  list.push_back("two");
  list.push_back(c10::List<int64_t>({3}));
  list.push_back(IValue());
  const IValue there = crossed(list);
  EXPECT_EQ(there, IValue(list));
  EXPECT_EQ(there.toList().elementType()->kind(), c10::TypeKind::AnyType);
  EXPECT_TRUE(there.toList().get(2).isIntList());

  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  EXPECT_TRUE(crossed(dict).toGenericDict().empty());
  dict.insert("list", list);
  dict.insert(7, at::ones({2}));
  dict.insert(c10::Device("cpu"), true);
  const auto dictThere = crossed(dict).toGenericDict();
  ASSERT_EQ(dictThere.size(), 3u);
  EXPECT_EQ(dictThere.at("list"), IValue(list));
  EXPECT_TRUE(at::equal(dictThere.at(7).toTensor(), at::ones({2})));
  EXPECT_EQ(dictThere.keyType()->kind(), c10::TypeKind::AnyType);
}

TEST(ValueCodec, WhatHoldsItselfIsRefused) {
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(list);
  EXPECT_NE(refusalOf([&] { Crossing crossing({list}); }).find("64 deep"), std::string::npos);
  list.clear();
  IValue deep;
  for (int i = 0; i < 64; ++i) deep = c10::ivalue::Tuple::create({deep});
  EXPECT_EQ(crossed(deep), deep) << "this depth is allowed";
  EXPECT_NE(
      refusalOf([&] { Crossing crossing({c10::ivalue::Tuple::create({deep})}); }).find("64 deep"),
      std::string::npos);
}

TEST(ValueCodec, AnUndefinedTensorStaysOne) {
  EXPECT_TRUE(crossed(at::Tensor()).isNone()) << "as in Python";
  const IValue list = crossed(c10::List<at::Tensor>({at::Tensor(), at::ones({1})}));
  ASSERT_TRUE(list.isTensorList());
  EXPECT_FALSE(list.toTensorVector()[0].defined());
  EXPECT_TRUE(list.toTensorVector()[1].defined());
}

TEST(ValueCodec, SeveralValuesKeepTheirPlaces) {
  const auto values = Crossing({IValue(1), IValue(at::ones({2})), IValue("three")}).read();
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].toInt(), 1);
  EXPECT_TRUE(at::equal(values[1].toTensor(), at::ones({2})));
  EXPECT_EQ(values[2].toStringRef(), "three");
}

TEST(ValueCodec, HandlesAreNoValues) {
  PayloadWriter writer;
  writer.packer().pack_array(2);
  writer.addHandle(UINT64_MAX);
  writer.addValue(5);
  const auto bytes = writer.finish({});
  const PayloadReader reader(bytes);
  EXPECT_EQ(PayloadReader::handle(reader.element(0)), UINT64_MAX);
  EXPECT_EQ(PayloadReader::handle(reader.element(1)), std::nullopt);
  EXPECT_THROW(reader.value(reader.element(0)), ValueError);
}

TEST(ValueCodec, AWriterMayBeUsedAgainAfterARefusal) {
  PayloadWriter writer;
  writer.packer().pack_array(1);
  EXPECT_THROW(
      writer.addValue(IValue::make_capsule(c10::make_intrusive<torch::CustomClassHolder>())),
      ValueError);
  writer.clear();
  writer.packer().pack_array(1);
  writer.addValue(7);
  const auto bytes = writer.finish({});
  EXPECT_EQ(PayloadReader(bytes).integer(0), 7u);
}

TEST(ValueCodec, WhatCannotCrossIsNamedWithAWayOut) {
  const auto refused = [](const IValue& value) {
    return refusalOf([&] { Crossing crossing({value}); });
  };
  const auto expectNamed = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expectNamed(refused(IValue(c10::Stream(c10::Stream::DEFAULT, c10::Device("cpu")))), "Stream");
  expectNamed(refused(at::make_generator<at::CPUGeneratorImpl>()), "Generator");
  expectNamed(refused(IValue::make_capsule(c10::make_intrusive<torch::CustomClassHolder>())),
              "Capsule");
  expectNamed(refused(c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get())), "Future");
  expectNamed(refused(at::ones({2}).to_sparse()), ".to_dense()");
  expectNamed(refused(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)), ".dequantize()");
  expectNamed(refused(at::empty({2}, at::TensorOptions(at::kMeta))), "meta");
  expectNamed(refused(at::_efficientzerotensor({2}, at::kFloat)), ".clone()");
  // Also in a container.
  expectNamed(refused(c10::ivalue::Tuple::create({IValue(at::ones({2}).to_sparse())})),
              ".to_dense()");
}

// ---- Tensors ---------------------------------------------------------------------------------

TEST(ValueCodec, DictsOfManyKeysCross) {
  std::mt19937_64 random = tests::seededRandom();
  const auto expectCrosses = [](const c10::TypePtr& keyType, auto&& key, size_t size) {
    c10::impl::GenericDict dict(keyType, c10::IntType::get());
    for (size_t i = 0; i < size; ++i) dict.insert_or_assign(key(i), static_cast<int64_t>(i));
    const auto there = crossed(dict).toGenericDict();
    ASSERT_EQ(there.size(), dict.size());
    EXPECT_EQ(there, dict);
  };
  for (const size_t size : {1, 2, 5, 8, 9, 16, 17, 33, 100, 1000, 20'000}) {
    for (int shift = 0; shift < 48; shift += 7) {
      expectCrosses(
          c10::IntType::get(), [&](size_t i) { return static_cast<int64_t>(i << shift); }, size);
    }
    expectCrosses(
        c10::IntType::get(), [&](size_t) { return static_cast<int64_t>(random()); }, size);
    expectCrosses(
        c10::FloatType::get(), [](size_t i) { return static_cast<double>(i) / 4; }, size);
    expectCrosses(
        c10::StringType::get(), [](size_t i) { return "layers." + std::to_string(i); }, size);
  }
}

TEST(ValueCodec, ADictWithANanKeyIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  c10::Dict<double, int64_t> doubles;
  doubles.insert(nan, 1);
  c10::Dict<c10::complex<double>, int64_t> complexes;
  complexes.insert(c10::complex<double>(nan, 0), 1);
  for (const IValue& dict : {IValue(doubles), IValue(complexes)}) {
    const std::string refusal = refusalOf([&] { Crossing{{dict}}; });
    EXPECT_NE(refusal.find("NaN key"), std::string::npos) << refusal;
  }
  EXPECT_TRUE(std::isnan(crossed(c10::List<double>({nan})).toDoubleVector().at(0)));
}

TEST(ValueCodec, AStringOfFourGibibytesIsRefused) {
  constexpr size_t kBytes = (size_t{1} << 32) + 5;
  const long pages = ::sysconf(_SC_AVPHYS_PAGES);
  if (static_cast<size_t>(pages) * 4096 < 2 * kBytes) GTEST_SKIP() << "too little memory is free";
  const IValue text{std::string(kBytes, 'x')};
  const std::string refusal = refusalOf([&] { Crossing{{text}}; });
  EXPECT_NE(refusal.find("a string of 4294967301 bytes"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("uint8"), std::string::npos) << refusal;
}

TEST(TensorCodec, EveryElementTypeCrosses) {
  for (const auto type :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble,
        at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16,
        at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kUInt16, at::kUInt32, at::kUInt64}) {
    const at::Tensor bytes = at::randint(0, 2, {96}, at::kByte);
    const at::Tensor here = bytes.view(type);
    const at::Tensor there = crossedTensor(here);
    EXPECT_EQ(there.scalar_type(), type);
    EXPECT_EQ(there.sizes(), here.sizes());
    EXPECT_TRUE(at::equal(there.view(at::kByte), bytes)) << type;
  }
}

TEST(TensorCodec, EveryShapeOfViewCrosses) {
  const at::Tensor base = at::arange(2 * 3 * 4 * 5, at::kFloat).view({2, 3, 4, 5});
  for (const at::Tensor& view : {
           base,
           base.transpose(1, 3),
           base.permute({3, 1, 0, 2}),
           base.slice(2, 1, 4, 2),
           base.select(1, 2),
           base[1][2][3][4],
           base[1][2].t(),
           base.flatten().slice(0, 100),
           at::ones({3, 1}).expand({3, 1000}),
           base.flatten().unfold(0, 10, 3),
           base.to(at::MemoryFormat::ChannelsLast),
           at::empty({0}),
           at::empty({3, 0, 2}),
           base.slice(0, 2, 2),
           at::scalar_tensor(3.5),
           base.flatten().as_strided({2, 2}, {1, 1}, 3),
       }) {
    expectSame(crossedTensor(view), view);
  }
}

TEST(TensorCodec, ATensorOfAllDimensionsCrossesAndOneMoreIsRefused) {
  const std::vector<int64_t> sizes(kMaxTensorRank, 1);
  expectSame(crossedTensor(at::ones(sizes)), at::ones(sizes));
  const std::vector<int64_t> more(kMaxTensorRank + 1, 1);
  EXPECT_NE(refusalOf([&] { Crossing crossing({at::ones(more)}); }).find("64 dimensions"),
            std::string::npos);
}

TEST(TensorCodec, GradConjugateAndNegativeBitsCross) {
  const at::Tensor grad = at::ones({2}).requires_grad_();
  expectSame(crossedTensor(grad), grad);
  EXPECT_TRUE(crossedTensor(grad).is_leaf());
  const at::Tensor complex = at::randn({3, 2}, at::kComplexFloat);
  expectSame(crossedTensor(complex.conj()), complex.conj());
  expectSame(crossedTensor(complex.conj().t()), complex.conj().t());
  const at::Tensor negative = at::imag(complex.conj());
  ASSERT_TRUE(negative.is_neg());
  expectSame(crossedTensor(negative), negative);
  EXPECT_FALSE(crossedTensor((grad * 2).detach()).requires_grad());
}

TEST(TensorCodec, OnlyThePartThatATensorReachesIsCopied) {
  const at::Tensor large = at::zeros({1 << 20});
  EXPECT_LT(Crossing({large.slice(0, 1 << 19, (1 << 19) + 10)}).bytes().size(), 1000u);
  EXPECT_LT(Crossing({large.slice(0, 5, 5)}).bytes().size(), 1000u);
}

TEST(TensorCodec, AnEmptyTensorMayPointAnywhere) {
  // Nothing checks the offset of a tensor without elements.
  const at::Tensor base = at::arange(100, at::kFloat);
  const at::Tensor nowhere = base.as_strided({0}, {1}, int64_t{1} << 40);
  expectSame(crossedTensor(nowhere), nowhere);
  const auto both = Crossing({nowhere, base}).read();
  expectSame(both[0].toTensor(), nowhere);
  expectSame(both[1].toTensor(), base);
  const at::Tensor atEnd = base.slice(0, 100);
  expectSame(crossedTensor(atEnd), atEnd);
}

TEST(TensorCodec, ATensorWhoseStorageWasTakenAwayIsRefused) {
  const at::Tensor tensor = at::zeros({1000});
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(100);
  EXPECT_NE(refusalOf([&] { Crossing crossing({tensor}); }).find("smaller"), std::string::npos);
}

TEST(TensorCodec, TensorsThatShareAStorageShareOneThere) {
  const at::Tensor base = at::zeros({10});
  const at::Tensor other = at::zeros({10});
  const Crossing crossing({base, base.slice(0, 5), other, c10::List<at::Tensor>({base.t()})});
  EXPECT_EQ(crossing.storages(), 2u);
  const auto there = crossing.read();
  there[0].toTensor().fill_(1);
  EXPECT_TRUE(at::equal(there[1].toTensor(), at::ones({5})));
  EXPECT_TRUE(at::equal(there[3].toTensorVector()[0], at::ones({10})));
  EXPECT_TRUE(at::equal(there[2].toTensor(), at::zeros({10})));
}

TEST(TensorCodec, ManyTensorsKeepTheirStoragesApart) {
  std::vector<IValue> values;
  for (int i = 0; i < 300; ++i) {
    values.emplace_back(at::full({3}, i % 100));
    values.emplace_back(values[static_cast<size_t>(i / 2)].toTensor().slice(0, 1));
  }
  const Crossing crossing(values);
  EXPECT_EQ(crossing.storages(), 300u);
  const auto there = crossing.read();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(at::equal(there[i].toTensor(), values[i].toTensor())) << i;
  }
}

TEST(TensorCodec, RandomViewsOfOneStorageCross) {
  auto random = tests::seededRandom();
  const at::Tensor base = at::arange(5000, at::kLong);
  for (int round = 0; round < 2000; ++round) {
    std::vector<IValue> views;
    for (int count = tests::pick(random, 1, 4); count > 0; --count) {
      std::vector<int64_t> sizes;
      std::vector<int64_t> strides;
      int64_t last = 0;
      for (int rank = tests::pick(random, 0, 4); rank > 0; --rank) {
        sizes.push_back(tests::pick<int64_t>(random, 0, 6));
        strides.push_back(tests::pick<int64_t>(random, 0, 200));
        last += std::max<int64_t>(sizes.back() - 1, 0) * strides.back();
      }
      views.emplace_back(
          base.as_strided(sizes, strides, tests::pick<int64_t>(random, 0, 4999 - last)));
    }
    const auto there = Crossing(views).read();
    for (size_t i = 0; i < views.size(); ++i) {
      expectSame(there[i].toTensor(), views[i].toTensor());
    }
  }
}

// ---- Version counters ------------------------------------------------------------------------

std::vector<at::Tensor> crossedTogether(const std::vector<IValue>& tensors) {
  std::vector<at::Tensor> there;
  for (const IValue& each : Crossing(tensors).read()) there.push_back(each.toTensor());
  return there;
}

bool shareVersion(const at::Tensor& one, const at::Tensor& other) {
  const auto before = other._version();
  one.unsafeGetTensorImpl()->bump_version();
  return other._version() != before;
}

TEST(VersionCounters, AreSharedThereByTheTensorsThatShareThemHere) {
  const at::Tensor x = at::arange(100);
  const auto there = crossedTogether(
      {x, x.view({10, 10}), x.detach(), x.variable_data(), x.clone(), at::arange(100), x});
  const auto shares = [&](size_t i) { return shareVersion(there[0], there[i]); };
  EXPECT_TRUE(shares(1));
  EXPECT_TRUE(shares(2));
  EXPECT_FALSE(shares(3));
  EXPECT_FALSE(shares(4));
  EXPECT_FALSE(shares(5));
  EXPECT_TRUE(shares(6));
}

TEST(VersionCounters, OfManyTensorsAreSharedAsHere) {
  std::vector<IValue> tensors;
  for (int i = 0; i < 50; ++i) tensors.emplace_back(at::arange(10));
  for (int i = 0; i < 50; ++i) tensors.emplace_back(tensors[i].toTensor().view({2, 5}));
  const auto there = crossedTogether(tensors);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_TRUE(shareVersion(there[i], there[i + 50]));
    EXPECT_FALSE(shareVersion(there[i], there[(i + 1) % 50]));
  }
}

TEST(VersionCounters, BeginAtZero) {
  at::Tensor x = at::arange(100, at::kFloat).add_(1);
  ASSERT_NE(x._version(), 0);
  EXPECT_EQ(crossedTensor(x)._version(), 0);
  EXPECT_EQ(crossedTensor(at::ones({2}).requires_grad_())._version(), 0);
}

TEST(InputReport, ComesBackAsItWas) {
  PayloadWriter writer;
  writer.packer().pack_array(1).pack(7);
  InputReport report;
  report.written = {{{UINT64_MAX, UINT32_MAX}, UINT32_MAX}, {{1, 0}, 1}};
  report.kept = {0, UINT32_MAX};
  report.released = {{UINT64_MAX, UINT32_MAX}};
  const size_t before = writer.bytes();
  const auto bytes = writer.finish({}, report);
  EXPECT_LE(bytes.size() - before, 1 + report.mostBytes());
  const PayloadReader reader(bytes);
  EXPECT_EQ(reader.integer(0), 7u);
  const InputReport there = reader.inputReport();
  ASSERT_EQ(there.written.size(), 2u);
  EXPECT_EQ(there.written[0].input, (InputVersion{UINT64_MAX, UINT32_MAX}));
  EXPECT_EQ(there.written[0].times, UINT32_MAX);
  EXPECT_EQ(there.written[1].input, (InputVersion{1, 0}));
  EXPECT_EQ(there.kept, report.kept);
  EXPECT_EQ(there.released, report.released);
}

TEST(InputReport, ThatIsEmptyAddsNothing) {
  PayloadWriter with;
  with.packer().pack_array(0);
  const auto bytes = with.finish({}, InputReport());
  EXPECT_EQ(bytes.size(), 3u);
  EXPECT_TRUE(PayloadReader(bytes).inputReport().empty());
}

// ---- Storage records -------------------------------------------------------------------------

TEST(StorageRecords, OfEveryKindComeBackAsTheyWere) {
  PayloadWriter writer;
  writer.packer().pack_array(0);
  const std::string text = "inline";
  StorageRecord records[5];
  records[0].inlineBytes = std::as_bytes(std::span(text));
  const auto record = [](StorageKind kind, uint32_t segment, uint64_t offset, uint64_t bytes) {
    StorageRecord made;
    made.kind = kind;
    made.segment = segment;
    made.offset = offset;
    made.bytes = bytes;
    return made;
  };
  records[1] = record(StorageKind::kLent, UINT32_MAX, UINT64_MAX, uint64_t{1} << 40);
  records[1].lease = kLargestLease;
  records[1].generation = UINT32_MAX;
  records[2] = record(StorageKind::kHome, 3, 4096, 12);
  records[3] = record(StorageKind::kEcho, 0, 65535, 0);
  records[4] = record(StorageKind::kPackage, 9, 64, 1);
  const PayloadReader reader(writer.finish(records));
  ASSERT_EQ(reader.storages().size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const StorageRecord& there = reader.storages()[i];
    EXPECT_EQ(there.kind, records[i].kind);
    EXPECT_EQ(there.segment, records[i].segment);
    EXPECT_EQ(there.offset, records[i].offset);
    EXPECT_EQ(there.lease, records[i].lease);
    EXPECT_EQ(there.generation, records[i].generation);
    EXPECT_EQ(there.bytes, i == 0 ? text.size() : records[i].bytes);
  }
  EXPECT_EQ(std::memcmp(reader.storages()[0].inlineBytes.data(), text.data(), text.size()), 0);
}

}  // namespace
}  // namespace isopool::ipc
