// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/value_codec.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/ipc/seed.h"

namespace isopool::ipc {
namespace {

using at::IValue;

constexpr uint32_t kLargestLease = 4095;

/// A payload as it crosses: every storage lies outside shared memory and is copied whole.
class Crossing {
 public:
  /// `values` are the elements of the body.
  explicit Crossing(const std::vector<IValue>& values) {
    writer_.packer().pack_array(static_cast<uint32_t>(values.size()));
    for (const IValue& value : values) writer_.addValue(value);
    for (size_t i = 0; i < writer_.storages().size(); ++i) {
      const c10::Storage& storage = writer_.storages()[i];
      const StorageExtent extent = writer_.extentOfStorage(i);
      EXPECT_EQ(extent.begin % 64, 0u);
      EXPECT_LE(extent.begin, extent.end);
      EXPECT_LE(extent.end, storage.nbytes()) << "what is copied must be there";
      if (extent.end > storage.nbytes()) return;
      StorageRecord record;
      record.rebase = extent.begin;
      record.inlineBytes = {static_cast<const std::byte*>(storage.data()) + extent.begin,
                            extent.end - extent.begin};
      records_.push_back(record);
    }
    const auto written = writer_.finish(records_);
    bytes_.assign(written.begin(), written.end());
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  size_t storages() const { return records_.size(); }

  std::vector<IValue> read() const { return readPayload(bytes_); }

  static std::vector<IValue> readPayload(const std::vector<std::byte>& bytes) {
    PayloadReader reader(bytes);
    std::vector<c10::Storage> storages;
    for (const StorageRecord& record : reader.storages()) {
      at::Tensor copy = at::empty({static_cast<int64_t>(record.inlineBytes.size())}, at::kByte);
      std::copy(record.inlineBytes.begin(), record.inlineBytes.end(),
                static_cast<std::byte*>(copy.data_ptr()));
      storages.push_back(copy.storage());
    }
    reader.setStorages(std::move(storages));
    std::vector<IValue> values;
    for (size_t i = 0; i < reader.elements(); ++i) {
      values.push_back(reader.value(reader.element(i)));
    }
    return values;
  }

 private:
  PayloadWriter writer_;
  std::vector<StorageRecord> records_;
  std::vector<std::byte> bytes_;
};

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

template <typename Act>
std::string refusalOf(Act&& act) {
  try {
    act();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "it was not refused";
}

/// Reads the first and the last byte that a tensor reaches, and looks into containers.
void touch(const IValue& value) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().numel() > 0) {
    const at::Tensor& tensor = value.toTensor();
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    const volatile auto* data = static_cast<const char*>(tensor.const_data_ptr());
    static_cast<void>(data[0]);
    static_cast<void>(data[(last + 1) * tensor.element_size() - 1]);
  } else if (value.isTuple()) {
    for (const IValue& element : value.toTupleRef().elements()) touch(element);
  } else if (value.isList()) {
    for (const IValue& element : value.toList().vec()) touch(element);
  }
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
  EXPECT_TRUE(crossed(c10::List<int64_t>()).isIntList()) << "an empty one too";
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
  EXPECT_EQ(keys, (std::vector<std::string>{"b", "a"})) << "the order is a part of a dict";

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
  EXPECT_EQ(crossed(deep), deep) << "that deep is fine";
  EXPECT_NE(
      refusalOf([&] { Crossing crossing({c10::ivalue::Tuple::create({deep})}); }).find("64 deep"),
      std::string::npos);
}

TEST(ValueCodec, AnUndefinedTensorStaysOne) {
  EXPECT_TRUE(crossed(at::Tensor()).isNone()) << "as Python has it";
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
  // In a container too.
  expectNamed(refused(c10::ivalue::Tuple::create({IValue(at::ones({2}).to_sparse())})),
              ".to_dense()");
}

// ---- Tensors ---------------------------------------------------------------------------------

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

// ---- Payloads of a liar ----------------------------------------------------------------------

/// As the source has it, by which a liar would write it.
struct LyingHead {
  uint32_t storage = 0;
  uint8_t scalarType = static_cast<uint8_t>(at::kFloat);
  uint8_t flags = 0;
  uint8_t rank = 0;
  uint8_t unused = 0;
  int64_t storageOffset = 0;
};

/// A tensor of what is said, over one storage of 64 bytes.
std::string refusalOfTensor(LyingHead head, const std::vector<int64_t>& sizes,
                            const std::vector<int64_t>& strides, bool sayRank = true) {
  if (sayRank) head.rank = static_cast<uint8_t>(sizes.size());
  PayloadWriter writer;
  auto& packer = writer.packer();
  packer.pack_array(1);
  const size_t words = sizes.size() + strides.size();
  packer.pack_ext(sizeof head + words * sizeof(int64_t), kTensorExtension);
  packer.pack_ext_body(reinterpret_cast<const char*>(&head), sizeof head);
  packer.pack_ext_body(reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(int64_t));
  packer.pack_ext_body(reinterpret_cast<const char*>(strides.data()),
                       strides.size() * sizeof(int64_t));
  StorageRecord record;
  static const std::array<std::byte, 64> content{};
  record.inlineBytes = content;
  const auto written = writer.finish({&record, 1});
  const std::vector<std::byte> bytes(written.begin(), written.end());
  return refusalOf([&] {
    // Whoever believes it reads it.
    touch(Crossing::readPayload(bytes).at(0));
  });
}

TEST(HostileTensor, WithinItsStorageIsBelieved) {
  EXPECT_EQ(refusalOfTensor({}, {16}, {1}), "it was not refused");
  EXPECT_EQ(refusalOfTensor({}, {2, 2}, {8, 7}), "it was not refused");
}

TEST(HostileTensor, BeyondItsStorageIsRefused) {
  const std::string beyond = "a tensor reaches beyond its storage";
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(refusalOfTensor({}, {17}, {1}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {2}, {16}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {2, 2}, {8, 8}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {16}, {-1}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {-1}, {1}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {kLeast}, {kLeast}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {kMost}, {0}), "it was not refused")
      << "one element, over and over, lies within";
}

TEST(HostileTensor, WhoseProductsOverflowIsRefused) {
  const std::string beyond = "a tensor reaches beyond its storage";
  constexpr int64_t kHalf = int64_t{1} << 32;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(refusalOfTensor({}, {kHalf, kHalf}, {0, 0}), beyond) << "2^64 elements are none";
  EXPECT_EQ(refusalOfTensor({}, {kHalf + 1}, {kHalf}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {3, 3}, {kMost / 2, kMost / 2}), beyond);
  EXPECT_EQ(refusalOfTensor({}, {kHalf, kHalf, kHalf, kHalf}, {1, 1, 1, 1}), beyond);
  LyingHead head;
  for (const int64_t offset : {int64_t{-1}, kMost, kMost / 4, int64_t{16}, -kMost}) {
    head.storageOffset = offset;
    EXPECT_EQ(refusalOfTensor(head, {1}, {1}), beyond) << offset;
    EXPECT_EQ(refusalOfTensor(head, {}, {}), beyond) << offset;
  }
}

TEST(HostileTensor, OfAnUnknownElementTypeIsRefused) {
  size_t believed = 0;
  for (int type = 0; type < 256; ++type) {
    LyingHead head;
    head.scalarType = static_cast<uint8_t>(type);
    PayloadWriter writer;
    writer.packer().pack_array(1);
    writer.packer().pack_ext(sizeof head, kTensorExtension);
    writer.packer().pack_ext_body(reinterpret_cast<const char*>(&head), sizeof head);
    StorageRecord record;
    static const std::array<std::byte, 64> content{};
    record.inlineBytes = content;
    const auto written = writer.finish({&record, 1});
    try {
      const auto values = Crossing::readPayload({written.begin(), written.end()});
      const at::Tensor& tensor = values.at(0).toTensor();
      EXPECT_FALSE(tensor.is_quantized()) << type;
      ++believed;
    } catch (const ValueError& error) {
      EXPECT_STREQ(error.what(), "a tensor has an unknown element type") << type;
    }
  }
  EXPECT_GE(believed, 12u);
  EXPECT_LT(believed, static_cast<size_t>(c10::ScalarType::NumOptions));
}

TEST(HostileTensor, WhoseDimensionsAreNotThereIsRefused) {
  const std::string wrong = "a tensor has wrong dimensions";
  LyingHead head;
  for (const int rank : {1, 2, 64, 65, 255}) {
    head.rank = static_cast<uint8_t>(rank);
    EXPECT_EQ(refusalOfTensor(head, {}, {}, /*sayRank=*/false), wrong) << rank;
  }
  head.rank = 0;
  EXPECT_EQ(refusalOfTensor(head, {1}, {1}, /*sayRank=*/false), wrong);
  EXPECT_EQ(refusalOfTensor({}, std::vector<int64_t>(1000, 1), std::vector<int64_t>(1000, 1)),
            wrong);
  EXPECT_EQ(refusalOfTensor({}, std::vector<int64_t>(65, 1), std::vector<int64_t>(65, 1)), wrong);
}

TEST(HostileTensor, OfNoStorageIsRefused) {
  LyingHead head;
  for (const uint32_t storage : {1u, UINT32_MAX}) {
    head.storage = storage;
    EXPECT_EQ(refusalOfTensor(head, {1}, {1}), "a tensor names no storage of its payload");
  }
}

TEST(HostileTensor, WithFlagsThatDoNotFitItsTypeIsNoDanger) {
  LyingHead head;
  head.flags = 0xff;
  for (const auto type : {at::kBool, at::kLong, at::kFloat, at::kComplexFloat}) {
    head.scalarType = static_cast<uint8_t>(type);
    refusalOfTensor(head, {2}, {1});
  }
}

using Pack = std::function<void(PayloadWriter::Packer&)>;

std::vector<std::byte> packed(const Pack& pack) {
  msgpack::sbuffer buffer;
  PayloadWriter::Packer packer(buffer);
  pack(packer);
  const auto* data = reinterpret_cast<const std::byte*>(buffer.data());
  return {data, data + buffer.size()};
}

TEST(HostilePayload, ThatIsNoBodyWithATableIsRefused) {
  const std::vector<Pack> payloads = {
      [](auto&) {},
      [](auto& packer) { packer.pack(1); },
      [](auto& packer) { packer.pack_array(0); },
      [](auto& packer) { packer.pack_array(1).pack_array(0); },
      [](auto& packer) { packer.pack_array(2).pack_array(0); },
      [](auto& packer) { packer.pack_array(2).pack(1).pack_array(0); },
      [](auto& packer) { packer.pack_array(2).pack_array(0).pack(1); },
      [](auto& packer) { packer.pack_array(2).pack_map(0).pack_array(0); },
      [](auto& packer) { packer.pack_map(2).pack_array(0).pack_array(0).pack(1).pack(1); },
      [](auto& packer) { packer.pack_array(2).pack_array(0).pack_array(0).pack_nil(); },
      [](auto& packer) { packer.pack_array(3).pack_array(0).pack_array(0).pack_nil(); },
  };
  for (size_t i = 0; i < payloads.size(); ++i) {
    const auto bytes = packed(payloads[i]);
    EXPECT_THROW(PayloadReader reader(bytes), ValueError) << "payload " << i;
  }
}

TEST(HostilePayload, WithAStorageThatIsNoneIsRefused) {
  const std::vector<Pack> storages = {
      [](auto& packer) { packer.pack_nil(); },
      [](auto& packer) { packer.pack_array(0); },
      [](auto& packer) { packer.pack_array(1).pack(0); },
      [](auto& packer) { packer.pack_array(2).pack(0).pack("no bytes"); },
      [](auto& packer) { packer.pack_array(2).pack(0).pack(7); },
      [](auto& packer) { packer.pack_array(4).pack(1).pack(1).pack(0).pack(4096); },
      [](auto& packer) { packer.pack_array(4).pack(2).pack(-1).pack(0).pack(4096); },
      [](auto& packer) { packer.pack_array(4).pack(2).pack(uint64_t{1} << 32).pack(0).pack(1); },
      [](auto& packer) { packer.pack_array(4).pack(2).pack(1).pack(-1).pack(1); },
      [](auto& packer) { packer.pack_array(4).pack(4).pack(1).pack(0).pack(1.5); },
      [](auto& packer) { packer.pack_array(2).pack(3).pack(-1); },
      [](auto& packer) { packer.pack_array(2).pack(5).pack(0); },
      [](auto& packer) { packer.pack_array(2).pack(259).pack(0); },  // 3 in its lowest byte
      [](auto& packer) { packer.pack_array(2).pack(uint64_t{1} << 63).pack(0); },
      [](auto& packer) { packer.pack_array(2).pack(-1).pack(0); },
  };
  for (size_t i = 0; i < storages.size(); ++i) {
    const auto bytes = packed([&](auto& packer) {
      packer.pack_array(2).pack_array(0).pack_array(1);
      storages[i](packer);
    });
    EXPECT_THROW(PayloadReader reader(bytes), ValueError) << "storage " << i;
  }
}

std::string refusalOfValue(const Pack& value) {
  const auto bytes = packed([&](auto& packer) {
    packer.pack_array(2).pack_array(1);
    value(packer);
    packer.pack_array(0);
  });
  return refusalOf([&] { Crossing::readPayload(bytes); });
}

TEST(HostilePayload, WithAValueThatIsNoneIsRefused) {
  const std::vector<Pack> values = {
      [](auto& packer) { packer.pack_map(0); },
      [](auto& packer) { packer.pack_bin(0); },
      [](auto& packer) { packer.pack(UINT64_MAX); },
      [](auto& packer) { packer.pack_array(0); },
      [](auto& packer) { packer.pack_array(1).pack("tag"); },
      [](auto& packer) { packer.pack_array(1).pack(4); },
      [](auto& packer) { packer.pack_array(1).pack(uint64_t{1} << 32); },  // 0 in its lower half
      [](auto& packer) { packer.pack_array(1).pack(1); },                  // a list without a type
      [](auto& packer) { packer.pack_array(2).pack(1).pack("type"); },
      [](auto& packer) { packer.pack_array(3).pack(1).pack(2).pack("no integer"); },
      [](auto& packer) { packer.pack_array(3).pack(1).pack(1).pack(5); },
      [](auto& packer) { packer.pack_array(3).pack(1).pack(8).pack(5); },  // a list of devices
      [](auto& packer) { packer.pack_array(3).pack(1).pack(9).pack("number"); },
      [](auto& packer) { packer.pack_array(3).pack(1).pack(7).pack("none"); },
      // a list of lists, tuples, dicts that holds a number
      [](auto& packer) { packer.pack_array(3).pack(1).pack_array(2).pack(20).pack(2).pack(5); },
      [](auto& packer) { packer.pack_array(3).pack(1).pack_array(2).pack(23).pack(2).pack(5); },
      [](auto& packer) {
        packer.pack_array(3).pack(1).pack_array(3).pack(22).pack(2).pack(2).pack(5);
      },
      [](auto& packer) { packer.pack_array(2).pack(2).pack(5); },  // a dict without a type
      [](auto& packer) { packer.pack_array(4).pack(2).pack(5).pack(2).pack("key"); },
      [](auto& packer) { packer.pack_array(5).pack(2).pack(7).pack(2).pack_nil().pack(2); },
      // a key that is a list, though the dict's keys may be anything
      [](auto& packer) {
        packer.pack_array(5).pack(2).pack(0).pack(0).pack_array(2).pack(1).pack(0).pack(2);
      },
      [](auto& packer) { packer.pack_array(2).pack(1).pack(19); },  // a list of an unknown type
      // a list of dicts whose keys are lists
      [](auto& packer) {
        packer.pack_array(2).pack(1).pack_array(3).pack(22).pack_array(2).pack(20).pack(2).pack(2);
      },
      [](auto& packer) { packer.pack_array(5).pack(2).pack(2).pack(2).pack("1").pack(2); },
      [](auto& packer) { packer.pack_array(5).pack(2).pack(8).pack(2).pack(1).pack(2); },
      [](auto& packer) { packer.pack_array(1).pack(3); },
      [](auto& packer) { packer.pack_array(2).pack(3).pack(1); },
      [](auto& packer) { packer.pack_array(2).pack(3).pack("no device"); },
      [](auto& packer) { packer.pack_ext(1, 99).pack_ext_body("x", 1); },
      [](auto& packer) { packer.pack_ext(1, kTensorExtension).pack_ext_body("x", 1); },
      [](auto& packer) { packer.pack_ext(8, kComplexExtension).pack_ext_body("12345678", 8); },
  };
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NE(refusalOfValue(values[i]), "it was not refused") << "value " << i;
  }
}

TEST(HostilePayload, NestedWithoutEndIsRefused) {
  const auto nested = [](uint32_t tag, int depth) {
    return [=](auto& packer) {
      for (int i = 0; i < depth; ++i) packer.pack_array(2).pack(tag);
      packer.pack_nil();
    };
  };
  EXPECT_EQ(refusalOfValue(nested(0, 60)), "it was not refused") << "deep tuples are fine";
  EXPECT_NE(refusalOfValue(nested(0, 100)), "it was not refused");
  EXPECT_NE(refusalOfValue(nested(0, 100'000)), "it was not refused");
  EXPECT_NE(refusalOfValue([&](auto& packer) {
              packer.pack_array(2).pack(1);
              nested(20, 100'000)(packer);
            }),
            "it was not refused");
}

TEST(HostilePayload, OfClaimedLengthsIsRefusedWithoutTheMemoryForThem) {
  for (const char* claim : {"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff",
                            "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x01"}) {
    std::vector<std::byte> bytes;
    // Nested as deep as may be, each of them claims all.
    for (int i = 0; i < 100; ++i) {
      for (const char* at = claim; *at != '\0'; ++at) bytes.push_back(static_cast<std::byte>(*at));
    }
    EXPECT_THROW(PayloadReader reader(bytes), ValueError) << static_cast<int>(claim[0]);
  }
}

TEST(HostilePayload, CutShortAnywhereIsRefused) {
  const Crossing whole(
      {at::ones({3, 2}).requires_grad_(), c10::List<int64_t>({1, 2}), "text", 1.5});
  for (size_t length = 0; length < whole.bytes().size(); ++length) {
    const std::vector<std::byte> cut(whole.bytes().begin(),
                                     whole.bytes().begin() + static_cast<ptrdiff_t>(length));
    EXPECT_THROW(Crossing::readPayload(cut), ValueError) << length;
  }
}

TEST(HostilePayload, SpoiltAtRandomIsReadOrRefused) {
  auto random = tests::seededRandom();
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("a", at::ones({4}));
  c10::impl::GenericList anything(c10::AnyType::get());
  anything.push_back(at::ones({2}));
  anything.push_back("word");
  const Crossing whole({at::arange(24).view({2, 3, 4}).transpose(0, 2), dict, anything,
                        c10::List<int64_t>({1, 2, 3}), c10::Device("cpu"), "text",
                        c10::ivalue::Tuple::create({IValue(1), IValue(2.5), IValue()}),
                        c10::complex<double>(1, 2), at::ones({3}, at::kComplexFloat).conj()});
  size_t refused = 0;
  size_t read = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::vector<std::byte> bytes = whole.bytes();
    for (int damages = tests::pick(random, 1, 4); damages > 0; --damages) {
      const auto at = tests::pick<size_t>(random, 0, bytes.size() - 1);
      if (tests::pick(random, 0, 1) == 0) {
        bytes[at] = static_cast<std::byte>(random());
      } else {
        bytes[at] ^= static_cast<std::byte>(1 << random() % 8);
      }
    }
    try {
      for (const IValue& value : Crossing::readPayload(bytes)) touch(value);
      ++read;
    } catch (const ValueError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(read, 1000u);
}

}  // namespace
}  // namespace isopool::ipc
