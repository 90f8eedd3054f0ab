// A rebuild and the readers of the data set that it replaces: what is published, what becomes a
// first read, and which version is outdated.
#include "server/stage/dataset_version.h"

#include <atomic>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"

namespace forebay::stage::dataset_version_test {

using io::testing::CodeOf;
using Publishing = DatasetVersion::Publishing;
using ::testing::HasSubstr;

class DatasetVersionTest : public ::testing::Test {
 protected:
  const std::string name_ = "rows";
  const tier::ExtentKey key_{.dataset = 1, .extent = ExtentId(0), .identity = 7};
  FirstReads old_reads_, next_reads_, last_reads_;
  DatasetVersion old_{name_, old_reads_}, next_{name_, next_reads_}, last_{name_, last_reads_};
};

TEST_F(DatasetVersionTest, AVersionThatNoRebuildReplacedPublishesWhatItReads) {
  EXPECT_EQ(old_.successors(), 0U);
  EXPECT_EQ(old_.rebuilds(), 0U);
  FOREBAY_EXPECT_OK(old_.ShareRead(key_, 1, 0));
  EXPECT_TRUE(Publishing(old_, 0).may_publish());
  EXPECT_FALSE(old_.is_replaced());
  EXPECT_FALSE(old_.is_outdated());
}

TEST_F(DatasetVersionTest, AReplacedVersionContinues) {
  next_.Succeed(old_);
  old_.MarkReplaced();
  EXPECT_TRUE(old_.is_replaced());
  EXPECT_FALSE(old_.is_outdated()) << "its readers continue";
  FOREBAY_EXPECT_OK(old_.ShareRead(key_, 1, 1));
  EXPECT_TRUE(Publishing(old_, 1).may_publish());
  EXPECT_FALSE(next_.is_replaced());
}

TEST_F(DatasetVersionTest, EveryOlderVersionCountsItsSuccessors) {
  next_.Succeed(old_);
  last_.Succeed(next_);
  EXPECT_EQ(old_.successors(), 2U);
  EXPECT_EQ(next_.successors(), 1U);
  EXPECT_EQ(last_.successors(), 0U);
}

// The bytes may be those that the rebuild is to replace.
TEST_F(DatasetVersionTest, WhatWasReadBeforeARebuildIsNoFirstReadAfterIt) {
  FOREBAY_EXPECT_OK(old_.ShareRead(key_, 1, old_.successors()));
  next_.Succeed(old_);
  EXPECT_EQ(CodeOf(old_.ShareRead(key_, 1, 0)), ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(next_reads_.Find(key_).has_value());
  EXPECT_FALSE(Publishing(old_, 0).may_publish());
  EXPECT_FALSE(old_.is_outdated()) << "its readers continue";
  ASSERT_EQ(old_.successors(), 1U);
  FOREBAY_EXPECT_OK(old_.ShareRead(key_, 1, 1));
  EXPECT_EQ(next_reads_.Find(key_), 1U);
  EXPECT_TRUE(Publishing(old_, 1).may_publish());
  // The next rebuild does not take what was read after the first one, either.
  last_.Succeed(next_);
  EXPECT_EQ(CodeOf(old_.ShareRead(key_, 1, 1)), ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(Publishing(old_, 1).may_publish());
  EXPECT_FALSE(last_reads_.Find(key_).has_value());
  FOREBAY_EXPECT_OK(old_.ShareRead(key_, 1, 2));
  EXPECT_EQ(last_reads_.Find(key_), 1U);
}

TEST_F(DatasetVersionTest, WhatIsBeingPublishedIsThereBeforeItIsReplaced) {
  std::atomic<bool> is_published = false;
  std::thread replacing;
  {
    const Publishing first(old_, 0), second(old_, 0);
    EXPECT_TRUE(first.may_publish() && second.may_publish());
    replacing = std::thread([&] {
      next_.Succeed(old_);
      EXPECT_TRUE(is_published);
    });
    while (old_.successors() == 0) std::this_thread::yield();
    EXPECT_FALSE(Publishing(old_, 0).may_publish());
    is_published = true;
  }
  replacing.join();
}

// Its copies would be left on the tiers, under the keys of the version that is served then.
TEST_F(DatasetVersionTest, ARebuildWaitsForTheVersionsBeforeTheOneThatItReplaces) {
  next_.Succeed(old_);
  std::atomic<bool> is_published = false;
  std::thread replacing;
  {
    const Publishing publishing(old_, 1);
    EXPECT_TRUE(publishing.may_publish());
    replacing = std::thread([&] {
      last_.Succeed(next_);
      EXPECT_TRUE(is_published);
    });
    while (old_.successors() == 1) std::this_thread::yield();
    is_published = true;
  }
  replacing.join();
}

TEST_F(DatasetVersionTest, WhatIsBeingPublishedIsThereBeforeItIsOutdated) {
  std::atomic<bool> is_published = false;
  std::thread marker;
  {
    const Publishing first(old_, 0), second(old_, 0);
    EXPECT_TRUE(first.may_publish() && second.may_publish());
    marker = std::thread([&] {
      old_.MarkOutdated();
      EXPECT_TRUE(is_published);
    });
    while (!old_.is_outdated()) std::this_thread::yield();
    EXPECT_FALSE(Publishing(old_, 0).may_publish());
    is_published = true;
  }
  marker.join();
  EXPECT_FALSE(Publishing(old_, 0).may_publish());
}

// --- every error branch -------------------------------------------------------------------

// A node that was not rebuilt may have sent the bytes. They must not become a first read of the
// version that has replaced this one.
TEST_F(DatasetVersionTest, AnOutdatedOneGivesItsSuccessorNoFirstReads) {
  old_.MarkOutdated();
  next_.Succeed(old_);
  const Status shared = old_.ShareRead(key_, 1, /*successors=*/1);
  ASSERT_FALSE(shared.has_value());
  EXPECT_EQ(shared.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(next_reads_.Find(key_).has_value());
  FOREBAY_EXPECT_OK(next_.ShareRead(key_, 2, /*successors=*/0));
}

// The tiers will have bytes under its keys that it has never read.
TEST_F(DatasetVersionTest, OlderVersionsThatHaveReadOtherBytesBecomeOutdated) {
  ASSERT_EQ(old_reads_.Compare(key_, 1), FirstReads::Outcome::kFirst);
  ASSERT_EQ(next_reads_.Compare(key_, 2), FirstReads::Outcome::kFirst);
  next_.Succeed(old_);
  last_.Succeed(next_);
  FOREBAY_EXPECT_OK(last_.ShareRead(key_, 2, 0));
  EXPECT_TRUE(old_.is_outdated());
  EXPECT_FALSE(next_.is_outdated()) << "it has read the same bytes";
  EXPECT_FALSE(Publishing(old_, 2).may_publish());
  EXPECT_TRUE(Publishing(next_, 1).may_publish());
  EXPECT_TRUE(Publishing(last_, 0).may_publish());
}

TEST_F(DatasetVersionTest, AVersionThatReadsOtherBytesThanItsSuccessorIsOutdated) {
  next_.Succeed(old_);
  ASSERT_EQ(next_reads_.Compare(key_, 2), FirstReads::Outcome::kFirst);
  EXPECT_EQ(CodeOf(old_.ShareRead(key_, 1, 1)), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(old_.is_outdated());
  EXPECT_FALSE(next_.is_outdated());
  EXPECT_EQ(next_reads_.Find(key_), 2U);
  EXPECT_EQ(next_reads_.mismatches(), 0U) << "it has read its objects correctly";
}

TEST_F(DatasetVersionTest, TheErrorNamesTheDataSetAndTheRemedy) {
  const Error outdated = old_.Outdated();
  EXPECT_EQ(outdated.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(outdated.message(), HasSubstr("'rows'"));
  EXPECT_THAT(outdated.message(), HasSubstr("open the stream again"));
}

}  // namespace forebay::stage::dataset_version_test
