// SPDX-License-Identifier: BSD-3-Clause
// Payloads that PayloadWriter does not produce: each is read or refused, without other effects.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/ipc/seed.h"
#include "tests/ipc/tensor/crossing.h"

namespace isopool::ipc {
namespace {

using at::IValue;

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

/// The layout of the head, copied from the source, as an attacker would.
struct LyingHead {
  uint32_t storage = 0;
  uint8_t scalarType = static_cast<uint8_t>(at::kFloat);
  uint8_t flags = 0;
  uint8_t rank = 0;
  uint8_t unused = 0;
  int64_t storageOffset = 0;
  uint32_t version = 0;
  uint32_t unusedToo = 0;
};

/// Reads a tensor with this head, sizes and strides, over one storage of 64 bytes; returns
/// the refusal.
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
    // If the reader accepts the tensor, it must be readable.
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
      << "one repeated element lies within";
}

TEST(HostileTensor, WhoseProductsOverflowIsRefused) {
  const std::string beyond = "a tensor reaches beyond its storage";
  constexpr int64_t kHalf = int64_t{1} << 32;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(refusalOfTensor({}, {kHalf, kHalf}, {0, 0}), beyond) << "2^64 elements overflow to 0";
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
    EXPECT_EQ(refusalOfTensor(head, {1}, {1}), "a tensor names a missing storage");
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

// Otherwise a short payload could ask for a list of any length.
TEST(HostileTensor, OfAVersionOfATooHighNumberIsRefused) {
  LyingHead head;
  EXPECT_EQ(refusalOfTensor(head, {2}, {1}), "it was not refused");
  head.version = std::numeric_limits<uint32_t>::max();
  EXPECT_EQ(refusalOfTensor(head, {2}, {1}), "it was not refused") << "it stands for none";
  for (const uint32_t number : {100u, 1u << 20, head.version - 1}) {
    head.version = number;
    EXPECT_EQ(refusalOfTensor(head, {2}, {1}), "a tensor has a version of too high a number");
  }
}

TEST(HostilePayload, WithAnInvalidReportIsRefused) {
  const std::vector<Pack> reports = {
      [](auto& packer) { packer.pack_array(0); },
      [](auto& packer) { packer.pack_array(2).pack_array(0).pack_array(0); },
      [](auto& packer) { packer.pack_array(3).pack(1).pack_array(0).pack_array(0); },
      [](auto& packer) {
        packer.pack_array(3).pack_array(1).pack_array(2).pack(1).pack(1);
        packer.pack_array(0).pack_array(0);
      },
      [](auto& packer) {
        packer.pack_array(3).pack_array(1).pack_array(3).pack(1).pack(uint64_t{1} << 32).pack(1);
        packer.pack_array(0).pack_array(0);
      },
      [](auto& packer) { packer.pack_array(3).pack_array(0).pack_array(1).pack(-1).pack_array(0); },
      [](auto& packer) { packer.pack_array(3).pack_array(0).pack_array(0).pack_array(1).pack(1); },
  };
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto bytes = packed([&](auto& packer) {
      packer.pack_array(3).pack_array(0).pack_array(0);
      reports[i](packer);
    });
    const PayloadReader reader(bytes);
    EXPECT_THROW(reader.inputReport(), ValueError) << "report " << i;
  }
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

TEST(HostilePayload, WithAnInvalidStorageIsRefused) {
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

TEST(HostilePayload, WithAnInvalidValueIsRefused) {
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

/// Numbers that c10's table puts into its first slot at any table size: the table multiplies them
/// by kMultiplier and takes the highest bits.
int64_t crowdedKey(uint64_t index) {
  constexpr uint64_t kMultiplier = 11400714819323198485u;
  uint64_t inverse = kMultiplier;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
  return static_cast<int64_t>(index * inverse);
}

template <typename PackKey>
std::vector<std::byte> dictOf(size_t entries, PackKey&& packKey) {
  PayloadWriter writer;
  auto& packer = writer.packer();
  packer.pack_array(1);
  packer.pack_array(static_cast<uint32_t>(3 + 2 * entries)).pack(2).pack(0).pack(0);
  for (size_t i = 0; i < entries; ++i) {
    packKey(packer, i);
    packer.pack_nil();
  }
  const auto bytes = writer.finish({});
  return {bytes.begin(), bytes.end()};
}

TEST(HostilePayload, OfDictKeysWithNearlyEqualHashesIsRefusedWithoutTheMemoryForThem) {
  const auto bytes = dictOf(20, [](auto& packer, size_t i) { packer.pack(crowdedKey(i)); });
  const std::string refusal = refusalOf([&] { Crossing::readPayload(bytes); });
  EXPECT_NE(refusal.find("nearly equal hashes"), std::string::npos) << refusal;
}

TEST(HostilePayload, OfDictKeysThatAreNanIsRefused) {
  const auto doubles = dictOf(20, [](PayloadWriter::Packer& packer, size_t) {
    packer.pack(std::numeric_limits<double>::quiet_NaN());
  });
  const auto complexes = dictOf(20, [](PayloadWriter::Packer& packer, size_t) {
    const std::array<double, 2> parts{0, std::numeric_limits<double>::quiet_NaN()};
    packer.pack_ext(sizeof parts, kComplexExtension);
    packer.pack_ext_body(reinterpret_cast<const char*>(parts.data()), sizeof parts);
  });
  for (const auto& bytes : {doubles, complexes}) {
    const std::string refusal = refusalOf([&] { Crossing::readPayload(bytes); });
    EXPECT_NE(refusal.find("NaN key"), std::string::npos) << refusal;
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
    // Nested as deeply as allowed; each level claims the largest length.
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
