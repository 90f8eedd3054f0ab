#include "compress/format/pack/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace forebay::compress {
namespace {

std::string HexOf(std::string_view text) {
  return Sha256Hex(Sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

// Vectors of FIPS 180-4 and of NIST's example values.
TEST(Sha256, GivesTheStandardsDigests) {
  EXPECT_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexOf(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Around the length at which the padding takes a block of its own: digests of n times 'a', chained
// into one, as `for n ...; sha256sum` gives them.
TEST(Sha256, PadsEveryLengthOfALastBlock) {
  std::string all;
  for (std::size_t n = 54; n <= 66; ++n) all += HexOf(std::string(n, 'a'));
  EXPECT_EQ(HexOf(all), "9cefc3138feb6a417648d73345d7b9e5aee9663eb5b2e4d9cb611c97e67d1359");
  EXPECT_EQ(HexOf(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(HexOf(std::string(56, 'a')),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
}

}  // namespace
}  // namespace forebay::compress
