// Tests who gets room, in which order, and what is forgotten at the end.
#include "server/fetch/decode_room.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::fetch {
namespace {

class DecodeRoomTest : public ::testing::Test {
 protected:
  // Request `number` keeps its share in shares_[number].
  void Take(std::size_t number, std::uint64_t bytes) {
    shares_.resize(std::max(shares_.size(), number + 1));
    room_->Take(bytes, [this, number](DecodeRoom::Share share) {
      shares_[number] = std::move(share);
      order_.push_back(number);
    });
  }

  std::shared_ptr<DecodeRoom> room_ = std::make_shared<DecodeRoom>(100);
  std::vector<DecodeRoom::Share> shares_;
  std::vector<std::size_t> order_;
};

TEST_F(DecodeRoomTest, WhoFindsNoRoomWaitsUntilSomeIsGivenBack) {
  Take(0, 60);
  Take(1, 40);
  Take(2, 1);
  EXPECT_EQ(order_, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(room_->used_bytes(), 100U);
  shares_[1].reset();
  EXPECT_EQ(order_, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(room_->used_bytes(), 61U);
}

TEST_F(DecodeRoomTest, ALargeRequestIsNotPassedBySmallOnes) {
  Take(0, 60);
  Take(1, 80);
  Take(2, 1);
  EXPECT_EQ(order_, (std::vector<std::size_t>{0}));
  shares_[0].reset();
  EXPECT_EQ(order_, (std::vector<std::size_t>{0, 1, 2}));
}

TEST_F(DecodeRoomTest, MoreThanAllIsGivenAlone) {
  Take(0, 1);
  Take(1, ~std::uint64_t{0});
  Take(2, 1);
  EXPECT_EQ(order_, (std::vector<std::size_t>{0}));
  shares_[0].reset();
  EXPECT_EQ(order_, (std::vector<std::size_t>{0, 1}));
  shares_[1].reset();
  EXPECT_EQ(order_, (std::vector<std::size_t>{0, 1, 2}));
}

TEST_F(DecodeRoomTest, AfterCloseNobodyIsCalledAndSharesMayStillEnd) {
  Take(0, 100);
  Take(1, 1);
  room_->Close();
  Take(2, 1);
  room_.reset();
  shares_[0].reset();
  EXPECT_EQ(order_, (std::vector<std::size_t>{0}));
}

TEST_F(DecodeRoomTest, AShareMayEndWithinTheCallThatBringsIt) {
  Take(0, 100);
  int calls = 0;
  for (int i = 0; i < 3; ++i) room_->Take(100, [&calls](const DecodeRoom::Share&) { ++calls; });
  EXPECT_EQ(calls, 0);
  shares_[0].reset();
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(room_->used_bytes(), 0U);
}

}  // namespace
}  // namespace forebay::fetch
