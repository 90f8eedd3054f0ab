// The checksums of first reads survive restarts and damage of their file. An extent that differs
// from its first read is read again once, and then refused.
#include "server/stage/gfs/first_reads.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::stage {
namespace {

using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = FirstReads::Outcome;

constexpr const char* kName = "data.catalog.reads";

class FirstReadsTest : public ::testing::Test {
 protected:
  FirstReadsTest() {
    EXPECT_TRUE(backend_.AddDirectory("/state").has_value());
    directory_ = Take(backend_.OpenDirectory("/state"));
  }
  void Open(FirstReads& reads, bool forget = false) {
    const Status opened = reads.Open(backend_, *directory_, kName, forget);
    ASSERT_TRUE(opened.has_value()) << opened.error().ToString();
  }
  static tier::ExtentKey Key(std::uint32_t extent) {
    return {.dataset = 7, .extent = ExtentId(extent), .identity = 100 + extent};
  }

  io::MemoryBackend backend_;
  std::unique_ptr<io::Directory> directory_;
};

TEST_F(FirstReadsTest, AreKeptForTheNextDaemon) {
  {
    FirstReads reads;
    Open(reads);
    EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kFirst);
    EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kSame);
    EXPECT_EQ(reads.Compare(Key(2), 22), Outcome::kFirst);
  }
  FirstReads reads;
  Open(reads);
  EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kSame);
  EXPECT_EQ(reads.Compare(Key(2), 23), Outcome::kChanged);
  EXPECT_EQ(reads.mismatches(), 1U);
  // Another identity is another object.
  tier::ExtentKey replaced = Key(2);
  ++replaced.identity;
  EXPECT_EQ(reads.Compare(replaced, 23), Outcome::kFirst);
}

TEST_F(FirstReadsTest, ThoseOfAnotherNodeAreKeptBesideThemAndNeverReplaceOne) {
  using Reads = std::vector<FirstRead>;
  {
    FirstReads reads;
    Open(reads);
    EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kFirst);
    const Reads given = {{Key(1), 12}, {Key(2), 22}, {Key(1), 11}, {Key(3), 33}, {Key(3), 34}};
    EXPECT_THAT(reads.KeepOfOther(given), ElementsAre(0, 4));
    EXPECT_EQ(reads.mismatches(), 2U);
    EXPECT_EQ(reads.Compare(Key(2), 22), Outcome::kSame);
  }
  FirstReads reads;
  Open(reads);
  EXPECT_EQ(reads.count(), 3U);
  EXPECT_EQ(reads.Find(Key(1)), 11U);
  EXPECT_FALSE(reads.IsOfOther(Key(1)));
  EXPECT_TRUE(reads.IsOfOther(Key(2)));
  EXPECT_EQ(reads.Compare(Key(2), 23), Outcome::kChanged);
  EXPECT_EQ(reads.Find(Key(3)), 33U);
  EXPECT_EQ(reads.Find(Key(4)), std::nullopt);
}

TEST_F(FirstReadsTest, ThoseThatComeBeforeTheFileIsOpenedAreComparedAndNotSaved) {
  FirstReads reads;
  EXPECT_THAT(reads.KeepOfOther(std::vector<FirstRead>{{Key(1), 11}}), IsEmpty());
  EXPECT_FALSE(reads.was_opened());
  Open(reads);
  EXPECT_TRUE(reads.was_opened());
  EXPECT_EQ(reads.Compare(Key(1), 12), Outcome::kChanged);
}

// A file that is longer than one read may be (limits::kIoRequestBytesMax): it is loaded up to its
// damage, and goes on from there.
TEST_F(FirstReadsTest, AFileThatIsLongerThanOneReadIsLoaded) {
  {
    FirstReads reads;
    Open(reads);
    EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kFirst);
  }
  const std::string path = std::string("/state/") + kName;
  std::vector<std::byte> bytes = Take(backend_.FileBytes(path));
  bytes.resize(limits::kIoRequestBytesMax + 4096);
  ASSERT_TRUE(backend_.AddFile(path, bytes).has_value());
  {
    FirstReads reads;
    Open(reads);
    EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kSame);
    EXPECT_EQ(reads.Compare(Key(2), 22), Outcome::kFirst);
  }
  FirstReads reads;
  Open(reads);
  EXPECT_EQ(reads.Compare(Key(2), 22), Outcome::kSame);
}

// The file cannot get a header: nothing may be written where the next daemon does not look.
TEST_F(FirstReadsTest, AFileThatCannotBeBegunGetsNoRecords) {
  FirstReads reads;
  backend_.SetCapacity(0);
  EXPECT_EQ(CodeOf(reads.Open(backend_, *directory_, kName, /*forget=*/false)),
            ErrorCode::kResourceExhausted);
  backend_.SetCapacity(1 << 20);
  EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kFirst);
  FirstReads next;
  Open(next);
  EXPECT_EQ(next.Compare(Key(1), 12), Outcome::kFirst) << "it was not saved";
  EXPECT_EQ(next.Compare(Key(2), 22), Outcome::kFirst);
  FirstReads last;
  Open(last);
  EXPECT_EQ(last.Compare(Key(2), 22), Outcome::kSame);
}

TEST_F(FirstReadsTest, ARebuildForgetsThem) {
  {
    FirstReads reads;
    Open(reads);
    EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kFirst);
    Open(reads, /*forget=*/true);
    EXPECT_EQ(reads.Compare(Key(1), 12), Outcome::kFirst);
  }
  FirstReads reads;
  Open(reads);
  EXPECT_EQ(reads.Compare(Key(1), 12), Outcome::kSame);
}

TEST_F(FirstReadsTest, AFileThatCannotBeForgottenGetsNoMoreRecords) {
  io::FaultInjector faults;
  io::FaultyBackend faulty(backend_, faults);
  const std::unique_ptr<io::Directory> directory = Take(faulty.OpenDirectory("/state"));
  FirstReads reads;
  ASSERT_TRUE(reads.Open(faulty, *directory, kName, /*forget=*/false).has_value());
  EXPECT_EQ(reads.Compare(Key(1), 11), Outcome::kFirst);
  const std::vector<std::byte> before = Take(backend_.FileBytes(std::string("/state/") + kName));
  io::Fault fault;
  fault.call = io::IoCall::kRemove;
  faults.Arm(fault);
  EXPECT_EQ(CodeOf(reads.Open(faulty, *directory, kName, /*forget=*/true)), ErrorCode::kDataLoss);
  EXPECT_EQ(faults.faults_injected(), 1U);
  EXPECT_EQ(reads.Compare(Key(1), 12), Outcome::kFirst) << "compared in memory only";
  EXPECT_EQ(reads.Compare(Key(1), 12), Outcome::kSame);
  EXPECT_EQ(Take(backend_.FileBytes(std::string("/state/") + kName)), before);
}

TEST_F(FirstReadsTest, EveryFlippedBitAndEveryCutCostsRecordsFromThereOnAndNothingElse) {
  {
    FirstReads reads;
    Open(reads);
    for (std::uint32_t i = 0; i < 3; ++i) ASSERT_EQ(reads.Compare(Key(i), i), Outcome::kFirst);
  }
  const std::vector<std::byte> whole = Take(backend_.FileBytes(std::string("/state/") + kName));
  ASSERT_EQ(whole.size(), 16U + 3 * 40);
  const auto check = [&](const std::vector<std::byte>& bytes, std::size_t good_records) {
    ASSERT_TRUE(backend_.AddFile(std::string("/state/") + kName, bytes).has_value());
    {
      FirstReads reads;
      Open(reads);
      for (std::uint32_t i = 0; i < 3; ++i) {
        ASSERT_EQ(reads.Compare(Key(i), i), i < good_records ? Outcome::kSame : Outcome::kFirst);
      }
    }
    // Records that were appended after the truncation are found again.
    FirstReads reads;
    Open(reads);
    for (std::uint32_t i = 0; i < 3; ++i) ASSERT_EQ(reads.Compare(Key(i), i), Outcome::kSame);
  };
  for (std::size_t bit = 0; bit < whole.size() * 8; bit += 5) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    check(bytes, bit / 8 < 16 ? 0 : (bit / 8 - 16) / 40);
  }
  for (std::size_t length = 0; length < whole.size(); length += 3) {
    check({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)},
          length < 16 ? 0 : (length - 16) / 40);
  }
}

}  // namespace
}  // namespace forebay::stage
