// ReadExtent compares every read with the first read. StoreExtent is tested by stager_test,
// scan_staging_test and staged_stream_test.
#include "server/stage/extent_loader.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage {
namespace {

using io::testing::Pattern;
using io::testing::Take;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReadExtentTest : public ::testing::Test {
 protected:
  ReadExtentTest() {
    EXPECT_TRUE(memory_.AddDirectory("/gfs").has_value());
    dataset_ = std::make_unique<Dataset>(RecordDataset(), memory_,
                                         Take(memory_.OpenDirectory("/gfs")));
  }

  // Reads the extent; the node's caches hold `cached`, the GFS itself `device`.
  Result<tier::ExtentChecksums> Read(const std::vector<std::byte>& cached,
                                     const std::vector<std::byte>& device) {
    past_caches_.clear();
    return ReadExtent(*dataset_, {.key = key_, .pieces = {}, .objects = "object 'a'"}, image_,
                      [&](std::span<std::byte> image, bool past_caches) -> Status {
                        past_caches_.push_back(past_caches);
                        std::ranges::copy(past_caches ? device : cached, image.begin());
                        return {};
                      });
  }

  const std::vector<std::byte> right_ = Pattern(100, 1), wrong_ = Pattern(100, 2);
  const tier::ExtentKey key_{.dataset = 1, .extent = ExtentId(5), .identity = 7};
  io::MemoryBackend memory_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::byte> image_ = std::vector<std::byte>(100);
  std::vector<bool> past_caches_;
};

TEST_F(ReadExtentTest, AReadLikeTheFirstIsTakenAtOnce) {
  ASSERT_TRUE(Read(right_, wrong_).has_value());
  ASSERT_TRUE(Read(right_, wrong_).has_value());
  EXPECT_THAT(past_caches_, ElementsAre(false));
  EXPECT_EQ(dataset_->first_reads().mismatches(), 0U);
}

TEST_F(ReadExtentTest, AMismatchIsReadOnceMorePastTheCaches) {
  ASSERT_TRUE(Read(right_, right_).has_value());
  ASSERT_TRUE(Read(wrong_, right_).has_value());
  EXPECT_THAT(past_caches_, ElementsAre(false, true));
  EXPECT_EQ(image_, right_);
}

TEST_F(ReadExtentTest, ASecondMismatchIsDataLossThatNamesObjectAndExtent) {
  ASSERT_TRUE(Read(right_, right_).has_value());
  const auto changed = Read(wrong_, wrong_);
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(changed.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(changed.error().message(),
              HasSubstr("object 'a', extent 5: changed since first read"));
  EXPECT_EQ(dataset_->first_reads().mismatches(), 2U);
}

TEST_F(ReadExtentTest, AnErrorOfTheReadIsReturnedAndNothingIsRecorded) {
  const auto failed =
      ReadExtent(*dataset_, {.key = key_, .pieces = {}, .objects = "object 'a'"}, image_,
                 [](std::span<std::byte>, bool) -> Status {
                   return Error(ErrorCode::kUnavailable, "no answer");
                 });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(Read(right_, right_).has_value()) << "this is the first read";
}

}  // namespace
}  // namespace forebay::stage
