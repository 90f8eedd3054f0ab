// Streams over a data set whose format is catalogued by a pass over its bytes, from the files to
// the batches: lines of text, whose samples have any size.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kFiles = 3;
constexpr std::uint64_t kLines = 400;  // samples of each file

class ScanStreamTest : public ::testing::Test {
 protected:
  ScanStreamTest() {
    EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value());
    for (std::uint64_t file = 0; file < kFiles; ++file) {
      std::string text;
      for (std::uint64_t i = 0; i < kLines; ++i) {
        lines_.push_back(LineOf(file * kLines + i));
        text += lines_.back() + (i % 7 == 0 ? "\r\n" : "\n");
        if (i % 11 == 0) text += " \n";
      }
      Add(file, text);
    }
  }

  static std::string LineOf(std::uint64_t sample) {
    return "{\"id\": " + std::to_string(sample) + ", \"text\": \"" +
           std::string(sample * 37 % 900, static_cast<char>('a' + sample % 26)) + "\"}";
  }
  void Add(std::uint64_t file, const std::string& text) {
    const std::string path = "/gfs/part" + std::to_string(file) + ".jsonl";
    ASSERT_TRUE(backend_.AddFile(path, std::as_bytes(std::span(text))).has_value());
    file_bytes_[path] = text.size();
  }
  std::uint64_t FileBytes() const {
    std::uint64_t total = 0;
    for (const auto& [path, bytes] : file_bytes_) total += bytes;
    return total;
  }

  // Serves the files, as a daemon of its own; the one before ends.
  void Serve(ServeOptions options) {
    serve_.reset();
    options.source = catalog::DatasetSource();
    options.extent_bytes = 16 << 10;
    auto made = ServeFixture::Create(backend_, 0, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
  }

  // One epoch; every line must come once, without its line end.
  void ExpectRightEpoch(const ServeFixture::Ask& ask) {
    const std::unique_ptr<CollectingSink> sink = serve_->MakeSink();
    auto opened = serve_->Open(ask, *sink);
    ASSERT_TRUE(opened.has_value()) << opened.error().ToString();
    StreamSession& session = **opened;
    std::set<std::uint64_t> seen;
    for (std::uint64_t step = 0; step < session.spec().plan.steps(); ++step) {
      ASSERT_TRUE(
          session.Pull({.first = {.epoch = EpochId(0), .step = StepId(step)}}).has_value());
      ASSERT_TRUE(sink->WaitFor(1));
      ASSERT_TRUE(sink->errors().empty()) << sink->errors().front().ToString();
      const CollectingSink::Taken batch = sink->TakeBatches().front();
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        EXPECT_TRUE(seen.insert(batch.sample_ids[i]).second) << batch.sample_ids[i];
        EXPECT_EQ(batch.payload[i], lines_.at(batch.sample_ids[i]));
      }
      ASSERT_TRUE(session.Release({&batch.id, 1}).has_value());
    }
    EXPECT_EQ(seen.size(), lines_.size());
    session.Close();
  }
  void ExpectRightEpochs() {
    for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
      for (const OrderMode mode :
           {OrderMode::kSequential, OrderMode::kBlock, OrderMode::kGlobal}) {
        ExpectRightEpoch({.batch = 32, .delivery = delivery, .mode = mode,
                          .tail = TailPolicy::kShort});
      }
    }
    EXPECT_EQ(serve_->slots().used_bytes(), 0U) << "slot memory leaked";
  }

  io::MemoryBackend backend_;
  std::vector<std::string> lines_;  // by sample
  std::map<std::string, std::uint64_t> file_bytes_;
  std::unique_ptr<ServeFixture> serve_;
};

TEST_F(ScanStreamTest, EveryLineComesOnceInEveryOrderAndDelivery) {
  Serve({});
  ASSERT_TRUE(serve_->StageAll().has_value());
  EXPECT_EQ(serve_->dataset().catalog()->format(), catalog::Format::kJsonLines);
  EXPECT_GT(serve_->dataset().catalog()->extent_count(), 30U);
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, FileBytes()) << "each byte is read once";
  ExpectRightEpochs();
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, FileBytes());
}

TEST_F(ScanStreamTest, LinesComeFromSsdToo) {
  const ServeOptions options = {.ram_bytes = 384 << 10, .ssd_bytes = 8 << 20, .persist = true};
  Serve(options);
  const Status staged = serve_->StageAll();
  ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
  EXPECT_GT(serve_->cache().stats(tier::TierKind::kSsd).extents, 0U);
  ExpectRightEpochs();
  // The next daemon makes the same catalog, and finds its extents.
  const std::uint64_t fingerprint = serve_->dataset().catalog()->fingerprint();
  Serve(options);
  ASSERT_TRUE(serve_->StageAll().has_value());
  EXPECT_EQ(serve_->dataset().catalog()->fingerprint(), fingerprint);
  ExpectRightEpochs();
}

TEST_F(ScanStreamTest, ALineThatIsTooLongFailsTheDataSetByName) {
  Add(1, LineOf(0) + "\n" + std::string(20'000, 'x') + "\n");
  Serve({});
  const Status staged = serve_->StageAll();
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("'part1.jsonl' at offset"));
  EXPECT_THAT(staged.error().message(), HasSubstr("line 2 has more than 16384 bytes"));
}

}  // namespace
}  // namespace forebay::stream
