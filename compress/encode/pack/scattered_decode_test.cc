// Frames and samples each to a place of its own: what is wanted comes as when all is decoded in one
// piece, what is not wanted costs nothing, and nothing beside the places is written.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/decode/isa.h"
#include "compress/decode/pack/chunk_record.h"
#include "compress/decode/pack/pack_file.h"
#include "compress/decode/plane_decoder.h"
#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/encode/chunk/coded_chunk_encoder.h"
#include "compress/encode/plane_encoder.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/encode/testing/learned_samples.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/format/plane/plane_shape.h"

namespace forebay::compress::scattered_decode_test {

constexpr std::uint32_t kSeed = 20261123;
constexpr std::byte kCanary{0xC7};

// Places of one size in a random order in memory, some of them missing, canaries between them.
class ScatteredPlaces {
 public:
  ScatteredPlaces(std::size_t count, std::size_t bytes, std::mt19937& random) {
    const std::size_t gap = 1 + random() % 80;  // odd addresses, too
    memory_.assign(count * (bytes + gap) + gap, kCanary);
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_wanted = random() % 3 != 0;
      places_.push_back(is_wanted ? std::span(memory_).subspan(gap + order[i] * (bytes + gap),
                                                               bytes)
                                  : std::span<std::byte>());
    }
  }
  std::span<const std::span<std::byte>> places() const { return places_; }

  // Whether the wanted ones hold what `whole` says, and nothing else was written.
  bool Hold(std::span<const std::byte> whole) {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].empty()) continue;
      const std::size_t bytes = places_[i].size();
      if (!std::ranges::equal(places_[i], whole.subspan(i * bytes, bytes))) return false;
    }
    return AreAlone();
  }
  // Whether nothing beside the places was written.
  bool AreAlone() {
    for (const std::span<std::byte> place : places_) std::ranges::fill(place, kCanary);
    return std::ranges::all_of(memory_, [](std::byte byte) { return byte == kCanary; });
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::span<std::byte>> places_;
};

// Samples of one kind: gradients, noise, or a word that repeats itself from afar.
std::vector<std::byte> PlaneSamples(const PlaneShape& shape, int kind, std::mt19937& random) {
  std::vector<std::uint32_t> word(37);
  for (std::uint32_t& value : word) value = static_cast<std::uint32_t>(random());
  const std::uint32_t mask = (1U << shape.bits) - 1;
  std::vector<std::byte> samples;
  for (std::size_t i = 0; i < shape.frames * shape.frame_samples(); ++i) {
    const auto slope = static_cast<std::uint32_t>(i / 3 + random() % 3);
    const auto noise = static_cast<std::uint32_t>(random());
    const std::size_t frame = i / shape.frame_samples();
    const std::uint32_t repeated = word[i % word.size()] * static_cast<std::uint32_t>(frame + 1);
    const std::uint32_t value = (kind == 0 ? slope : kind == 1 ? noise : repeated) & mask;
    samples.push_back(static_cast<std::byte>(value & 0xFF));
    if (shape.sample_bytes() == 2) samples.push_back(static_cast<std::byte>(value >> 8));
  }
  return samples;
}

void ExpectScatteredFrames(const PlaneShape& shape, std::span<const std::byte> body,
                           std::span<const std::byte> samples, std::mt19937& random,
                           PredictorList predictors = {}) {
  const std::size_t frame_bytes = shape.frame_samples() * shape.sample_bytes();
  std::vector<std::byte> scratch(PlaneScratchBytes(shape));
  for (const Isa isa : AvailableIsas()) {
    for (int round = 0; round < 4; ++round) {
      const auto frames = static_cast<std::uint32_t>(1 + random() % shape.frames);
      ScatteredPlaces places(frames, frame_bytes, random);
      const Status status =
          DecodePlanes(shape, body, frames, FrameOutput::Each(places.places()), scratch, isa,
                       predictors);
      ASSERT_TRUE(status.has_value()) << status.error().ToString();
      ASSERT_TRUE(places.Hold(samples))
          << "kind " << std::to_integer<int>(body[0]) << ", " << shape.rows << " x "
          << shape.columns << ", " << int{shape.bits} << " bits, isa "
          << static_cast<int>(isa) << ", seed " << kSeed;
    }
  }
}

TEST(ScatteredDecode, FramesOfEveryKindOfPlanes) {
  std::mt19937 random(kSeed);
  std::set<std::byte> kinds;
  for (const std::uint8_t bits : {std::uint8_t{3}, std::uint8_t{8}, std::uint8_t{12}}) {
    // Whole blocks, which may be decoded where they belong, and others.
    for (const auto& [rows, columns] : {std::pair{12U, 48U}, {9U, 35U}, {64U, 64U}}) {
      const PlaneShape shape{.frames = 5, .rows = rows, .columns = columns, .bits = bits};
      for (int kind = 0; kind < 3; ++kind) {
        const auto samples = PlaneSamples(shape, kind, random);
        for (const Profile profile : {Profile::kFast, Profile::kBalanced, Profile::kDense}) {
          const auto body = EncodePlanes(shape, samples, profile);
          ASSERT_TRUE(body.has_value());
          kinds.insert(body->front());
          ExpectScatteredFrames(shape, *body, samples, random);
        }
      }
    }
  }
  EXPECT_EQ(kinds, (std::set<std::byte>{kPlaneKindRaw, kPlaneKindZstd, kPlaneKindWavefront,
                                        kPlaneKindBitPacked, kPlaneKindBlockRans}));
}

TEST(ScatteredDecode, FramesOfLearnedPlanes) {
  std::mt19937 random(kSeed);
  const PlaneShape shape{.frames = 4, .rows = 70, .columns = 50, .bits = 8};
  const auto samples = PlaneSamples(shape, 0, random);
  const std::array predictors = {RandomPredictor(kSeed, {21, 6, 2}, {35, 6, 2})};
  const auto body = EncodeEveryBlockLearned(shape, samples, *predictors[0]);
  ASSERT_EQ(body[0], kPlaneKindLearned);
  ExpectScatteredFrames(shape, body, samples, random, predictors);
}

// Unwanted ones before, between and behind; runs of samples that lie one after the other.
void ExpectScatteredSamples(const ChunkShape& shape, ChunkCodec codec,
                            std::span<const std::byte> payload, std::span<const std::byte> raw,
                            std::mt19937& random) {
  std::vector<std::byte> scratch(ChunkScratchBytes(shape));
  for (int round = 0; round < 3; ++round) {
    ScatteredPlaces places(shape.samples, shape.sample_bytes(), random);
    const Status status =
        DecodeChunkSamples(shape, codec, payload, places.places(), scratch);
    ASSERT_TRUE(status.has_value()) << status.error().ToString();
    ASSERT_TRUE(places.Hold(raw)) << "codec " << static_cast<int>(codec);
  }
  std::vector<std::byte> dense(raw.size());
  std::vector<std::span<std::byte>> places;
  for (std::size_t i = 0; i < shape.samples; ++i) {
    places.push_back(std::span(dense).subspan(i * shape.sample_bytes(), shape.sample_bytes()));
  }
  const std::size_t unwanted = random() % shape.samples;
  if (random() % 2 == 0) places[unwanted] = {};
  ASSERT_TRUE(DecodeChunkSamples(shape, codec, payload, places, scratch).has_value());
  for (std::size_t i = 0; i < shape.samples; ++i) {
    if (places[i].empty()) continue;
    ASSERT_TRUE(std::ranges::equal(
        places[i], raw.subspan(i * shape.sample_bytes(), shape.sample_bytes())))
        << "sample " << i << ", codec " << static_cast<int>(codec);
  }
}

TEST(ScatteredDecode, SamplesOfEveryTypeAndCodec) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SampleMaker maker(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 2; ++round) {
    for (const Dtype dtype : kAllDtypes) {
      for (std::size_t kind = 0; kind < kSampleKinds; ++kind) {
        ChunkShape shape = maker.Shape(dtype);
        if (maker.Below(2) == 0) shape.fill_bits = maker.Below(200);
        SCOPED_TRACE(Describe(shape) + ", kind " + std::to_string(kind));
        const auto raw = maker.Make(shape, static_cast<SampleKind>(kind));
        const Profile profile = maker.Below(2) == 0 ? Profile::kBalanced : Profile::kDense;
        const auto coded = EncodeCodedChunk(shape, raw, {.profile = profile, .bound = {}});
        ASSERT_TRUE(coded.has_value());
        ExpectScatteredSamples(shape, ChunkCodec::kCoded, *coded, raw, random);
        ExpectScatteredSamples(shape, ChunkCodec::kStore, raw, raw, random);
      }
    }
  }
}

// Elements of one plane of frames: several frames a sample, a frame a sample, samples in a frame.
TEST(ScatteredDecode, SamplesThatAreFramesOrPartsOfThem) {
  SampleMaker maker(kSeed + 1);
  std::mt19937 random(kSeed + 1);
  for (ChunkShape shape : {ChunkShape{.dtype = Dtype::kU8, .samples = 6, .rank = 3,
                                      .extent = {3, 20, 32, 1}},
                           ChunkShape{.dtype = Dtype::kU8, .samples = 6, .rank = 2,
                                      .extent = {20, 32, 1, 1}},
                           ChunkShape{.dtype = Dtype::kU16, .samples = 6, .rank = 2,
                                      .extent = {20, 33, 1, 1}},
                           ChunkShape{.dtype = Dtype::kU8, .samples = 40, .rank = 1,
                                      .extent = {64, 1, 1, 1}}}) {
    SCOPED_TRACE(Describe(shape));
    for (const SampleKind kind : {SampleKind::kSmooth, SampleKind::kNoise, SampleKind::kSteps}) {
      const auto raw = maker.Make(shape, kind);
      for (const Profile profile : {Profile::kFast, Profile::kBalanced, Profile::kDense}) {
        const auto coded = EncodeCodedChunk(shape, raw, {.profile = profile, .bound = {}});
        ASSERT_TRUE(coded.has_value());
        ExpectScatteredSamples(shape, ChunkCodec::kCoded, *coded, raw, random);
      }
    }
  }
}

TEST(ScatteredDecode, SamplesOfByteStreams) {
  std::mt19937 random(kSeed + 2);
  const ChunkShape shape = {.dtype = Dtype::kU16, .samples = 7, .rank = 2,
                            .extent = {11, 13, 1, 1}};
  const auto raw = SampleMaker(kSeed).Make(shape, SampleKind::kFewValues);
  for (const ChunkCodec codec : {ChunkCodec::kZstd, ChunkCodec::kLz4}) {
    const auto payload = codec == ChunkCodec::kZstd ? CompressZstd(raw, 3) : CompressLz4(raw);
    for (int round = 0; round < 8; ++round) {
      ExpectScatteredSamples(shape, codec, payload, raw, random);
    }
  }
}

TEST(ScatteredDecode, RefusesPlacesThatAreNotTheSamples) {
  const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 2, .rank = 1, .extent = {8, 1, 1, 1}};
  const std::vector<std::byte> raw(shape.bytes());
  std::vector<std::byte> scratch(ChunkScratchBytes(shape)), memory(64);
  const auto decode = [&](const std::vector<std::span<std::byte>>& places,
                          std::size_t scratch_bytes) {
    const Status status = DecodeChunkSamples(shape, ChunkCodec::kStore, raw, places,
                                             std::span(scratch).first(scratch_bytes));
    return status.has_value() ? ErrorCode::kUnknown : status.error().code();
  };
  const auto place = [&](std::size_t at, std::size_t bytes) {
    return std::span(memory).subspan(at, bytes);
  };
  EXPECT_EQ(decode({place(0, 8), place(8, 8)}, scratch.size()), ErrorCode::kUnknown);
  EXPECT_EQ(decode({{}, {}}, scratch.size()), ErrorCode::kUnknown) << "none is wanted";
  EXPECT_EQ(decode({}, scratch.size()), ErrorCode::kUnknown);
  EXPECT_EQ(decode({place(0, 7)}, scratch.size()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode({place(0, 8), place(8, 9)}, scratch.size()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode({{}, {}, place(0, 8)}, scratch.size()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode({place(0, 8)}, scratch.size() - 1), ErrorCode::kInvalidArgument);
}

// Whatever a payload says, nothing beside the places is written; what decodes in one piece decodes
// to places, to the same bytes.
TEST(ScatteredDecode, DamagedPayloadsStayWithinThePlaces) {
  SampleMaker maker(kSeed + 3);
  std::mt19937 random(kSeed + 3);
  std::size_t refused = 0;
  for (const std::size_t columns : {48U, 35U}) {
    const ChunkShape shape = {.dtype = Dtype::kU8, .samples = 4, .rank = 2,
                              .extent = {24, static_cast<std::uint32_t>(columns), 1, 1}};
    const auto raw = maker.Make(shape, SampleKind::kSmooth);
    std::vector<std::byte> scratch(ChunkScratchBytes(shape)), dense(shape.bytes());
    for (const Profile profile : {Profile::kFast, Profile::kBalanced, Profile::kDense}) {
      const auto coded = EncodeCodedChunk(shape, raw, {.profile = profile, .bound = {}});
      ASSERT_TRUE(coded.has_value());
      for (int round = 0; round < 300; ++round) {
        auto payload = *coded;
        payload[random() % payload.size()] ^= static_cast<std::byte>(1U << random() % 8);
        ScatteredPlaces places(shape.samples, shape.sample_bytes(), random);
        const bool decodes =
            DecodeChunkSamples(shape, ChunkCodec::kCoded, payload, places.places(), scratch)
                .has_value();
        refused += decodes ? 0 : 1;
        std::uint32_t end = shape.samples;
        while (end > 0 && places.places()[end - 1].empty()) --end;
        const ChunkRange range = ChunkRange::Samples(shape, 0, end);
        const bool is_sound =
            end > 0 && DecodeChunk(shape, ChunkCodec::kCoded, payload, range,
                                   StridedOutput::Dense(shape, range, dense), scratch)
                           .has_value();
        if (is_sound) {
          ASSERT_TRUE(decodes);
          ASSERT_TRUE(places.Hold(dense)) << "seed " << kSeed;
        } else {
          ASSERT_TRUE(places.AreAlone());
        }
      }
    }
  }
  EXPECT_GT(refused, 100U);
}

// Of packs: every chunk of every fixed field, tiles included; and what does not match its checksum.
class ScatteredRecords : public ::testing::Test {
 protected:
  ScatteredRecords()
      : model_(MakeModel(41, 3)), bytes_(WritePack(model_, folder_)),
        source_(MemorySource(bytes_)) {
    auto pack = PackFile::Open(*source_);
    EXPECT_TRUE(pack.has_value());
    if (pack.has_value()) pack_.emplace(std::move(*pack));
  }
  PackContext Context() const {
    return {.schema = pack_->schema(), .identity = PackIdentity(bytes_)};
  }
  Result<ChunkRecord> Record(const ChunkEntry& entry) const {
    return ReadChunkRecord(Context(), entry,
                           std::span(bytes_).subspan(entry.offset,
                                                     entry.head_bytes + entry.payload_bytes));
  }
  std::vector<std::byte> Scratch(const ChunkEntry& entry) const {
    return std::vector<std::byte>(RecordScratchBytes(pack_->schema(), entry));
  }

  TestFolder folder_;
  PackModel model_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<ByteSource> source_;
  std::optional<PackFile> pack_;
};

TEST_F(ScatteredRecords, SamplesOfEveryFieldComeTogetherFromTheirChunks) {
  ASSERT_TRUE(pack_.has_value());
  const PackSchema& schema = pack_->schema();
  bool has_tiles = false;
  for (std::uint32_t field = 0; field < schema.fields.size(); ++field) {
    if (schema.fields[field].variable()) continue;
    has_tiles = has_tiles || schema.fields[field].tiles() > 1;
    const std::size_t bytes = schema.fields[field].sample_bytes();
    // Odd samples are wanted, from the last one to the first.
    std::vector<std::byte> memory(model_.samples.size() * bytes, kCanary);
    const auto place = [&](std::uint64_t sample) {
      return std::span(memory).subspan((model_.samples.size() - 1 - sample) * bytes, bytes);
    };
    for (const ChunkEntry& entry : pack_->index().chunks) {
      if (entry.field != field) continue;
      std::vector<std::span<std::byte>> places(entry.sample_count);
      for (std::uint32_t i = 0; i < entry.sample_count; ++i) {
        if ((entry.first_sample + i) % 2 == 1) places[i] = place(entry.first_sample + i);
      }
      const auto record = Record(entry);
      ASSERT_TRUE(record.has_value());
      auto scratch = Scratch(entry);
      ASSERT_TRUE(DecodeSamples(Context(), entry, *record, places, scratch).has_value());
    }
    for (std::uint64_t sample = 0; sample < model_.samples.size(); ++sample) {
      if (sample % 2 == 1) {
        EXPECT_TRUE(std::ranges::equal(place(sample), model_.samples[sample][field]))
            << "sample " << sample << " of field " << schema.fields[field].name;
      } else {
        EXPECT_TRUE(std::ranges::all_of(place(sample),
                                        [](std::byte byte) { return byte == kCanary; }));
      }
    }
  }
  EXPECT_TRUE(has_tiles);
}

TEST_F(ScatteredRecords, ASampleThatDoesNotMatchItsChecksumIsNamed) {
  ASSERT_TRUE(pack_.has_value());
  for (const ChunkEntry& entry : pack_->index().chunks) {
    const PackField& field = pack_->schema().fields[entry.field];
    if (field.variable() || entry.sample_count < 4) continue;
    auto record = Record(entry);
    ASSERT_TRUE(record.has_value());
    std::vector<std::byte> sums(record->head.checksums.begin(), record->head.checksums.end());
    sums[2 * 8 + 1] ^= std::byte{1};
    record->head.checksums = sums;
    std::vector<std::byte> memory(2 * field.sample_bytes());
    auto scratch = Scratch(entry);
    std::vector<std::span<std::byte>> places(4);
    places[3] = std::span(memory).first(field.sample_bytes());
    EXPECT_TRUE(DecodeSamples(Context(), entry, *record, places, scratch).has_value())
        << "it is not wanted";
    places[2] = std::span(memory).last(field.sample_bytes());
    const Status status = DecodeSamples(Context(), entry, *record, places, scratch);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss);
    EXPECT_NE(status.error().message().find("sample " + std::to_string(entry.first_sample + 2) +
                                            " of field " + field.name),
              std::string::npos)
        << status.error().message();
  }
}

TEST_F(ScatteredRecords, RefusesPlacesThatAreNotTheSamples) {
  ASSERT_TRUE(pack_.has_value());
  const ChunkEntry& entry = pack_->index().chunks.front();
  const std::size_t bytes = pack_->schema().fields[entry.field].sample_bytes();
  const auto record = Record(entry);
  ASSERT_TRUE(record.has_value());
  auto scratch = Scratch(entry);
  std::vector<std::byte> memory(bytes);
  std::vector<std::span<std::byte>> places(entry.sample_count + 1);
  Status status = DecodeSamples(Context(), entry, *record, places, scratch);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  places.resize(1);
  places[0] = std::span(memory).first(bytes - 1);
  status = DecodeSamples(Context(), entry, *record, places, scratch);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace forebay::compress::scattered_decode_test
