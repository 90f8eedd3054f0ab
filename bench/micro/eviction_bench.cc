// How long readers wait for a batch while an epoch begins and the RAM cache searches, without a
// pause, for an extent to evict. Several streams in global order read a data set of many small
// extents, all of them in RAM; each begins shortly before the end of an epoch and ends shortly
// after the beginning of the next one. Meanwhile one thread publishes guests of another data set
// in the few pages that are left, so that each guest needs a search. A batch's time is from the
// pull until the session delivers it; nothing is pulled ahead, so no wait is hidden.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "server/io/testing/memory_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace {

using namespace forebay;  // NOLINT: a program, not a header
using Clock = std::chrono::steady_clock;

constexpr std::size_t kRecordBytes = 4;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kSamplesPerExtent = 1000;  // 4,000 bytes: an extent takes one page

struct Options {
  std::uint64_t extents = 100'000;
  std::uint32_t streams = 4;
  std::uint32_t batch = 256;
  std::uint64_t steps = 2'000;   // of each stream, before and after the beginning of the epoch
  std::uint64_t window = 128;    // of these, how many belong to the change, on either side
  std::uint32_t guests = 16;     // pages of RAM that guests share; 0: nothing is ever evicted
};

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

template <typename T>
T Require(Result<T> result, const char* what) {
  if (result.has_value()) return std::move(*result);
  std::fprintf(stderr, "eviction_bench: %s: %s\n", what, result.error().ToString().c_str());
  std::exit(1);
}

void Require(const Status& status, const char* what) {
  if (status.has_value()) return;
  std::fprintf(stderr, "eviction_bench: %s: %s\n", what, status.error().ToString().c_str());
  std::exit(1);
}

// Value at a share of the sorted times, 0.5 for the median.
double Quantile(std::vector<double> times, double share) {
  if (times.empty()) return 0;
  const auto index = static_cast<std::size_t>(share * static_cast<double>(times.size() - 1) + 0.5);
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(index));
  return times[index];
}

// Takes one batch at a time, as it is asked for, and says when it came.
class TimingSink final : public stream::BatchSink {
 public:
  void Deliver(std::span<const stream::AnsweredBatch> batches) override {
    const Clock::time_point now = Clock::now();
    const stream::AnsweredBatch& answered = batches.front();
    // A batch that failed has no time, so the figures would mean nothing.
    if (!answered.is_taken()) Require(answered.outcome.error(), "a batch failed");
    std::lock_guard lock(mutex_);
    came_at_ = now;
    id_ = answered.id;
    samples_ = answered.outcome->sample_ids.size();
    has_come_ = true;
    came_.notify_one();
  }
  void Closed() override {}
  struct Came {
    Clock::time_point at;
    std::uint64_t id = 0, samples = 0;
  };
  Came Wait() {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return has_come_; });
    has_come_ = false;
    return {.at = came_at_, .id = id_, .samples = samples_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  bool has_come_ = false;
  Clock::time_point came_at_;
  std::uint64_t id_ = 0, samples_ = 0;
};

// Seconds for each batch of one stream, around the change from epoch 0 to epoch 1.
std::vector<double> ReadAcrossTheChange(stream::StreamSession& session, TimingSink& sink,
                                        const Options& options) {
  const std::uint64_t in_epoch = session.spec().plan.steps();
  std::vector<double> times;
  for (std::uint64_t i = 0; i < 2 * options.steps; ++i) {
    const bool is_after = i >= options.steps;
    const std::uint64_t step = is_after ? i - options.steps : in_epoch - options.steps + i;
    const Clock::time_point begin = Clock::now();
    Require(session.Pull({.first = {.epoch = EpochId(is_after ? 1 : 0), .step = StepId(step)}}),
            "pulling");
    const TimingSink::Came came = sink.Wait();
    times.push_back(Seconds(came.at - begin));
    if (came.samples != options.batch) Require(Error(ErrorCode::kInternal, "short"), "a batch");
    Require(session.Release({&came.id, 1}), "releasing");
  }
  return times;
}

// Publishes one guest after another until told to stop; returns the seconds that each search took.
// The first `free_pages` guests need none.
// No stream will ever read a guest, so guests go before all extents of the streams; but the cache
// has to ask for each extent's next use before it knows that.
std::vector<double> PublishGuests(tier::ExtentCache& cache, std::uint32_t free_pages,
                                  const std::atomic<bool>& must_stop) {
  std::vector<double> times;
  for (std::uint32_t i = 0; !must_stop; ++i) {
    const Clock::time_point begin = Clock::now();
    auto block = Require(cache.AllocateRam(kPageBytes, fetch::kNeverUsed), "memory for a guest");
    if (i >= free_pages) times.push_back(Seconds(Clock::now() - begin));
    const tier::ExtentKey key{.dataset = tier::DatasetHash("guests"), .extent = ExtentId(i),
                              .identity = i};
    Require(cache.PublishRam(key, std::move(block), {}, /*is_guest=*/true), "publishing a guest");
  }
  return times;
}

std::unique_ptr<stream::ServeFixture> StageRecords(io::MemoryBackend& backend,
                                                   const Options& options) {
  {
    std::vector<std::byte> file(options.extents * kSamplesPerExtent * kRecordBytes);
    for (std::uint64_t i = 0; i < file.size() / kRecordBytes; ++i) {
      const auto record = static_cast<std::uint32_t>(i);
      std::memcpy(file.data() + i * kRecordBytes, &record, kRecordBytes);
    }
    Require(backend.AddFile("/gfs/data.bin", file), "writing the data set");
  }
  stream::ServeOptions serve;
  // The fixture keeps 6 % of RAM free of homes; TakeAllBut takes what is too much of that.
  serve.ram_bytes = options.extents * kPageBytes / 93 * 100 + (1 << 20);
  serve.slot_bytes = 64 << 20;
  serve.extent_bytes = kSamplesPerExtent * kRecordBytes;
  auto fixture = Require(stream::ServeFixture::Create(backend, kRecordBytes, serve), "starting");
  Require(fixture->StageAll(), "staging");
  return fixture;
}

// Occupies the free memory of the arena but for so many pages.
std::vector<tier::ArenaBlock> TakeAllBut(tier::RamArena& arena, std::uint64_t pages) {
  std::vector<tier::ArenaBlock> taken;
  while (arena.capacity_bytes() - arena.used_bytes() > pages * kPageBytes) {
    taken.push_back(Require(arena.Allocate(kPageBytes), "occupying memory"));
  }
  return taken;
}

int Run(const Options& options) {
  const Clock::time_point begin = Clock::now();
  io::MemoryBackend backend;
  const auto fixture = StageRecords(backend, options);
  const auto occupied = TakeAllBut(fixture->arena(), options.guests);
  const std::uint64_t staged = fixture->cache().stats(tier::TierKind::kRam).extents;
  if (staged != options.extents) {
    std::fprintf(stderr, "eviction_bench: %lu extents are in RAM, not %lu\n", staged,
                 options.extents);
    return 1;
  }
  std::printf("%lu extents, %lu samples in RAM after %.1f s; %u streams, batch %u\n", staged,
              staged * kSamplesPerExtent, Seconds(Clock::now() - begin), options.streams,
              options.batch);

  std::vector<std::unique_ptr<TimingSink>> sinks;
  std::vector<std::shared_ptr<stream::StreamSession>> sessions;
  for (std::uint32_t i = 0; i < options.streams; ++i) {
    const stream::ServeFixture::Ask ask{.batch = options.batch,
                                        .name = "stream" + std::to_string(i), .seed = i};
    auto request = Require(fixture->Request(ask), "describing a stream");
    auto spec = Require(stream::ResolveStream(fixture->dataset(), request), "resolving");
    sinks.push_back(std::make_unique<TimingSink>());
    sessions.push_back(
        Require(fixture->registry().Open(std::move(spec), sinks.back().get()), "opening"));
  }

  std::atomic<bool> must_stop = false;
  std::vector<double> searches;
  std::thread guests([&] {
    if (options.guests > 0) searches = PublishGuests(fixture->cache(), options.guests, must_stop);
  });
  std::vector<std::vector<double>> times(options.streams);
  std::vector<std::thread> readers;
  for (std::uint32_t i = 0; i < options.streams; ++i) {
    readers.emplace_back([&, i] {
      times[i] = ReadAcrossTheChange(*sessions[i], *sinks[i], options);
    });
  }
  for (std::thread& reader : readers) reader.join();
  must_stop = true;
  guests.join();
  for (const auto& session : sessions) session->Close();

  std::vector<double> epoch, change;
  double first_batch = 0;
  for (const std::vector<double>& stream : times) {
    for (std::uint64_t i = 0; i < stream.size(); ++i) {
      const bool is_change = i + options.window >= options.steps &&
                             i < options.steps + options.window;
      (is_change ? change : epoch).push_back(stream[i]);
    }
    first_batch = std::max(first_batch, stream[options.steps]);
  }
  const double median = Quantile(epoch, 0.5), p99 = Quantile(change, 0.99);
  const tier::ExtentCache::TierStats ram = fixture->cache().stats(tier::TierKind::kRam);
  std::printf("evictions: %lu in %zu searches, median %.3f ms, longest %.3f ms\n", ram.evictions,
              searches.size(), Quantile(searches, 0.5) * 1e3, Quantile(searches, 1) * 1e3);
  std::printf("within the epochs: %zu batches, median %.1f us, p99 %.1f us\n", epoch.size(),
              median * 1e6, Quantile(epoch, 0.99) * 1e6);
  std::printf("around the change: %zu batches, median %.1f us, p99 %.1f us, longest %.1f us\n",
              change.size(), Quantile(change, 0.5) * 1e6, p99 * 1e6, Quantile(change, 1) * 1e6);
  std::printf("longest first batch of an epoch: %.1f us\n", first_batch * 1e6);
  std::printf("p99 around the change / median of the epochs: %.2f (goal <= 2)\n", p99 / median);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times of batches over an epoch change while the cache evicts.");
  app.add_option("--extents", options.extents, "extents in RAM, of 1,000 samples each");
  app.add_option("--streams", options.streams, "streams, one thread each");
  app.add_option("--batch", options.batch, "samples of a batch");
  app.add_option("--steps", options.steps, "batches before the change, and as many after it");
  app.add_option("--window", options.window, "of these, how many count as around the change");
  app.add_option("--guests", options.guests, "pages for guests; 0: nothing is evicted");
  CLI11_PARSE(app, argc, argv);
  if (options.window >= options.steps || options.streams == 0 ||
      options.steps * options.batch > options.extents * kSamplesPerExtent) {
    std::fprintf(stderr, "eviction_bench: --window must be below --steps, --streams above 0, and "
                         "an epoch must have --steps batches\n");
    return 2;
  }
  return Run(options);
}
