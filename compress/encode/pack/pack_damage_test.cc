// Damaged packs: every flip and every truncation is found, and costs its own samples only. A pack
// that cannot be read for the moment is not taken for a damaged one.
#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <random>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_walk.h"
#include "compress/encode/testing/pack_test_model.h"
#include "proto/contract/checksum.h"

namespace forebay::compress::pack_damage_test {

constexpr std::uint32_t kSeed = 20261121;

// A small pack with all kinds of fields.
PackModel SmallModel() {
  PackModel model = MakeModel(4, kSeed);
  model.sequences = {2};
  model.schema.fields[0].extent = {4, 5, 3, 1};
  model.schema.fields[0].tile = {3, 5, 3, 1};
  model.schema.fields[1].extent = model.schema.fields[1].tile = {3, 3, 1, 1};
  for (auto& sample : model.samples) {
    sample[0].resize(60);
    sample[1].resize(18);
  }
  return model;
}

enum class Outcome { kRight, kRefused, kWrong };

// Reads every field of every sample of `bytes`.
Outcome ReadAll(std::span<const std::byte> bytes, const PackModel& model, std::size_t* refused) {
  static std::vector<std::byte> scratch;  // large, and as the last call left it
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  if (!pack.has_value()) return Outcome::kRefused;
  if (pack->samples() != model.samples.size()) return Outcome::kWrong;
  if (scratch.size() < pack->ScratchBytes()) scratch.resize(pack->ScratchBytes());
  Outcome outcome = Outcome::kRight;
  for (std::size_t s = 0; s < model.samples.size(); ++s) {
    for (std::uint32_t field = 0; field < model.schema.fields.size(); ++field) {
      const auto value = ReadField(*pack, field, s, scratch);
      if (!value.has_value()) {
        EXPECT_EQ(value.error().code(), ErrorCode::kDataLoss) << value.error().message();
        ++*refused;
        outcome = Outcome::kRefused;
      } else if (*value != model.samples[s][field]) {
        return Outcome::kWrong;
      }
    }
  }
  const auto keys = pack->Keys(0, model.samples.size());
  if (!keys.has_value()) return Outcome::kRefused;
  return *keys == model.keys ? outcome : Outcome::kWrong;
}

TEST(PackDamageTest, EveryFlippedBitIsFound) {
  const TestFolder folder;
  const PackModel model = SmallModel();
  auto bytes = WritePack(model, folder);
  ASSERT_LT(bytes.size(), 4096U);
  std::size_t unread = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    std::size_t refused = 0;
    const Outcome outcome = ReadAll(bytes, model, &refused);
    ASSERT_NE(outcome, Outcome::kWrong) << "bit " << bit;
    // A chunk's damage costs no more than its samples of one field.
    ASSERT_LE(refused, 4U) << "bit " << bit;
    unread += outcome == Outcome::kRight ? 1 : 0;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  // Padding between records is not looked at: less than 8 bytes a record.
  EXPECT_LT(unread, bytes.size() * 8 / 12);
}

TEST(PackDamageTest, EveryTruncationIsFound) {
  const TestFolder folder;
  const PackModel model = SmallModel();
  const auto bytes = WritePack(model, folder);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto source = MemorySource(std::span(bytes).first(length));
    const auto pack = PackFile::Open(*source);
    ASSERT_FALSE(pack.has_value()) << length;
  }
}

TEST(PackDamageTest, ChunksDoNotPassForOneAnother) {
  const TestFolder folder;
  PackModel model = SmallModel();
  model.sequences = {2};  // chunks of two samples
  for (auto& sample : model.samples) sample = model.samples[0];  // all of them look alike
  auto bytes = WritePack(model, folder);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  const auto chunks = pack->Chunks(0, 0, 4);
  ASSERT_GE(chunks.size(), 3U);
  const ChunkEntry& a = chunks[0];
  const ChunkEntry& b = chunks[2];  // the same tile of later samples
  ASSERT_EQ(a.payload_bytes, b.payload_bytes);
  const std::size_t length = a.head_bytes + static_cast<std::size_t>(a.payload_bytes);
  std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(a.offset),
                   bytes.begin() + static_cast<std::ptrdiff_t>(a.offset + length),
                   bytes.begin() + static_cast<std::ptrdiff_t>(b.offset));
  std::vector<std::byte> scratch(pack->ScratchBytes());
  const auto value = ReadField(*pack, 0, 0, scratch);
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().code(), ErrorCode::kDataLoss);
  EXPECT_NE(value.error().message().find("field image, samples 0 to 1"), std::string::npos)
      << value.error().message();
}

TEST(PackDamageTest, ChunksOfAnotherPackDoNotPass) {
  const TestFolder folder;
  PackModel model = SmallModel();
  auto mine = WritePack(model, folder);
  std::swap(model.samples[0][0], model.samples[1][0]);  // the same bytes in another order
  const auto other = WritePack(model, folder, {.id = PackId{std::byte{2}}});
  const auto source = MemorySource(mine);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  const ChunkEntry entry = pack->Chunks(0, 0, 1)[0];
  const auto at = static_cast<std::ptrdiff_t>(entry.offset);
  const auto length = static_cast<std::ptrdiff_t>(entry.head_bytes + entry.payload_bytes);
  ASSERT_FALSE(std::equal(mine.begin() + at, mine.begin() + at + length, other.begin() + at));
  std::copy(other.begin() + at, other.begin() + at + length, mine.begin() + at);
  std::vector<std::byte> scratch(pack->ScratchBytes());
  const auto value = ReadField(*pack, 0, 0, scratch);
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().code(), ErrorCode::kDataLoss);
}

// The samples that are recovered of a pack whose second chunk is that of another pack of equal
// schema and provenance, and of chunks of equal size.
std::uint64_t RecoveredOfSpliced(std::optional<PackId> id) {
  const TestFolder folder;
  std::mt19937 random(kSeed);
  const auto write = [&](const std::string& name) {
    PackModel model;
    model.schema.fields = {{.name = "noise", .dtype = Dtype::kU8, .rank = 1,
                            .extent = {8, 1, 1, 1}, .fill_bits = {}, .bound = {},
                            .samples_per_chunk = 1, .tile = {8, 1, 1, 1}}};
    for (int sample = 0; sample < 3; ++sample) {
      auto& value = model.samples.emplace_back().emplace_back(8);
      for (std::byte& byte : value) byte = static_cast<std::byte>(random() & 0xFF);
    }
    auto writer = PackWriter::Create(folder.Path(name), model.schema, {.id = id});
    EXPECT_TRUE(writer.has_value() && AddAll(model, **writer, 3).has_value() &&
                (*writer)->Finish().has_value());
    return ReadFile(folder.Path(name));
  };
  auto mine = write("mine.fbp");
  const auto other = write("other.fbp");
  {
    const auto mine_source = MemorySource(mine), other_source = MemorySource(other);
    const auto pack = PackFile::Open(*mine_source), its = PackFile::Open(*other_source);
    EXPECT_TRUE(pack.has_value() && its.has_value());
    EXPECT_EQ(pack->schema_fingerprint(), its->schema_fingerprint());
    EXPECT_EQ(WriterFingerprint(pack->header()), WriterFingerprint(its->header()));
    const ChunkEntry entry = pack->index().chunks[1];
    EXPECT_EQ(entry.offset, its->index().chunks[1].offset);
    EXPECT_EQ(entry.payload_bytes, its->index().chunks[1].payload_bytes);
    const auto at = static_cast<std::ptrdiff_t>(entry.offset);
    std::copy_n(other.begin() + at, entry.head_bytes + entry.payload_bytes, mine.begin() + at);
  }
  mine.resize(mine.size() - kFooterBytes);
  const auto source = MemorySource(mine);
  const auto recovered = PackFile::Recover(*source);
  EXPECT_TRUE(recovered.has_value());
  return recovered.has_value() ? recovered->samples() : 0;
}

TEST(PackDamageTest, RecoveryTakesNoChunkOfAnotherPackOfEqualSchema) {
  EXPECT_EQ(RecoveredOfSpliced(std::nullopt), 1U) << "the second is of the other pack";
  // Nothing but the id tells them apart: packs of one id, as those of version 1 were, would pass.
  EXPECT_EQ(RecoveredOfSpliced(kTestPackId), 3U);
}

// Without each chunk the one before it reaches beyond the complete samples: recovery that looks at
// all of them once for each takes 17 s of CPU for these 21 MB.
TEST(PackDamageTest, RecoveryOfOverlappingHeadsTakesTimeInProportionToThem) {
  const auto bytes = OverlappingHeads(100'000);
  const auto source = MemorySource(bytes);
  const std::clock_t begin = std::clock();
  const auto pack = PackFile::Recover(*source);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(pack.has_value()) << pack.error().message();
  EXPECT_EQ(pack->samples(), 0U);
  EXPECT_TRUE(pack->index().chunks.empty());
  EXPECT_LT(seconds, 5);
}

// A damaged payload costs its own samples even where the index is gone.
TEST(PackDamageTest, RecoveryGoesOnBehindADamagedPayload) {
  const TestFolder folder;
  const PackModel model = SmallModel();
  auto bytes = WritePack(model, folder);
  {
    const auto source = MemorySource(bytes);
    const auto pack = PackFile::Open(*source);
    ASSERT_TRUE(pack.has_value());
    const ChunkEntry& entry = pack->Chunks(0, 0, 1)[0];
    bytes[static_cast<std::size_t>(entry.offset) + entry.head_bytes] ^= std::byte{1};
  }
  bytes.resize(bytes.size() - kFooterBytes);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Recover(*source);
  ASSERT_TRUE(pack.has_value()) << pack.error().message();
  ASSERT_EQ(pack->samples(), 4U);
  std::vector<std::byte> scratch(pack->ScratchBytes());
  EXPECT_FALSE(ReadField(*pack, 0, 0, scratch).has_value());
  EXPECT_TRUE(ReadField(*pack, 0, 3, scratch).has_value());
  EXPECT_TRUE(ReadField(*pack, 1, 0, scratch).has_value());
}

// Puts the header's checksum right again.
void Fix(std::vector<std::byte>& bytes) {
  const std::uint64_t checksum = Checksum(std::span(bytes).first(kPackHeaderBytes - 8));
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[kPackHeaderBytes - 8 + i] = static_cast<std::byte>(checksum >> (8 * i) & 0xFF);
  }
}

TEST(PackDamageTest, NewerVersionsAndUnknownFeaturesAreRefusedByName) {
  const TestFolder folder;
  const auto bytes = WritePack(SmallModel(), folder);
  for (const std::size_t at : {std::size_t{8}, std::size_t{16}}) {  // major version, features
    auto newer = bytes;
    newer[at] = at == 8 ? std::byte{kPackMajor + 1} : std::byte{1};
    Fix(newer);
    const auto source = MemorySource(newer);
    const auto pack = PackFile::Open(*source);
    ASSERT_FALSE(pack.has_value());
    EXPECT_EQ(pack.error().code(), ErrorCode::kUnimplemented);
  }
  const std::vector<std::byte> text(100, std::byte{'a'});
  const auto source = MemorySource(text);
  EXPECT_EQ(PackFile::Open(*source).error().code(), ErrorCode::kInvalidArgument);
}

TEST(PackDamageTest, HugeSizesInTheHeaderAreRefusedBeforeAllocation) {
  const TestFolder folder;
  const auto bytes = WritePack(SmallModel(), folder);
  for (std::size_t at = 24; at < 32; ++at) {  // bytes of the schema
    auto huge = bytes;
    huge[at] = std::byte{0xFF};
    Fix(huge);
    const auto source = MemorySource(huge);
    const auto pack = PackFile::Open(*source);
    ASSERT_FALSE(pack.has_value());
    EXPECT_EQ(pack.error().code(), ErrorCode::kDataLoss);
  }
}

// A file of which a range cannot be read for the moment.
class FailingSource : public ByteSource {
 public:
  FailingSource(std::span<const std::byte> bytes, std::uint64_t fails_from)
      : bytes_(bytes), fails_from_(fails_from) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
    if (offset + bytes.size() > fails_from_) return Error::FromErrno(EIO, "reading");
    std::ranges::copy(bytes_.subspan(offset, bytes.size()), bytes.begin());
    return {};
  }

 private:
  const std::span<const std::byte> bytes_;
  const std::uint64_t fails_from_;
};

// A record that cannot be read may be whole: PackWriter::Resume must not cut it off.
TEST(PackDamageTest, AWalkTellsWhatCannotBeReadFromWhatIsDamaged) {
  const TestFolder folder;
  const PackModel model = MakeModel(40, kSeed);
  const auto whole = WritePack(model, folder);
  const FailingSource source(whole, whole.size() / 2);
  const auto sound = MemorySource(whole);
  const auto pack = PackFile::Open(*sound);
  ASSERT_TRUE(pack.has_value());
  const std::uint64_t begin = pack->index().chunks.front().offset;
  const auto identity = PackIdentity(std::span(whole).first(begin));
  PackWalk failing(source, pack->schema(), identity, begin, true);
  while (failing.Next()) continue;
  ASSERT_FALSE(failing.status().has_value());
  EXPECT_EQ(failing.status().error().system_errno(), EIO);
  auto bytes = whole;
  bytes[bytes.size() / 2] ^= std::byte{1};
  const auto flipped = MemorySource(bytes);
  PackWalk damaged(*flipped, pack->schema(), identity, begin, true);
  while (damaged.Next()) continue;
  EXPECT_TRUE(damaged.status().has_value());
}

}  // namespace forebay::compress::pack_damage_test
