// Rounds and pieces, with codecs that are made for the test.
#include "bench/codec/codec_rounds.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "bench/codec/piecewise_peer.h"

namespace forebay::bench {
namespace {

CodecArray Ramp(std::uint32_t frames, std::uint32_t rows, std::uint32_t columns) {
  CodecArray array;
  array.info = {.name = "ramp", .dtype = "u8", .item_bytes = 1, .shape = {frames, rows, columns},
                .fill = {}, .sequence = {}};
  array.bytes.resize(array.info.bytes());
  for (std::size_t i = 0; i < array.bytes.size(); ++i) array.bytes[i] = std::byte(i * 7 + i / 251);
  return array;
}

// Stores what it gets. `damage` flips a bit of every decoded piece; `count` counts decodes.
class StoreCodec : public PieceCodec {
 public:
  StoreCodec(bool damage, std::atomic<int>* count) : damage_(damage), count_(count) {}
  Result<std::vector<std::byte>> Encode(const PieceShape& /*shape*/,
                                        std::span<const std::byte> raw) override {
    return std::vector<std::byte>(raw.begin(), raw.end());
  }
  Status Decode(const PieceShape& shape, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    if (shape.bytes != out.size()) return Error(ErrorCode::kInternal, "shape and room differ");
    std::memcpy(out.data(), coded.data(), out.size());
    if (damage_) out[0] ^= std::byte{1};
    if (count_ != nullptr) ++*count_;
    return {};
  }

 private:
  bool damage_;
  std::atomic<int>* count_;
};

std::unique_ptr<Peer> Store(PiecewiseOptions options, bool damage = false,
                            std::atomic<int>* count = nullptr) {
  options.name = damage ? "damaging" : "store";
  options.make_codec = AlwaysCodec<StoreCodec>(damage, count);
  return MakePiecewisePeer(std::move(options));
}

std::vector<Contender> Measure(const CodecArray& array, std::unique_ptr<Peer> peer,
                           const RoundOptions& options) {
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(std::move(peer));
  return RunRounds(array, peers, options);
}

TEST(CodecRounds, CountsPiecesAndTheirIndex) {
  const CodecArray array = Ramp(5, 3, 7);  // 105 bytes
  const auto results = Measure(array, Store({.piece_bytes = 40}), {.rounds = 2, .cold = false});
  ASSERT_FALSE(results[0].error.has_value()) << results[0].error->ToString();
  EXPECT_EQ(results[0].coded_bytes, 105 + 3 * kPieceIndexBytes);
  EXPECT_EQ(results[0].decode_s.at(1).size(), 2U);
  EXPECT_EQ(results[0].encode_s.size(), 1U);
}

TEST(CodecRounds, LastPieceOfFramesIsShort) {
  const CodecArray array = Ramp(5, 3, 7);
  const auto results = Measure(array, Store({.piece_frames = 2}), {.rounds = 1, .cold = false});
  ASSERT_FALSE(results[0].error.has_value()) << results[0].error->ToString();
  EXPECT_EQ(results[0].coded_bytes, 105 + 3 * kPieceIndexBytes);
}

TEST(CodecRounds, EveryFrameAloneFromPiecesThatCrossFrames) {
  const CodecArray array = Ramp(9, 4, 5);
  for (const std::size_t piece_bytes : {1UL, 19UL, 20UL, 33UL, 1000UL}) {
    const auto results = Measure(array, Store({.piece_bytes = piece_bytes}),
                             {.rounds = 1, .frame_draws = 40, .seed = 5, .cold = false});
    ASSERT_FALSE(results[0].error.has_value()) << results[0].error->ToString();
    EXPECT_EQ(results[0].frame_s.size(), 40U);
  }
}

TEST(CodecRounds, AFrameDecodesItsPieceOnly) {
  const CodecArray array = Ramp(8, 4, 5);
  std::atomic<int> count = 0;
  Measure(array, Store({.piece_frames = 2}, false, &count),
      {.rounds = 1, .frame_draws = 10, .cold = false});
  EXPECT_EQ(count, 4 + 10);  // one pass over four pieces, then one piece a draw
}

// Knows frames, and forgets the lowest bit.
class FrameCodec : public StoreCodec {
 public:
  explicit FrameCodec(std::atomic<int>* frames) : StoreCodec(false, nullptr), frames_(frames) {}
  Result<std::vector<std::byte>> Encode(const PieceShape& /*shape*/,
                                        std::span<const std::byte> raw) override {
    std::vector<std::byte> coded(raw.begin(), raw.end());
    for (std::byte& each : coded) each &= std::byte{0xFE};
    return coded;
  }
  bool decodes_frames() const override { return true; }
  Status DecodeFrame(const PieceShape& /*shape*/, std::span<const std::byte> coded,
                     std::uint32_t index, std::span<std::byte> out) override {
    std::memcpy(out.data(), coded.data() + index * out.size(), out.size());
    ++*frames_;
    return {};
  }

 private:
  std::atomic<int>* frames_;
};

TEST(CodecRounds, FramesAloneCarryChecksumsOfWhatALossyCodecDecodes) {
  const CodecArray array = Ramp(7, 4, 5);
  std::atomic<int> frames = 0;
  PiecewiseOptions options{.piece_frames = 3, .lossless = false};
  options.make_codec = AlwaysCodec<FrameCodec>(&frames);
  const auto results = Measure(array, MakePiecewisePeer(std::move(options)),
                               {.rounds = 2, .frame_draws = 12, .cold = false});
  ASSERT_FALSE(results[0].error.has_value()) << results[0].error->ToString();
  EXPECT_EQ(frames, 12);
  EXPECT_EQ(results[0].coded_bytes, 140 + 3 * kPieceIndexBytes + 7 * kFrameIndexBytes);
  ASSERT_EQ(results[0].decoded.size(), 140U);
  EXPECT_EQ(results[0].decoded[1], array.bytes[1] & std::byte{0xFE});
}
// Writes its name into a list shared by all contenders, whenever it decodes a frame.
class LoggedCodec : public FrameCodec {
 public:
  LoggedCodec(char name, std::string* log) : FrameCodec(&frames_), name_(name), log_(log) {}
  Status DecodeFrame(const PieceShape& shape, std::span<const std::byte> coded,
                     std::uint32_t index, std::span<std::byte> out) override {
    *log_ += name_;
    return FrameCodec::DecodeFrame(shape, coded, index, out);
  }

 private:
  std::atomic<int> frames_ = 0;
  char name_;
  std::string* log_;
};

TEST(CodecRounds, ContendersDecodeEachFrameInTurn) {
  const CodecArray array = Ramp(7, 4, 5);
  std::string log;
  std::vector<std::unique_ptr<Peer>> peers;
  for (const char name : {'a', 'b', 'c'}) {
    PiecewiseOptions options{.piece_frames = 3, .lossless = false};
    options.make_codec = AlwaysCodec<LoggedCodec>(name, &log);
    peers.push_back(MakePiecewisePeer(std::move(options)));
  }
  RunRounds(array, peers, {.rounds = 0, .frame_draws = 3, .cold = false});
  EXPECT_EQ(log, "abccbaabc");
}

TEST(CodecRounds, ALossyCodecThatCallsItselfLosslessIsFound) {
  const CodecArray array = Ramp(7, 4, 5);
  std::atomic<int> frames = 0;
  PiecewiseOptions options{.piece_frames = 3};
  options.make_codec = AlwaysCodec<FrameCodec>(&frames);
  const auto results =
      Measure(array, MakePiecewisePeer(std::move(options)), {.rounds = 1, .cold = false});
  ASSERT_TRUE(results[0].error.has_value());
  EXPECT_EQ(results[0].error->code(), ErrorCode::kDataLoss);
}

TEST(CodecRounds, ThreadsShareTheParts) {
  const CodecArray array = Ramp(7, 4, 5);
  std::atomic<int> count = 0;
  const auto results = Measure(array, Store({.piece_frames = 1}, false, &count),
                           {.rounds = 3, .threads = {1, 2}, .cold = false});
  ASSERT_FALSE(results[0].error.has_value()) << results[0].error->ToString();
  EXPECT_EQ(results[0].decode_s.at(2).size(), 3U);
  EXPECT_EQ(count, 2 * 3 * 7);
}

TEST(CodecRounds, ColdRoundsWalkTheCachesAndStillHold) {
  const CodecArray array = Ramp(2, 3, 4);
  const auto results = Measure(array, Store({.piece_frames = 1}), {.rounds = 1, .cold = true});
  EXPECT_FALSE(results[0].error.has_value());
}

TEST(CodecRounds, DamagedOutputEndsTheContender) {
  const CodecArray array = Ramp(4, 3, 4);
  const auto results =
      Measure(array, Store({.piece_frames = 1}, true), {.rounds = 3, .cold = false});
  ASSERT_TRUE(results[0].error.has_value());
  EXPECT_EQ(results[0].error->code(), ErrorCode::kDataLoss);
}

// A codec that leaves the output as it is: the overwritten output tells.
class LazyPeer : public Peer {
 public:
  explicit LazyPeer(bool lossless) : lossless_(lossless) {}
  std::string name() const override { return "lazy"; }
  std::string settings() const override { return ""; }
  Status Accepts(const ArrayInfo& /*info*/) const override { return {}; }
  bool lossless() const override { return lossless_; }
  Result<std::unique_ptr<EncodedArray>> Encode(const CodecArray& /*array*/) const override {
    return std::make_unique<LazyArray>();
  }

 private:
  struct LazyDecoder : ArrayDecoder {
    Status Decode(std::size_t /*first*/, std::size_t /*count*/,
                  std::span<std::byte> /*array*/) override {
      return {};
    }
    Status DecodeFrame(std::uint32_t /*frame*/, std::span<std::byte> /*out*/) override {
      return {};
    }
  };
  struct LazyArray : EncodedArray {
    std::size_t coded_bytes() const override { return 1; }
    std::size_t parts() const override { return 1; }
    Result<std::unique_ptr<ArrayDecoder>> MakeDecoder() const override {
      return std::make_unique<LazyDecoder>();
    }
  };
  bool lossless_;
};

TEST(CodecRounds, OutputOfAnEarlierContenderDoesNotCount) {
  const CodecArray array = Ramp(4, 3, 4);
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(Store({.piece_frames = 1}));
  peers.push_back(std::make_unique<LazyPeer>(true));
  const auto results = RunRounds(array, peers, {.rounds = 1, .cold = false});
  EXPECT_FALSE(results[0].error.has_value());
  ASSERT_TRUE(results[1].error.has_value());
  EXPECT_EQ(results[1].error->code(), ErrorCode::kDataLoss);
}

TEST(CodecRounds, KeepsWhatALossyContenderDecoded) {
  const CodecArray array = Ramp(4, 3, 4);
  const auto results =
      Measure(array, std::make_unique<LazyPeer>(false), {.rounds = 2, .cold = false});
  ASSERT_FALSE(results[0].error.has_value());
  EXPECT_EQ(results[0].decoded.size(), array.bytes.size());
}

TEST(CodecRounds, RefusedArrayKeepsTheReason) {
  CodecArray array = Ramp(4, 3, 4);
  array.info.item_bytes = 2;
  array.info.shape[0] = 2;
  const auto results =
      Measure(array, Store({.piece_frames = 1, .item_bytes_max = 1}), {.rounds = 1, .cold = false});
  ASSERT_TRUE(results[0].error.has_value());
  EXPECT_EQ(results[0].error->code(), ErrorCode::kUnimplemented);
}

class CodecArrayFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& description, std::size_t bytes) {
    std::ofstream(folder_ / "x.json") << description;
    std::ofstream(folder_ / "x.raw") << std::string(bytes, 'a');
  }
  std::filesystem::path folder_;
};

TEST_F(CodecArrayFile, ReadsShapeAndFacts) {
  Write(R"({"name": "x", "dtype": "u16", "shape": [3, 2, 4, 5], "fill": 0, "real": true})", 240);
  const auto array = LoadArray(folder_, "x", 0);
  ASSERT_TRUE(array.has_value()) << array.error().ToString();
  EXPECT_EQ(array->info.frames(), 3U);
  EXPECT_EQ(array->info.rows(), 8U);
  EXPECT_EQ(array->info.columns(), 5U);
  EXPECT_EQ(array->info.frame_bytes(), 80U);
  EXPECT_EQ(array->info.fill, 0.0);
  const auto part = LoadArray(folder_, "x", 2);
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->bytes.size(), 160U);
}

TEST_F(CodecArrayFile, RejectsMissingShortAndSenselessFiles) {
  EXPECT_EQ(LoadArray(folder_, "x", 0).error().code(), ErrorCode::kNotFound);
  Write(R"({"name": "x", "dtype": "u8", "shape": [3, 4]})", 11);
  EXPECT_EQ(LoadArray(folder_, "x", 0).error().code(), ErrorCode::kDataLoss);
  for (const char* const text :
       {R"({"name": "x", "dtype": "u8"})", R"({"name": "x", "dtype": "u9", "shape": [1]})",
        R"({"name": "x", "dtype": "u8", "shape": []})",
        R"({"name": "x", "dtype": "u8", "shape": [0, 4]})",
        R"({"name": "x", "dtype": "f32", "shape": [4294967295, 4294967295, 16]})", "{"}) {
    Write(text, 16);
    const auto array = LoadArray(folder_, "x", 0);
    ASSERT_FALSE(array.has_value()) << text;
    EXPECT_EQ(array.error().code(), ErrorCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace forebay::bench
