// Files of lines after a kill and on a full disk: a limit on the size of files makes write fail in
// the middle of a line.
#include "trainer/core/metrics/line_file.h"

#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;

class LineFileTest : public ::testing::Test {
 protected:
  std::string path() const { return temp_.path() / "lines"; }
  std::string Contents() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Put(const std::string& text) { std::ofstream(path(), std::ios::binary) << text; }
  LineFile Open(bool append) {
    auto file = LineFile::Open(path(), append);
    EXPECT_TRUE(file.has_value()) << file.error().ToString();
    return *std::move(file);
  }

  testing::TempFolder temp_;
};

TEST_F(LineFileTest, LinesAreThereWhenFlushedAndAtTheEnd) {
  {
    LineFile file = Open(false);
    file.Add("one\n");
    file.Add("two\n");
    EXPECT_EQ(Contents(), "");
    ASSERT_TRUE(file.Flush().has_value());
    EXPECT_EQ(Contents(), "one\ntwo\n");
    file.Add("three\n");
  }
  EXPECT_EQ(Contents(), "one\ntwo\nthree\n");
  Open(true).Add("four\n");
  EXPECT_EQ(Contents(), "one\ntwo\nthree\nfour\n");
  Open(false).Add("new\n");
  EXPECT_EQ(Contents(), "new\n");
}

TEST_F(LineFileTest, ALineThatAKilledRunLeftTornIsCutOff) {
  for (const std::string& torn : {std::string("half"), std::string(200'000, 'x')}) {
    Put("whole\n" + torn);
    Open(true).Add("next\n");
    EXPECT_EQ(Contents(), "whole\nnext\n");
    Put(torn);
    Open(true).Add("next\n");
    EXPECT_EQ(Contents(), "next\n");
  }
}

// A limit on the size of files stands for a full disk: part of a write succeeds.
TEST_F(LineFileTest, WhatDoesNotFitIsLostAndWhatFollowsIsWholeAgain) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 10;
  LineFile file = Open(false);
  file.Add("12345\n");
  ASSERT_TRUE(file.Flush().has_value());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  file.Add("67890\n");
  const Status full = file.Flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(full.has_value());
  EXPECT_THAT(full.error().message(), HasSubstr(path()));
  EXPECT_EQ(Contents(), "12345\n");
  file.Add("abc\n");
  ASSERT_TRUE(file.Flush().has_value());
  EXPECT_EQ(Contents(), "12345\nabc\n");
}

TEST_F(LineFileTest, PlacesThatAreNoFilesAreErrorsAndDevicesAreWrittenTo) {
  EXPECT_FALSE(LineFile::Open("/nonexistent/lines", false).has_value());
  EXPECT_FALSE(LineFile::Open(temp_.path(), false).has_value());
  auto null = LineFile::Open("/dev/null", true);
  ASSERT_TRUE(null.has_value()) << null.error().ToString();
  null->Add("gone\n");
  EXPECT_TRUE(null->Flush().has_value());
  LineFile none;
  none.Add("nowhere\n");
  EXPECT_TRUE(none.Flush().has_value());
}

}  // namespace
}  // namespace forebay::train
