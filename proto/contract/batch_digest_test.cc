// BatchDigest: fixed values, and that every part of a batch's name and the order of samples count.
#include "proto/contract/batch_digest.h"

#include <array>

#include <gtest/gtest.h>

namespace forebay {
namespace {

const std::array<std::uint64_t, 3> kIds = {7, 1, 0xFFFF'FFFF'FFULL};

std::uint64_t DigestOf(const BatchIdentity& identity) {
  return BatchDigest(identity, std::as_bytes(std::span(kIds)));
}

TEST(BatchDigest, IsTheSameEverywhere) {
  EXPECT_EQ(DigestOf({EpochId(1), StepId(2), 3, 4, 5}), 0xB080'6F27'DD65'A56DULL);
  EXPECT_EQ(BatchDigest({}, {}), 0x9A15'ACB2'1C86'375CULL);
}

TEST(BatchDigest, DependsOnEveryPartOfTheName) {
  const BatchIdentity base = {EpochId(1), StepId(2), 3, 4, 5};
  BatchIdentity other = base;
  other.epoch = EpochId(2);
  EXPECT_NE(DigestOf(base), DigestOf(other));
  other = base;
  other.step = StepId(1);
  EXPECT_NE(DigestOf(base), DigestOf(other));
  other = base;
  other.micro_size = 4;
  EXPECT_NE(DigestOf(base), DigestOf(other));
  other = base;
  other.micro_index = 3;
  EXPECT_NE(DigestOf(base), DigestOf(other));
  other = base;
  other.rank = 4;
  EXPECT_NE(DigestOf(base), DigestOf(other));
}

TEST(BatchDigest, DependsOnTheOrderOfTheSamples) {
  const std::array<std::uint64_t, 3> swapped = {1, 7, 0xFFFF'FFFF'FFULL};
  EXPECT_NE(DigestOf({}), BatchDigest({}, std::as_bytes(std::span(swapped))));
}

}  // namespace
}  // namespace forebay
