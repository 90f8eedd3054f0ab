// Makes the golden packs of version 2: one small pack for each feature of the format, its samples
// computed by arithmetic. golden_test.cc compares them with the files in good/. So no function here
// may change what it makes: a new feature gets a new pack.
#include "compress/golden/golden_packs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "compress/encode/testing/learned_samples.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/format/pack/sha256.h"
#include "compress/golden/golden_planes.h"
#include "compress/golden/pack_editor.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"

namespace forebay::compress {
namespace {

// A field whose only tile is the whole sample. A case that needs more tiles sets them afterwards.
PackField Fixed(std::string name, Dtype dtype, std::vector<std::uint32_t> extents,
                std::uint32_t samples_per_chunk) {
  PackField field{.name = std::move(name), .kind = FieldKind::kImage, .dtype = dtype,
                  .rank = static_cast<std::uint8_t>(extents.size()), .fill_bits = {},
                  .bound = {}, .samples_per_chunk = samples_per_chunk};
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    field.extent[axis] = field.tile[axis] = extents[axis];
  }
  return field;
}

// A field of byte strings of any length.
PackField Strings(std::string name, std::uint32_t samples_per_chunk) {
  return {.name = std::move(name), .kind = FieldKind::kRaw, .fill_bits = {}, .bound = {},
          .samples_per_chunk = samples_per_chunk};
}

// Bytes that rise slowly, with steps: neither constant nor noise.
std::vector<std::byte> Ramp(std::size_t bytes, std::size_t sample) {
  std::vector<std::byte> value(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    // Whole numbers only, so that every compiler and processor gives the same bytes.
    value[i] = static_cast<std::byte>((i / 5 + i % 3 * 2 + sample * 3 + i * i / 97) & 0xFF);
  }
  return value;
}

// Byte strings get lengths from 0 to 22, the empty string first.
void Fill(PackModel& model, std::size_t samples) {
  for (std::size_t s = 0; s < samples; ++s) {
    auto& fields = model.samples.emplace_back();
    for (const PackField& field : model.schema.fields) {
      const auto bytes = field.variable() ? s * 11 % 23 : field.sample_bytes();
      fields.push_back(Ramp(static_cast<std::size_t>(bytes), s));
    }
  }
}

PackModel Of(std::vector<PackField> fields, std::size_t samples) {
  PackModel model;
  model.schema.fields = std::move(fields);
  Fill(model, samples);
  return model;
}

// Dtypes are numbered from 0 to 10 without gaps, and floats have the highest numbers.
PackModel EveryType(bool floats) {
  std::vector<PackField> fields;
  for (std::uint64_t number = 0; number <= 10; ++number) {
    const auto dtype = DtypeFromNumber(number);
    FOREBAY_CHECK(dtype.has_value());
    const bool is_float = number >= static_cast<std::uint64_t>(Dtype::kF16);
    // Two samples in a chunk and three in the pack, so that the last chunk is not full.
    if (is_float == floats) fields.push_back(Fixed(std::string(DtypeName(*dtype)), *dtype, {6}, 2));
  }
  return Of(std::move(fields), 3);
}

// The extents are no multiples of the tiles', so the last tiles are cut short along both axes.
PackModel Tiles() {
  PackField image = Fixed("image", Dtype::kU8, {12, 20, 3}, 2);
  // The colours of a pixel lie side by side and become planes of their own.
  image.channel_axis = 2;
  image.tile = {8, 16, 3, 1};
  return Of({image}, 3);
}

PackModel FourAxes() {
  PackField volume = Fixed("volume", Dtype::kU16, {3, 4, 5, 2}, 2);
  volume.tile = {2, 3, 5, 2};
  volume.valid_bits = 12;
  PackModel model = Of({volume}, 2);
  for (auto& sample : model.samples) {
    // The high byte of each element loses the bits beyond the 12 that the field declares.
    for (std::size_t i = 1; i < sample[0].size(); i += 2) sample[0][i] &= std::byte{0x0F};
  }
  return model;
}

PackModel Lossy() {
  PackField heat = Fixed("heat", Dtype::kF32, {8, 24}, 2);
  heat.fill_bits = std::bit_cast<std::uint32_t>(-999.0F);
  // The values below are no multiples of the quantiser's step, so that numbers are really rounded.
  heat.bound = {.mode = 1, .absolute = 0.25};
  PackModel model = Of({heat}, 2);
  for (std::size_t s = 0; s < 2; ++s) {
    ByteWriter writer;
    for (std::uint32_t i = 0; i < 192; ++i) {
      float value = static_cast<float>(i % 24) * 1.375F + static_cast<float>(i / 24 + s) * 2.5F;
      // The fill value and NaN must come back exactly, although the field has an error bound.
      if (i % 31 == 7) value = -999.0F;
      if (i % 47 == 5) value = std::numeric_limits<float>::quiet_NaN();
      writer.Le(std::bit_cast<std::uint32_t>(value));
    }
    model.samples[s][0] = writer.Release();
  }
  return model;
}

// Small pictures with a class each. All profiles write them, each its own way.
PackModel Pictures() {
  return Of({Fixed("picture", Dtype::kU8, {16, 32}, 4), Fixed("class", Dtype::kI32, {}, 4)}, 4);
}

// Of more samples than the balanced profile leaves to wavefront-coded planes; noise of a bit.
PackModel Slopes() {
  constexpr std::uint32_t kRows = 32, kColumns = 48;
  PackModel model;
  model.schema.fields = {Fixed("picture", Dtype::kU8, {2 * kRows, kColumns}, 4),
                         Fixed("depth", Dtype::kU16, {kRows, kColumns}, 4)};
  std::uint32_t random = 1;
  for (std::uint32_t s = 0; s < 4; ++s) {
    std::array<ByteWriter, 2> writers;
    for (std::uint32_t y = 0; y < 2 * kRows; ++y) {
      for (std::uint32_t x = 0; x < kColumns; ++x) {
        // A linear congruential generator, written out: golden bytes are the same on every machine.
        random = random * 1664525 + 1013904223;
        const std::uint32_t noise = random >> 31;
        // Noise in one half only, so that some blocks are predicted exactly and others are not.
        writers[0].Le(static_cast<std::uint8_t>(x + 2 * y + 3 * s + (x > y ? noise : 0)));
        if (y >= kRows) continue;
        const std::uint32_t depth = 1000 + x * x * 7 + 11 * y + 300 * s + (y > 12 ? noise : 0);
        writers[1].Le(static_cast<std::uint16_t>(depth));
      }
    }
    model.samples.push_back({writers[0].Release(), writers[1].Release()});
  }
  return model;
}

PackModel Keyed() {
  PackModel model = Of({Fixed("label", Dtype::kI64, {}, 3), Strings("text", 2)}, 5);
  model.schema.keyed = true;
  // Keys of several lengths, with a separator and with a character beyond ASCII.
  model.keys = {"a", "b/2", std::string(40, 'k'), "\xC3\xA9", "last"};
  return model;
}

// Every type that a chunk stores as it is, NaN, a fill value, and strings; several chunks each.
PackModel Measured() {
  PackField heat = Fixed("heat", Dtype::kF32, {3}, 3);
  heat.fill_bits = std::bit_cast<std::uint32_t>(-999.0F);
  PackModel model = Of({heat, Fixed("half", Dtype::kF16, {5}, 3),
                        Fixed("brain", Dtype::kBf16, {2}, 3), Fixed("depth", Dtype::kI16, {3}, 3),
                        Fixed("wide", Dtype::kI64, {}, 3), Fixed("pixel", Dtype::kU8, {4}, 3),
                        Strings("text", 3)},
                       5);
  // Both zeros, NaN, the fill value alone in a sample, and values of very different sizes: each
  // counts in its own way.
  const float values[5][3] = {{-999.0F, 1.25F, 0.0F},
                              {std::numeric_limits<float>::quiet_NaN(), -7.5F, 3.0e7F},
                              {0.1F, -0.0F, 12.0F},
                              {-999.0F, -999.0F, -999.0F},
                              {2.0F, 1.0e-6F, -3.0F}};
  for (std::size_t s = 0; s < 5; ++s) {
    ByteWriter writer;
    for (const float value : values[s]) writer.Le(std::bit_cast<std::uint32_t>(value));
    model.samples[s][0] = writer.Release();
  }
  return model;
}

// A deviation that is small beside the mean, and values that are not finite; chunks so small that
// they are stored.
PackModel Pressures() {
  PackModel model = Of({Fixed("pressure", Dtype::kF64, {2}, 1)}, 11);
  for (std::size_t s = 0; s < 11; ++s) {
    ByteWriter writer;
    for (std::size_t i = 0; i < 2; ++i) {
      // From sums of squares, as version 1 has them, this deviation would come out wrong.
      double value = 101'325 + (i == 0 ? 0.01 : -0.01);
      // One of each kind in different chunks, which merging must not mix up.
      if (s == 1 && i == 0) value = std::numeric_limits<double>::infinity();
      if (s == 4 && i == 1) value = -std::numeric_limits<double>::infinity();
      if (s == 6 && i == 1) value = std::numeric_limits<double>::quiet_NaN();
      writer.Le(std::bit_cast<std::uint64_t>(value));
    }
    model.samples[s][0] = writer.Release();
  }
  return model;
}

// Integers of 64 bits whose differences are small beside what an f64 tells apart, or larger than
// such an integer; chunks so small that they are stored.
PackModel Times() {
  PackModel model = Of({Fixed("time", Dtype::kI64, {3}, 1), Fixed("end", Dtype::kI64, {2}, 1)}, 5);
  for (std::int64_t s = 0; s < 5; ++s) {
    ByteWriter times, ends;
    for (std::int64_t i = 0; i < 3; ++i) {
      // Nanoseconds since 1970: an f64 has steps of 256 there.
      times.Le(static_cast<std::uint64_t>(1'764'000'000'000'000'003 + (s * 3 + i) * 5 % 7));
    }
    // The smallest and the largest number in both orders: their difference does not fit an i64.
    const bool turned = s % 2 != 0;
    ends.Le(turned ? std::uint64_t{1} << 63 : (std::uint64_t{1} << 63) - 1);
    ends.Le(turned ? (std::uint64_t{1} << 63) - 1 : std::uint64_t{1} << 63);
    model.samples[static_cast<std::size_t>(s)] = {times.Release(), ends.Release()};
  }
  return model;
}

// The pack's id is the beginning of the SHA-256 of its name.
GoodPack Write(std::string name, const PackModel& model, PackWriterOptions options = {}) {
  const TestFolder folder;
  const Sha256Digest digest = Sha256(std::as_bytes(std::span<const char>(name)));
  PackId id{};
  std::copy_n(digest.begin(), id.size(), id.begin());
  // A random id, as packs have otherwise, would change the file at every run.
  options.id = id;
  return {std::move(name), WritePack(model, folder, options)};
}

GoodPack WriteLearned(std::string name, bool embed) {
  return Write(std::move(name), LearnablePictures(), {.profile = Profile::kLearned,
                                                      .predictor = GoldenPredictor(),
                                                      .embed_predictor = embed});
}

}  // namespace

std::shared_ptr<const Predictor> GoldenPredictor() { return LargerOfTwoPredictor(true); }

std::vector<GoodPack> MakeGoodPacks() {
  PackModel provenance = Of({Fixed("x", Dtype::kU8, {3}, 1)}, 1);
  provenance.schema.provenance = {{"source", "arithmetic"}, {"", ""}, {"note", "\xE2\x82\xAC"}};
  PackModel sequences = Of({Fixed("frame", Dtype::kU8, {8, 24}, 4)}, 6);
  // A chunk ends before sample 2 and before sample 3, although it has room.
  sequences.sequences = {2, 3};
  PackModel empty_strings = Of({Strings("text", 3)}, 4);
  for (auto& sample : empty_strings.samples) sample[0].clear();
  PackModel aligned = Of({Fixed("frame", Dtype::kU8, {8, 24}, 1)}, 2);
  // Payloads begin at multiples of 4096, so the file is mostly padding.
  aligned.schema.aligned = true;
  std::vector<GoodPack> packs = {
      Write("integers_v2", EveryType(false)),
      Write("floats_v2", EveryType(true)),
      Write("tiles_v2", Tiles()),
      Write("four_axes_v2", FourAxes()),
      Write("strings_v2", Of({Strings("text", 3)}, 7)),
      Write("empty_strings_v2", empty_strings),
      Write("keys_v2", Keyed()),
      Write("sequences_v2", sequences),
      Write("aligned_v2", aligned),
      Write("provenance_v2", provenance),
      Write("lossy_v2", Lossy()),
      // Two chunks of equal length, of which a broken pack is made.
      Write("swappable_v2", Of({Fixed("noise", Dtype::kU8, {4}, 1)}, 2)),
      Write("no_samples_v2", Of({Strings("text", 3)}, 0)),
      Write("fast_v2", Pictures(), {.profile = Profile::kFast}),
      Write("balanced_v2", Pictures()),
      Write("dense_v2", Pictures(), {.profile = Profile::kDense}),
      Write("brisk_v2", Slopes()),
      Write("statistics_v2", Measured(), {.statistics = true}),
      Write("pressures_v2", Pressures(), {.statistics = true}),
      Write("times_v2", Times(), {.statistics = true}),
      Write("wave_v2", WavefrontPictures(), {.profile = Profile::kDense}),
      Write("wave_wide_v2", WavefrontDepths(), {.profile = Profile::kDense}),
      WriteLearned("learned_v2", true),
      WriteLearned("learned_named_v2", false)};
  // A later version may write such a record, and this reader passes over it.
  PackEditor unknown(Write("unknown_record_v2", Keyed()).bytes);
  unknown.InsertUnknownRecord(1);
  packs.push_back({"unknown_record_v2", unknown.Bytes()});
  return packs;
}

Result<std::uint64_t> HashPack(std::span<const std::byte> bytes, std::vector<std::byte>& scratch,
                               const PackReadOptions& options) {
  const auto source = MemorySource(bytes);
  FOREBAY_ASSIGN(const PackFile pack, PackFile::Open(*source, options));
  if (scratch.size() < pack.ScratchBytes()) scratch.resize(pack.ScratchBytes());
  ByteWriter all;
  // Everything that a reader can ask for, in a fixed order: one hash finds any difference.
  all.Le(pack.samples());
  FOREBAY_ASSIGN(const std::vector<std::string> keys, pack.Keys(0, pack.samples()));
  for (const std::string& key : keys) all.String(key);
  for (std::uint64_t sample = 0; sample < pack.samples(); ++sample) {
    for (std::uint32_t field = 0; field < pack.schema().fields.size(); ++field) {
      FOREBAY_ASSIGN(const std::vector<std::byte> value, ReadField(pack, field, sample, scratch));
      all.Varint(value.size());
      all.Bytes(value);
    }
  }
  // Packs of version 1 have sums, from which mean and moment follow only approximately.
  if (pack.header().major == 1) {
    FOREBAY_ASSIGN(const std::vector<FieldSums> sums, pack.Sums());
    all.Bytes(WriteFieldSums(sums));
  } else {
    FOREBAY_ASSIGN(const std::vector<FieldStatistics> statistics, pack.Statistics());
    all.Bytes(WriteStatistics(statistics));
  }
  return Checksum(all.bytes());
}

}  // namespace forebay::compress
