// Where the job has a cap on requests, the reads of a pass that catalogues are of the same permits
// as all others: never more of them are in flight than the node may have.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/tar_text.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::request_cap_test {

// The most reads of all queues that were in flight at a time.
struct Flight {
  std::atomic<int> now = 0;
  std::atomic<int> most = 0;

  void Begin(int reads) {
    const int all = now += reads;
    int seen = most;
    while (all > seen && !most.compare_exchange_weak(seen, all)) {
    }
  }
};

class CountedQueue final : public io::IoQueue {
 public:
  CountedQueue(std::unique_ptr<io::IoQueue> inner, Flight& flight)
      : inner_(std::move(inner)), flight_(flight) {}
  Status Submit(std::span<const io::Operation> operations) override {
    FOREBAY_TRY(inner_->Submit(operations));
    flight_.Begin(static_cast<int>(operations.size()));
    return {};
  }
  std::size_t Wait(std::size_t count_min, std::vector<io::Completion>& completions,
                   std::optional<std::int64_t> timeout_ms) override {
    const std::size_t count = inner_->Wait(count_min, completions, timeout_ms);
    flight_.now -= static_cast<int>(count);
    return count;
  }
  std::size_t in_flight() const override { return inner_->in_flight(); }
  std::size_t depth() const override { return inner_->depth(); }

 private:
  const std::unique_ptr<io::IoQueue> inner_;
  Flight& flight_;
};

class CountedBackend final : public io::IoBackend {
 public:
  CountedBackend(io::IoBackend& inner, Flight& flight) : inner_(inner), flight_(flight) {}
  std::string_view name() const override { return "counted"; }
  Result<std::unique_ptr<io::Directory>> OpenDirectory(std::string_view path) override {
    return inner_.OpenDirectory(path);
  }
  Result<std::unique_ptr<io::IoQueue>> CreateQueue(const io::QueueOptions& options) override {
    FOREBAY_ASSIGN(auto queue, inner_.CreateQueue(options));
    return std::make_unique<CountedQueue>(std::move(queue), flight_);
  }

 private:
  io::IoBackend& inner_;
  Flight& flight_;
};

class RequestCapTest : public testing::Test {
 protected:
  RequestCapTest() {
    options_.source.name = "shards";
    options_.source.format = catalog::Format::kTar;
    options_.source.extent_bytes = 32 << 10;
    for (int shard = 0; shard < 5; ++shard) {
      std::string text;
      for (int i = 0; i < 40; ++i) {
        const int number = shard * 100 + i;
        text += catalog::TarFileText(
            std::to_string(number) + ".bin",
            catalog::PatternText(5'000, static_cast<std::uint64_t>(number)));
      }
      text += catalog::TarEndText();
      bytes_ += text.size();
      EXPECT_TRUE(memory_.AddFile("/gfs/shard" + std::to_string(shard) + ".tar",
                                  catalog::TextBytes(text))
                      .has_value());
    }
  }
  // Everything stays in RAM, so all reads are of the GFS.
  void Stage(std::uint32_t requests, bool has_request_cap) {
    flight_.most = 0;
    rig_.Stop();
    FOREBAY_EXPECT_OK(rig_.Start(options_, {.ram_bytes = 32 << 20,
                                            .request_bytes = 8 << 10,
                                            .scan_depth = 4,
                                            .requests = requests,
                                            .has_request_cap = has_request_cap}));
    FOREBAY_EXPECT_OK(rig_.StageAll());
    EXPECT_EQ(rig_.dataset().progress().gfs_bytes, bytes_);
    EXPECT_EQ(rig_.dataset().progress().staged_bytes, rig_.dataset().progress().total_bytes);
    FOREBAY_EXPECT_OK(rig_.VerifyAll());
  }

  io::MemoryBackend memory_;
  Flight flight_;
  CountedBackend backend_{memory_, flight_};
  DatasetOptions options_;
  std::uint64_t bytes_ = 0;
  StageRig rig_{backend_, ""};
};

TEST_F(RequestCapTest, APassHasNoMoreReadsInFlightThanTheNodeMay) {
  for (const std::uint32_t requests : {1U, 2U, 3U}) {
    Stage(requests, /*has_request_cap=*/true);
    EXPECT_EQ(flight_.most, static_cast<int>(requests));
    EXPECT_EQ(flight_.now, 0);
  }
}

TEST_F(RequestCapTest, WithoutACapAPassReadsAheadAsDeepAsItIsTold) {
  Stage(/*requests=*/1, /*has_request_cap=*/false);
  EXPECT_EQ(flight_.most, 4);
}

}  // namespace forebay::stage::request_cap_test
