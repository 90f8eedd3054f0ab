// The block-rANS codec: every shape comes back, kernels agree on what was encoded, on what no
// encoder writes and on damage, which is refused where it can be told.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/block/block_rans_decoder.h"
#include "compress/decode/isa.h"
#include "compress/decode/plane_decoder.h"
#include "compress/encode/block/block_rans_encoder.h"
#include "compress/encode/block/block_rans_symbols.h"
#include "compress/encode/block/block_rans_tables.h"
#include "compress/encode/plane_encoder.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress::block_rans_codec_test {

constexpr std::uint32_t kSeed = 20261122;

// `spread` is the range of a sample's change from its neighbours and from frame to frame; one in
// a thousand leaps.
std::vector<std::byte> MakeSamples(const PlaneShape& shape, std::uint32_t spread,
                                   std::mt19937& random) {
  std::vector<std::byte> samples;
  const std::uint32_t mask = (1U << shape.bits) - 1;
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    for (std::uint32_t y = 0; y < shape.rows; ++y) {
      for (std::uint32_t x = 0; x < shape.columns; ++x) {
        const auto noise = static_cast<std::uint32_t>(random());
        const std::uint32_t leap = noise % 1000 == 7 ? noise >> 10 : 0;
        const std::uint32_t value = (3 * x + 2 * y + t + (noise >> 8) % spread + leap) & mask;
        samples.push_back(static_cast<std::byte>(value & 0xFF));
        if (shape.sample_bytes() == 2) samples.push_back(static_cast<std::byte>(value >> 8));
      }
    }
  }
  return samples;
}

// `offset` moves the output off its natural alignment.
Status Decode(const PlaneShape& shape, std::span<const std::byte> body, std::uint32_t frames,
              Isa isa, std::vector<std::byte>& samples, std::size_t offset = 0) {
  const std::size_t bytes = frames * shape.frame_samples() * shape.sample_bytes();
  samples.assign(bytes + offset, std::byte{0xEE});
  std::vector<std::byte> scratch(BlockRansScratchBytes(shape), std::byte{0xA5});
  // A copy of its own, so that a sanitizer sees every load beyond the end.
  const std::vector<std::byte> exact(body.begin(), body.end());
  Status status = DecodeBlockRans(shape, exact, frames, isa,
                                  std::span(samples).subspan(offset, bytes), scratch);
  samples.erase(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(offset));
  return status;
}

// What all kernels decode, or that all refuse.
bool AllDecode(const PlaneShape& shape, std::span<const std::byte> body, std::uint32_t frames,
               std::vector<std::byte>& samples) {
  const bool decodes =
      Decode(shape, body, frames, Isa::kScalar, samples).has_value();
  std::vector<std::byte> other;
  for (const Isa isa : AvailableIsas().subspan(1)) {
    EXPECT_EQ(Decode(shape, body, frames, isa, other).has_value(), decodes);
    if (decodes) {
      EXPECT_TRUE(other == samples) << "kernel " << static_cast<int>(isa);
    }
  }
  return decodes;
}

TEST(BlockRansCodec, EveryShapeAndWidthComesBack) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> decoded;
  for (std::uint8_t bits = 1; bits <= 16; ++bits) {
    for (const std::uint32_t rows : {1U, 3U, 4U, 9U}) {
      for (const std::uint32_t columns : {1U, 15U, 16U, 50U, 96U}) {
        for (const std::uint32_t spread : {1U, 5U, 300U, 100'000U}) {
          const PlaneShape shape{.frames = 3, .rows = rows, .columns = columns, .bits = bits};
          const auto samples = MakeSamples(shape, spread, random);
          const auto effort =
              random() % 2 == 0 ? BlockRansEffort::kOnce : BlockRansEffort::kRefined;
          const auto body = EncodeBlockRans(shape, samples, effort);
          for (std::uint32_t frames : {1U, 3U}) {
            ASSERT_TRUE(AllDecode(shape, body, frames, decoded));
            ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), samples.begin()))
                << int{bits} << " bits, " << rows << " x " << columns << ", spread " << spread
                << ", effort " << static_cast<int>(effort) << ", seed " << kSeed;
          }
        }
      }
    }
  }
}

TEST(BlockRansCodec, DecodesToAnyAddress) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> decoded;
  for (const std::uint8_t bits : std::initializer_list<std::uint8_t>{8, 12}) {
    const PlaneShape shape{.frames = 2, .rows = 8, .columns = 32, .bits = bits};
    const auto samples = MakeSamples(shape, 9, random);
    const auto body = EncodeBlockRans(shape, samples);
    for (const Isa isa : AvailableIsas()) {
      ASSERT_TRUE(Decode(shape, body, 2, isa, decoded, 1).has_value());
      EXPECT_TRUE(decoded == samples);
    }
  }
}

TEST(BlockRansCodec, LargePlanesWithManyClassesComeBackThroughEncodePlanes) {
  std::mt19937 random(kSeed);
  for (const std::uint8_t bits : std::initializer_list<std::uint8_t>{8, 13}) {
    const PlaneShape shape{.frames = 3, .rows = 301, .columns = 333, .bits = bits};
    auto samples = MakeSamples(shape, 2, random);
    // Stripes of noise, each stronger than the one before.
    for (std::size_t i = 0; i < samples.size(); i += shape.sample_bytes()) {
      const std::size_t row = i / shape.sample_bytes() / shape.columns % shape.rows;
      const std::uint32_t noise = static_cast<std::uint32_t>(random()) >> 8;
      samples[i] ^= static_cast<std::byte>(noise & ((1U << (row / 38)) - 1));
    }
    const auto body = EncodePlanes(shape, samples, Profile::kBalanced);
    ASSERT_TRUE(body.has_value());
    ASSERT_EQ(body->front(), kPlaneKindBlockRans);
    EXPECT_LT(EncodeBlockRans(shape, samples, BlockRansEffort::kRefined).size(), body->size());
    std::vector<std::byte> decoded(samples.size()), scratch(PlaneScratchBytes(shape));
    for (const Isa isa : AvailableIsas()) {
      ASSERT_TRUE(
          DecodePlanes(shape, *body, shape.frames, decoded, scratch, isa).has_value());
      EXPECT_TRUE(decoded == samples) << int{bits} << " bits, seed " << kSeed;
    }
  }
}

TEST(BlockRansCodec, ExpandsNoiseLittle) {
  std::mt19937 random(kSeed);
  for (const std::uint8_t bits : std::initializer_list<std::uint8_t>{8, 16}) {
    const PlaneShape shape{.frames = 2, .rows = 128, .columns = 128, .bits = bits};
    const auto samples = MakeSamples(shape, 100'000, random);
    EXPECT_LE(EncodeBlockRans(shape, samples).size(), samples.size() + samples.size() / 32 + 512);
  }
}

// A body of given classes and blocks, its sections put together by hand.
struct HandMade {
  std::vector<BlockRansTable> tables;
  std::vector<BlockRansResiduals> blocks;
  std::vector<std::uint8_t> codes;

  std::vector<std::byte> Body(std::uint32_t bits) const {
    ByteWriter side;
    side.Le(static_cast<std::uint8_t>(tables.size()));
    for (const BlockRansTable& table : tables) {
      side.Le(table.shift);
      side.Le(table.escape_slots);
      std::uint32_t left = table.escape_slots_at();
      for (std::uint32_t rank = 0; left > 0; ++rank) {
        const auto frequency = table.frequency[static_cast<std::uint8_t>(BlockRansToken(rank))];
        side.Le(frequency);
        left -= frequency;
      }
    }
    side.Bytes(std::as_bytes(std::span(codes)));
    const BlockRansSections sections = CodeBlockRansBlocks(blocks, codes, bits, tables);
    ByteWriter body;
    body.Le(std::uint8_t{0});
    body.Le(static_cast<std::uint32_t>(side.size()));
    body.Le(static_cast<std::uint32_t>(sections.planes.size()));
    body.Le(static_cast<std::uint32_t>(sections.escapes.size()));
    body.Bytes(side.bytes());
    for (const auto* part :
         {&sections.planes, &sections.words, &sections.escapes, &sections.states}) {
      body.Bytes(*part);
    }
    return body.Release();
  }
};

// Random frequencies of random tokens.
BlockRansTable RandomTable(std::uint32_t bits, std::mt19937& random) {
  std::array<std::uint32_t, kBlockRansSlots> counts{};
  const std::uint32_t tokens = 1 + static_cast<std::uint32_t>(random()) % 150;
  for (std::uint32_t i = 0; i < tokens; ++i) {
    counts[random() % kBlockRansSlots] = 1 + static_cast<std::uint32_t>(random()) % 1000;
  }
  return MakeBlockRansTable(static_cast<std::uint8_t>(random() % bits), counts,
                            static_cast<std::uint32_t>(random()) % 3000);
}

// `tokens` of one slot each, but one, the first or the last, of all slots that are left.
BlockRansTable TableOfTokens(std::uint32_t tokens, std::uint8_t escape_slots, bool first_is_large) {
  BlockRansTable table{.escape_slots = escape_slots};
  std::uint32_t slot = 0;
  for (std::uint32_t rank = 0; rank < tokens; ++rank) {
    const std::size_t token = static_cast<std::uint8_t>(BlockRansToken(rank));
    const bool large = rank == (first_is_large ? 0 : tokens - 1);
    table.first[token] = static_cast<std::uint8_t>(slot);
    table.frequency[token] =
        static_cast<std::uint8_t>(large ? table.escape_slots_at() - (tokens - 1) : 1);
    slot += table.frequency[token];
  }
  return table;
}

// Residuals modulo 2^bits that occur with chances that fall to 1/e over `spread`, either way.
std::vector<std::uint32_t> CountsOfSpread(std::uint32_t bits, double spread) {
  std::vector<std::uint32_t> counts(std::size_t{1} << bits);
  for (std::uint32_t i = 0; i < counts.size(); ++i) {
    const double size = std::min(i, static_cast<std::uint32_t>(counts.size()) - i);
    counts[i] = static_cast<std::uint32_t>(20000 / spread * std::exp(-size / spread));
  }
  return counts;
}

TEST(BlockRansTables, HaveAllSlotsAndNoMoreTokensThanTheyDescribeWell) {
  for (const std::uint32_t bits : {6U, 8U, 9U, 12U, 16U}) {
    for (const double spread : {0.3, 4.0, 60.0, 900.0}) {
      for (std::uint8_t shift = 0; shift < 6; ++shift) {
        const auto counts = CountsOfSpread(bits, spread);
        const BlockRansTable table = ChooseBlockRansTable(counts, bits, shift);
        ASSERT_LT(table.shift, bits);
        ASSERT_GE(table.escape_slots, 1);
        EXPECT_EQ(std::accumulate(table.frequency.begin(), table.frequency.end(), 0U),
                  table.escape_slots_at());
        if (bits <= 8) {
          EXPECT_EQ(table.shift, shift) << "samples of bytes have the planes asked for";
        } else if (spread == 60.0 && bits == 12) {
          // Some 300 tokens in 256 slots without planes; 75 of them with two.
          EXPECT_GE(table.shift, shift == 0 ? 2 : 1) << int{shift};
        } else if (spread == 0.3) {
          EXPECT_EQ(table.shift, std::max(shift - 1, 0)) << "planes of a single value";
        }
      }
    }
  }
}

TEST(BlockRansCodec, KernelsAgreeOnEveryClassPredictorAndResidual) {
  std::mt19937 random(kSeed);
  for (std::uint32_t bits = 1; bits <= 16; ++bits) {
    const PlaneShape shape{
        .frames = 3, .rows = 16, .columns = 80, .bits = static_cast<std::uint8_t>(bits)};
    HandMade made;
    while (made.tables.size() < kBlockRansClassesMax) {
      made.tables.push_back(RandomTable(bits, random));
    }
    for (std::size_t i = 0; i < CountBlocks(shape); ++i) {
      made.codes.push_back(static_cast<std::uint8_t>(random()));
      BlockRansResiduals& residuals = made.blocks.emplace_back();
      const unsigned unused = 16 - bits + static_cast<unsigned>(random()) % bits;
      for (std::int16_t& residual : residuals) {
        const auto any = static_cast<std::int16_t>(random());
        residual = static_cast<std::int16_t>(any >> unused);
      }
    }
    const std::vector<std::byte> body = made.Body(bits);
    std::vector<std::byte> samples;
    ASSERT_TRUE(AllDecode(shape, body, shape.frames, samples)) << bits << " bits, " << kSeed;
    const std::set<std::byte> values(samples.begin(), samples.end());
    EXPECT_GT(values.size(), bits < 4 ? 1U : 8U);
  }
}

// Kernels may treat the first symbols of a class otherwise than those that follow.
TEST(BlockRansCodec, KernelsAgreeOnClassesOfEveryNumberOfSymbols) {
  std::mt19937 random(kSeed);
  for (std::uint32_t tokens = 1; tokens < kBlockRansSlots; ++tokens) {
    const std::uint32_t any = 1 + static_cast<std::uint32_t>(random()) % (kBlockRansSlots - tokens);
    for (const std::uint32_t escapes : {1U, any, kBlockRansSlots - tokens}) {
      const auto escape_slots = static_cast<std::uint8_t>(escapes);
      for (const std::uint32_t bits : {8U, 12U}) {
        SCOPED_TRACE(testing::Message() << tokens << " tokens, " << escapes << " slots of escapes, "
                                        << bits << " bits, seed " << kSeed);
        const PlaneShape shape{
            .frames = 1, .rows = 8, .columns = 64, .bits = static_cast<std::uint8_t>(bits)};
        HandMade made;
        made.tables = {TableOfTokens(tokens, escape_slots, true),
                       TableOfTokens(tokens, escape_slots, false)};
        for (std::size_t i = 0; i < CountBlocks(shape); ++i) {
          made.codes.push_back(static_cast<std::uint8_t>((1 + i % 2) << 3 | random() % 8));
          for (std::int16_t& residual : made.blocks.emplace_back()) {
            // Of any token, and now and then one that escapes.
            const std::uint32_t rank = static_cast<std::uint32_t>(random()) % (tokens + 1);
            residual = static_cast<std::int16_t>(BlockRansToken(rank));
          }
        }
        std::vector<std::byte> samples;
        ASSERT_TRUE(AllDecode(shape, made.Body(bits), 1, samples));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST(BlockRansCodec, RefusesEveryTruncationAndAnyAddition) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> decoded;
  for (const std::uint8_t bits : std::initializer_list<std::uint8_t>{8, 16}) {
    const PlaneShape shape{.frames = 2, .rows = 20, .columns = 40, .bits = bits};
    auto body = EncodeBlockRans(shape, MakeSamples(shape, 60, random));
    for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
      ASSERT_FALSE(AllDecode(shape, std::span(body).first(bytes), shape.frames, decoded))
          << bytes << " of " << body.size();
    }
    body.push_back(std::byte{1});
    EXPECT_FALSE(AllDecode(shape, body, shape.frames, decoded));
  }
}

// One block, one class of token 0 (255 slots) and escapes (one slot).
std::vector<std::byte> SmallBody(std::span<const std::uint8_t> side, std::uint8_t flags) {
  ByteWriter body;
  body.Le(flags);
  body.Le(static_cast<std::uint32_t>(side.size()));
  body.Le(std::uint32_t{0});
  body.Le(std::uint32_t{0});
  body.Bytes(std::as_bytes(side));
  // Each lane goes from 257 to its end, 256, by slot 1 of token 0: 255 * 1 + 1 - 0.
  std::array<std::uint8_t, kBlockRansStateBytes> states;
  std::fill_n(states.begin(), kBlockRansLanes, std::uint8_t{1});
  std::fill_n(states.begin() + kBlockRansLanes, kBlockRansLanes, std::uint8_t{1});
  body.Bytes(std::as_bytes(std::span(states)));
  return body.Release();
}

TEST(BlockRansCodec, RefusesSideInformationThatNoEncoderWrites) {
  const PlaneShape shape{.frames = 1, .rows = 4, .columns = 16, .bits = 5};
  std::vector<std::byte> decoded;
  const auto decodes = [&](std::vector<std::uint8_t> side, std::uint8_t flags = 0) {
    return AllDecode(shape, SmallBody(side, flags), 1, decoded);
  };
  EXPECT_TRUE(decodes({1, 0, 1, 255, 1 << 3}));
  EXPECT_FALSE(decodes({1, 0, 1, 255, 1 << 3}, 2)) << "unknown flags";
  EXPECT_FALSE(decodes({1, 0, 1, 255, 1 << 3}, 1)) << "no zstd frame";
  EXPECT_FALSE(decodes({1, 0, 1, 255, 2 << 3})) << "a class that is not there";
  EXPECT_FALSE(decodes({1, 5, 1, 255, 1 << 3})) << "as many planes as bits";
  EXPECT_FALSE(decodes({1, 0, 0, 255, 1, 1 << 3})) << "no slot of escapes";
  EXPECT_FALSE(decodes({1, 0, 2, 255, 1 << 3})) << "slots beyond 256";
  EXPECT_FALSE(decodes({1, 0, 1, 255})) << "no block byte";
  EXPECT_FALSE(decodes({1, 0, 1, 255, 1 << 3, 0})) << "a block byte too many";
  EXPECT_FALSE(decodes({32, 0, 1, 255, 1 << 3})) << "too many classes";
  std::vector<std::uint8_t> endless(260, 0);
  endless[0] = endless[2] = 1;
  EXPECT_FALSE(decodes(endless)) << "frequencies that leave slots";
  EXPECT_FALSE(decodes({})) << "nothing";
}

// Flips may give other samples, which checksums above find; all kernels must give the same.
TEST(BlockRansCodec, KernelsAgreeOnDamagedBodies) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> decoded;
  std::size_t refused = 0, accepted = 0;
  for (const std::uint8_t bits : std::initializer_list<std::uint8_t>{7, 11}) {
    const PlaneShape shape{.frames = 3, .rows = 30, .columns = 70, .bits = bits};
    const auto body = EncodeBlockRans(shape, MakeSamples(shape, 90, random));
    for (std::size_t bit = 0; bit < body.size() * 8; bit += 1 + random() % 63) {
      auto damaged = body;
      damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      const std::uint32_t frames = 1 + static_cast<std::uint32_t>(random()) % 3;
      const bool decodes = AllDecode(shape, damaged, frames, decoded);
      (decodes ? accepted : refused) += 1;
      ASSERT_FALSE(HasFailure()) << "bit " << bit << ", seed " << kSeed;
      for (std::size_t i = 0; decodes && bits < 8 && i < decoded.size(); ++i) {
        ASSERT_LT(std::to_integer<unsigned>(decoded[i]), 1U << bits);
      }
    }
  }
  EXPECT_GT(refused, 100U);
  EXPECT_GT(accepted, 100U);
}

}  // namespace forebay::compress::block_rans_codec_test
