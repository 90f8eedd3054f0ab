// Text of others reaches a terminal without control characters.
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "client/cli/printable_stream.h"

namespace forebay::cli {
namespace {

TEST(PrintableStreamTest, ShowsControlsHoweverTheyArrive) {
  std::ostringstream shown;
  PrintableStream out(shown);
  out << "x" << std::string("\xC2") << std::string("\x9B") << '\x1b' << 7 << "\xC2" << "\xA9\n";
  out << EraseLine << std::flush;
  EXPECT_EQ(shown.str(), "x\\xc2\\x9b\\x1b7\xC2\xA9\n\r\x1b[K");
}

TEST(PrintableStreamTest, WaitsForTheRestOfACharacterUntilItIsFlushedOrEnds) {
  std::ostringstream shown;
  {
    PrintableStream out(shown);
    out << "\xE2" << "\x82";
    EXPECT_EQ(shown.str(), "");
    out << "\xAC" << '\xE2' << std::flush << '\x80' << '\xE2' << '\x82';
  }
  EXPECT_EQ(shown.str(), "\xE2\x82\xAC\xE2\\x80\xE2\\x82");
}

}  // namespace
}  // namespace forebay::cli
