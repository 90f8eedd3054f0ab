// RowCopier: whichever way it copies, every byte of a row arrives and none beside it is touched.
#include "server/stream/row_copy.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::stream::row_copy_test {

std::byte Value(std::size_t at) { return static_cast<std::byte>(at * 7 + at / 256 + 1); }

void ExpectCopies(const RowCopier& copier) {
  constexpr std::byte kUntouched{0xEE};
  std::vector<std::byte> from(9000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = Value(i);
  for (const std::size_t bytes : {0U, 1U, 63U, 1023U, 1024U, 1087U, 1088U, 4096U, 4099U, 8000U}) {
    // Every place within a cache line, for the row and for where it goes.
    for (const std::size_t offset : {0U, 1U, 16U, 31U, 63U}) {
      std::vector<std::byte> to(9000, kUntouched);
      copier.Copy(to.data() + 64 + offset, from.data() + 63 - offset, bytes);
      copier.Finish();
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool is_row = i >= 64 + offset && i < 64 + offset + bytes;
        ASSERT_EQ(to[i], is_row ? Value(i - 64 - offset + 63 - offset) : kUntouched)
            << bytes << " bytes at offset " << offset << ", byte " << i;
      }
    }
  }
}

TEST(RowCopyTest, PlainCopiesWhatItIsGiven) { ExpectCopies(RowCopier::Plain()); }

TEST(RowCopyTest, StreamingCopiesWhatItIsGiven) { ExpectCopies(RowCopier::Streaming()); }

}  // namespace forebay::stream::row_copy_test
