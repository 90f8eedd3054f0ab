// Tests where a region is mapped, and the error of a region that cannot be mapped.
#include "proto/contract/shared_mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/contract/unique_fd.h"

namespace forebay::shared_mapping_test {

UniqueFd MakeMemory(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("forebay-test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

TEST(SharedMapping, BeginsAtAMultipleOfAHugePage) {
  for (const std::uint64_t bytes : {kHugePageBytes, 3 * kHugePageBytes, std::uint64_t{4096}}) {
    const UniqueFd fd = MakeMemory(bytes);
    const auto mapped = MapShared(fd.get(), bytes, PROT_READ | PROT_WRITE);
    ASSERT_TRUE(mapped.has_value()) << mapped.error().ToString();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped->data()) % kHugePageBytes, 0U);
    EXPECT_EQ(mapped->size(), bytes);
    EXPECT_EQ(::munmap(mapped->data(), bytes), 0);
  }
}

TEST(SharedMapping, TwoMappingsShowTheSameBytes) {
  const UniqueFd fd = MakeMemory(kHugePageBytes);
  const auto writer = MapShared(fd.get(), kHugePageBytes, PROT_READ | PROT_WRITE);
  const auto reader = MapShared(fd.get(), kHugePageBytes, PROT_READ);
  ASSERT_TRUE(writer.has_value() && reader.has_value());
  std::memset(writer->data(), 0x5A, kHugePageBytes);
  EXPECT_EQ(std::memcmp(writer->data(), reader->data(), kHugePageBytes), 0);
  ::munmap(writer->data(), kHugePageBytes);
  ::munmap(reader->data(), kHugePageBytes);
}

TEST(SharedMapping, ARefusalHasTheErrno) {
  const UniqueFd fd = MakeMemory(kHugePageBytes);
  EXPECT_EQ(MapShared(fd.get(), ~std::uint64_t{0}, PROT_READ).error().system_errno(), ENOMEM);
  EXPECT_EQ(MapShared(-1, kHugePageBytes, PROT_READ).error().system_errno(), EBADF);
}

}  // namespace forebay::shared_mapping_test
