// PackedStreamTest: streams over a pack, and what they must bring. For *_test.cc only.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/testing/pack_test_model.h"
#include "server/catalog/pack/pack_table.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream {

using compress::MakeModel;
using compress::PackModel;

inline std::string TextOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A movie of `samples` frames in chunks of 8.
inline PackModel Movie(std::size_t samples, std::uint32_t rows = 32, std::uint32_t columns = 48) {
  PackModel model;
  compress::PackField field;
  field.name = "frame";
  field.kind = compress::FieldKind::kImage;
  field.dtype = Dtype::kU8;
  field.rank = 2;
  field.extent = field.tile = {rows, columns, 1, 1};
  model.schema.fields = {field};
  for (std::size_t s = 0; s < samples; ++s) {
    std::vector<std::byte> frame(std::size_t{rows} * columns);
    for (std::size_t i = 0; i < frame.size(); ++i) {
      frame[i] =
          static_cast<std::byte>((i / columns * 3 + i % columns * 2 + s + (i * s) % 5) & 0xFF);
    }
    model.samples.push_back({frame});
  }
  return model;
}

// Of a movie of frames of 64 x 96: worth leaving samples out.
inline constexpr std::uint64_t kLargeUnitBytes = 8 * 64 * 96 + 256;

// Kept units that hold a part of their samples; all that are kept must be sound.
inline std::size_t KeptParts(fetch::DecodedCache& decoded) {
  std::size_t parts = 0;
  const std::uint64_t units = decoded.stats().units;
  for (std::uint64_t i = 0; i < units; ++i) {
    const auto next = decoded.ScrubNext();
    EXPECT_TRUE(next.has_value() && next->is_sound);
    if (!next.has_value()) break;
    const fetch::UnitRef unit = decoded.Find(next->key);
    parts += unit && unit->left_out > 0 ? 1 : 0;
  }
  return parts;
}

class PackedStreamTest : public ::testing::Test {
 protected:
  PackedStreamTest() { EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value()); }

  void Start(const PackModel& model, ServeOptions options = {}) {
    model_ = model;
    ASSERT_TRUE(
        backend_.AddFile("/gfs/data.pack", compress::WritePack(model, folder_)).has_value());
    Serve(std::move(options));
  }
  // A pack with a wrong byte in one chunk, to be served.
  void AddDamagedPack(const PackModel& model, std::size_t chunk) {
    model_ = model;
    std::vector<std::byte> bytes = compress::WritePack(model, folder_);
    const auto source = compress::MemorySource(bytes);
    const auto pack = compress::PackFile::Open(*source);
    ASSERT_TRUE(pack.has_value());
    const compress::ChunkEntry& entry = pack->index().chunks[chunk];
    bytes[entry.offset + entry.head_bytes + 9] ^= std::byte{1};
    ASSERT_TRUE(backend_.AddFile("/gfs/data.pack", bytes).has_value());
  }
  void Serve(ServeOptions options) {
    options.source = catalog::DatasetSource();
    options.source->format = catalog::Format::kPack;
    auto made = ServeFixture::Create(backend_, 0, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    const Status staged = serve_->StageAll();
    ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
    sink_ = serve_->MakeSink();
  }

  std::shared_ptr<StreamSession> Open(const ServeFixture::Ask& ask) {
    auto session = serve_->Open(ask, *sink_);
    EXPECT_TRUE(session.has_value()) << (session ? "" : session.error().ToString());
    return session ? *session : nullptr;
  }

  void PullEpoch(StreamSession& session, std::uint32_t epoch) {
    for (std::uint64_t step = 0; step < session.spec().plan.steps(); ++step) {
      const std::size_t before = sink_->batches().size();
      ASSERT_TRUE(session.Pull({.first = {.epoch = EpochId(epoch), .step = StepId(step)}})
                      .has_value());
      ASSERT_TRUE(sink_->WaitFor(before + 1));
      ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
      const std::uint64_t id = sink_->batches().back().id;
      ASSERT_TRUE(session.Release({&id, 1}).has_value());
    }
  }

  void ReleaseAll(StreamSession& session) {
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
      ASSERT_TRUE(session.Release({&batch.id, 1}).has_value());
    }
  }

  // Makes a byte of a chunk wrong where it lies in RAM; false where it does not.
  bool DamageInRam(std::uint64_t number) {
    const catalog::PackChunk chunk = serve_->dataset().catalog()->packs()->chunk(number);
    const tier::ExtentRef extent = serve_->cache().FindOn(serve_->dataset().key(chunk.extent),
                                                          tier::TierKind::kRam);
    if (!extent) return false;
    extent->block.bytes()[chunk.image_offset + chunk.entry.head_bytes + 40] ^= std::byte{4};
    return true;
  }

  // Every field of every sample that came; returns how many different samples that were.
  std::size_t ExpectRightBytes() {
    std::set<std::uint64_t> seen;
    for (const CollectingSink::Taken& batch : sink_->batches()) {
      EXPECT_EQ(batch.fields.size(), model_.schema.fields.size());
      for (std::size_t field = 0; field < batch.fields.size(); ++field) {
        EXPECT_EQ(batch.fields[field].size(), batch.sample_ids.size());
        for (std::size_t i = 0; i < batch.fields[field].size(); ++i) {
          const std::uint64_t sample = batch.sample_ids[i];
          seen.insert(sample);
          EXPECT_EQ(batch.fields[field][i], TextOf(model_.samples[sample][field]))
              << "sample " << sample << ", field " << field;
        }
      }
    }
    return seen.size();
  }
  DecodeCounts Decoded() const {
    DecodeCounts sum;
    for (const CollectingSink::Taken& batch : sink_->batches()) sum.Add(batch.decode);
    return sum;
  }
  std::uint64_t PayloadBytes() const {
    std::uint64_t bytes = 0;
    for (const CollectingSink::Taken& batch : sink_->batches()) bytes += batch.payload_bytes;
    return bytes;
  }

  compress::TestFolder folder_;
  io::MemoryBackend backend_;
  PackModel model_;
  std::unique_ptr<CollectingSink> sink_;
  std::unique_ptr<ServeFixture> serve_;
};

}  // namespace forebay::stream
