// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/memory_object.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/system_call.h"
#include "testing/signal_storm.h"

namespace isopool::ipc {
namespace {

constexpr size_t kBytes = 4 * kPageBytes;

Mapping mapAll(const base::Fd& object, Access access) {
  return mapShared(object, 0, kBytes, access, Prefault::kNo);
}

void write(const Mapping& mapping, size_t offset, const std::string& text) {
  std::memcpy(mapping.data() + offset, text.c_str(), text.size() + 1);
}

std::string read(const Mapping& mapping, size_t offset = 0) {
  return reinterpret_cast<const char*>(mapping.data() + offset);
}

bool isMapped(const void* address) {
  return ::msync(const_cast<void*>(address), kPageBytes, MS_ASYNC) == 0 || errno != ENOMEM;
}

TEST(MemoryObject, IsZeroAndHasAllItsPages) {
  const base::Fd object = createMemoryObject("test", kBytes);
  const Mapping mapping = mapAll(object, Access::kReadOnly);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(mapping.data()[i], std::byte{0}) << i;
  // The first hole is at the end of the data: no page is a hole.
  EXPECT_EQ(::lseek(object.get(), 0, SEEK_HOLE), static_cast<off_t>(kBytes));
}

TEST(MemoryObject, OfImpossibleSizeThrowsTheCallAndTheReason) {
  try {
    // Larger than a file can be. The kernel would try to allocate a smaller size until memory is
    // used up.
    createMemoryObject("vast", size_t{1} << 63);
    FAIL() << "no error";
  } catch (const base::SystemCallError& error) {
    EXPECT_NE(std::string(error.what()).find("fallocate on vast failed"), std::string::npos)
        << error.what();
  }
}

TEST(MemoryObject, OfFixedSizeNeitherShrinksNorGrows) {
  const base::Fd object = createMemoryObject("test", kBytes);
  EXPECT_NE(::ftruncate(object.get(), kPageBytes), 0);
  EXPECT_NE(::ftruncate(object.get(), 2 * kBytes), 0);
  EXPECT_TRUE(memoryObjectHas(object, kBytes, Seal::kFixedSize));
}

TEST(MemoryObject, WithASingleWriterHasNoOtherWriter) {
  const base::Fd object = createMemoryObject("test", kBytes);
  const Mapping writer = mapAll(object, Access::kReadWrite);
  EXPECT_FALSE(memoryObjectHas(object, kBytes, Seal::kSingleWriter));
  sealMemoryObject(object, Seal::kSingleWriter);
  EXPECT_TRUE(memoryObjectHas(object, kBytes, Seal::kSingleWriter));

  const Mapping reader = mapAll(object, Access::kReadOnly);
  EXPECT_THROW(mapAll(object, Access::kReadWrite), base::SystemCallError);
  EXPECT_NE(::mprotect(reader.data(), kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(::pwrite(object.get(), "x", 1, 0), -1);
  EXPECT_NE(::fallocate(object.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPageBytes),
            0);
  write(writer, 0, "by the writer");
  EXPECT_EQ(read(reader), "by the writer");
}

TEST(MemoryObject, SealedReadOnlyCannotBeWritten) {
  const base::Fd object = createMemoryObject("test", kBytes);
  {
    const Mapping writer = mapAll(object, Access::kReadWrite);
    write(writer, 0, "final");
    EXPECT_THROW(sealMemoryObject(object, Seal::kReadOnly), base::SystemCallError)
        << "a writable mapping is left";
  }
  sealMemoryObject(object, Seal::kReadOnly);
  EXPECT_TRUE(memoryObjectHas(object, kBytes, Seal::kReadOnly));
  EXPECT_THROW(mapAll(object, Access::kReadWrite), base::SystemCallError);
  EXPECT_EQ(::pwrite(object.get(), "x", 1, 0), -1);
  EXPECT_EQ(read(mapAll(object, Access::kReadOnly)), "final");
}

TEST(MemoryObject, ThatIsFilledByWritesMayBeSealedAfterwards) {
  const base::Fd object = createGrowingMemoryObject("test");
  const std::string page(kPageBytes, 'p');
  for (size_t i = 0; i < kBytes / kPageBytes; ++i) {
    ASSERT_EQ(::write(object.get(), page.data(), page.size()), static_cast<ssize_t>(page.size()));
  }
  EXPECT_FALSE(memoryObjectHas(object, kBytes, Seal::kFixedSize));
  sealMemoryObject(object, Seal::kReadOnly);
  EXPECT_TRUE(memoryObjectHas(object, kBytes, Seal::kReadOnly));
}

TEST(MemoryObject, IsNotTakenForOneOfAnotherSizeOrKind) {
  const base::Fd object = createMemoryObject("test", kBytes);
  EXPECT_FALSE(memoryObjectHas(object, kBytes - kPageBytes, Seal::kFixedSize));
  EXPECT_FALSE(memoryObjectHas(object, kBytes + 1, Seal::kFixedSize));
  EXPECT_FALSE(memoryObjectHas(object, kBytes, Seal::kReadOnly));
  EXPECT_FALSE(memoryObjectHas(base::Fd(::open("/dev/null", O_RDONLY)), 0, Seal::kFixedSize));
  EXPECT_FALSE(memoryObjectHas(base::Fd(), 0, Seal::kFixedSize));
}

TEST(Mapping, IsUnmappedOnceByItsLastOwner) {
  const base::Fd object = createMemoryObject("test", kBytes);
  const std::byte* address = nullptr;
  {
    Mapping first = mapAll(object, Access::kReadWrite);
    address = first.data();
    Mapping second;
    second = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(second.contains(address + kBytes - 1));
    EXPECT_FALSE(second.contains(address + kBytes));
    EXPECT_TRUE(isMapped(address));
  }
  EXPECT_FALSE(isMapped(address));
}

TEST(Mapping, OfAnObjectOutlivesItsDescriptor) {
  base::Fd object = createMemoryObject("test", kBytes);
  const Mapping mapping = mapAll(object, Access::kReadWrite);
  object.close();
  write(mapping, 0, "still here");
  EXPECT_EQ(read(mapping), "still here");
}

TEST(Mapping, ThatIsPrivateKeepsItsWritesToItself) {
  const base::Fd object = createMemoryObject("test", kBytes);
  const Mapping shared = mapAll(object, Access::kReadWrite);
  write(shared, 0, "common");
  const Mapping own = mapPrivate(object, 0, kBytes);
  EXPECT_EQ(read(own), "common");
  write(own, 0, "mine");
  EXPECT_EQ(read(shared), "common");
  EXPECT_EQ(read(own), "mine");
}

TEST(Mapping, OfAReservationTakesObjectsAtAnyPage) {
  const base::Fd object = createMemoryObject("test", kBytes);
  const Mapping whole = mapAll(object, Access::kReadWrite);
  write(whole, kPageBytes, "second page");
  const Mapping reservation = reserveAddressSpace(kBytes);
  mapSharedAt(reservation.data() + 2 * kPageBytes, object, kPageBytes, kPageBytes,
              Access::kReadWrite, Prefault::kYes);
  EXPECT_EQ(read(reservation, 2 * kPageBytes), "second page");
}

TEST(PrivatisedPages, KeepAddressAndContentAndPartFromTheObject) {
  const base::Fd object = createMemoryObject("test", kBytes);
  const Mapping ours = mapAll(object, Access::kReadWrite);
  const Mapping theirs = mapAll(object, Access::kReadWrite);
  for (size_t page = 0; page < 4; ++page) {
    write(theirs, page * kPageBytes, "page " + std::to_string(page));
  }
  ASSERT_TRUE(privatisePages(ours.data() + kPageBytes, 2 * kPageBytes));
  for (size_t page = 0; page < 4; ++page) {
    EXPECT_EQ(read(ours, page * kPageBytes), "page " + std::to_string(page));
    write(theirs, page * kPageBytes, "changed");
  }
  EXPECT_EQ(read(ours, 0), "changed");
  EXPECT_EQ(read(ours, kPageBytes), "page 1");
  EXPECT_EQ(read(ours, 2 * kPageBytes), "page 2");
  EXPECT_EQ(read(ours, 3 * kPageBytes), "changed");
  write(ours, kPageBytes, "ours");
  EXPECT_EQ(read(theirs, kPageBytes), "changed");
}

TEST(MemoryObject, IsMadeWhileSignalsInterruptTheKernel) {
  const tests::SignalStorm storm;
  const size_t bytes = size_t{64} << 20;
  EXPECT_TRUE(memoryObjectHas(createMemoryObject("test", bytes), bytes, Seal::kFixedSize));
}

}  // namespace
}  // namespace isopool::ipc
