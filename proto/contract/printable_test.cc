// Printable text: control characters are written as \xNN, other text stays; cut UTF-8 is counted.
#include "proto/contract/printable.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace forebay {
namespace {

TEST(PrintableTest, TextPasses) {
  const std::string text = "a b-c \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xC3\x9B";
  EXPECT_EQ(PrintableText(text), text);
  EXPECT_EQ(PrintableLine(text), text);
  EXPECT_EQ(PrintableText("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(PrintableLine("caf\xE9.jpg"), "caf\xE9.jpg") << "a name in Latin-1";
  EXPECT_EQ(PrintableLine(""), "");
}

TEST(PrintableTest, ControlsAreShown) {
  EXPECT_EQ(PrintableText("\x1b[2J\r\x07\x7f"), "\\x1b[2J\\x0d\\x07\\x7f");
  EXPECT_EQ(PrintableText("\xC2\x9B[2J"), "\\xc2\\x9b[2J") << "ESC [ as one character";
  EXPECT_EQ(PrintableText("\x9B[2J"), "\\x9b[2J") << "and as one byte";
  EXPECT_EQ(PrintableText("\xE9\x9B[2J"), "\xE9\\x9b[2J") << "a character that is cut off";
  EXPECT_EQ(PrintableText(std::string("a\0b", 3)), "a\\x00b");
}

TEST(PrintableTest, ALineStaysOne) {
  EXPECT_EQ(PrintableLine("a\nb\tc\r\n"), "a\\x0ab\\x09c\\x0d\\x0a");
  EXPECT_EQ(PrintableLine("\xE2\x80\xA8"), "\\xe2\\x80\\xa8") << "U+2028 ends lines, too";
  EXPECT_EQ(PrintableLine("gpj.\xE2\x80\xAE" "exe"), "gpj.\\xe2\\x80\\xae" "exe") << "U+202E";
}

TEST(PrintableTest, WhatIsNoCharacterIsTakenByteByByte) {
  EXPECT_EQ(PrintableLine("\xC0\x8A"), "\xC0\\x8a") << "an overlong line end";
  EXPECT_EQ(PrintableLine("\xE0\x80\x8A"), "\xE0\\x80\\x8a");
  EXPECT_EQ(PrintableLine("\xED\xA0\x80"), "\xED\xA0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(PrintableLine("\xF4\x90\x80\x80"), "\xF4\\x90\\x80\\x80") << "beyond Unicode";
}

TEST(PrintableTest, NoControlByteIsLeftOfAnyBytes) {
  constexpr std::uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += static_cast<char>(random() & 0xFFU);
    const std::string line = PrintableLine(text);
    for (const char c : line) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_FALSE(byte < 0x20 || byte == 0x7F) << "seed " << kSeed << ", round " << round;
    }
    EXPECT_EQ(PrintableLine(line), line) << "seed " << kSeed << ", round " << round;
  }
}

TEST(QuotedTest, ANameCannotEndItsQuotesOrItsLine) {
  EXPECT_EQ(Quoted("a/b"), "'a/b'");
  EXPECT_EQ(Quoted(std::string("\x1b[\0", 3)), "'\\x1b[\\x00'");
  EXPECT_EQ(Quoted("a' is fine\n'"), "'a\\x27 is fine\\x0a\\x27'");
  EXPECT_EQ(Quoted("\\x0a"), "'\\x5cx0a'") << "is told apart from a line end";
  EXPECT_EQ(Quoted("gpj.\xE2\x80\xAE" "exe"), "'gpj.\\xe2\\x80\\xae" "exe'") << "U+202E";
}

TEST(QuotedTest, CutsALongNameBetweenCharacters) {
  EXPECT_EQ(Quoted(std::string(200, 'x')), "'" + std::string(200, 'x') + "'");
  EXPECT_EQ(Quoted(std::string(1'000, 'x')), "'" + std::string(200, 'x') + "...'");
  EXPECT_EQ(Quoted(std::string(199, 'x') + "\xC3\xA4"), "'" + std::string(199, 'x') + "...'");
}

TEST(PrintableTest, TellsWhatIsUnfinished) {
  EXPECT_EQ(UnfinishedBytes(""), 0U);
  EXPECT_EQ(UnfinishedBytes("abc"), 0U);
  EXPECT_EQ(UnfinishedBytes("ab\xC2"), 1U);
  EXPECT_EQ(UnfinishedBytes("ab\xE2\x82"), 2U);
  EXPECT_EQ(UnfinishedBytes("ab\xF0\x9F\x98"), 3U);
  EXPECT_EQ(UnfinishedBytes("ab\xF0\x9F\x98\x80"), 0U);
  EXPECT_EQ(UnfinishedBytes("\x82\x82\x82\x82"), 0U) << "no character begins there";
}

}  // namespace
}  // namespace forebay
