// A checkpoint is written in two phases while training goes on. First every rank that holds tensors
// writes its shard on a thread. When all have ended, rank 0 publishes, also on a thread. No rank
// waits for another one: each contributes a vote (unfinished, failed) to a reduction that the loop
// makes after every step anyway, and all ranks advance together when the sum of the votes says so.
#include "trainer/core/checkpoint/checkpoint_writer.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"
#include "trainer/core/without_exceptions.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

// All ranks make the folder: whichever comes first does.
Result<ShardFacts> WriteOwnShard(const fs::path& folder, std::size_t shard,
                                 std::span<const CheckpointTensor> tensors) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) return Error::FromErrno(code.value(), folder.string());
  return WriteShard(folder / ShardName(shard), tensors);
}

// A future that was never started is not ready.
template <typename T>
bool Ready(const std::future<T>& work) {
  return work.valid() && work.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// A shard's facts as numbers that add up exactly with the zeros of the other ranks.
constexpr std::size_t kNumbersOfShard = 4;
constexpr unsigned kHalf = 32;
constexpr std::uint64_t kLowHalf = 0xFFFF'FFFF;

// A 64-bit hash does not fit into a double, its halves do.
std::array<double, kNumbersOfShard> ToNumbers(const ShardFacts& facts) {
  return {static_cast<double>(facts.bytes >> kHalf), static_cast<double>(facts.bytes & kLowHalf),
          static_cast<double>(facts.hash >> kHalf), static_cast<double>(facts.hash & kLowHalf)};
}

ShardFacts FactsOf(std::span<const double> numbers) {
  const auto whole = [&](std::size_t high) {
    return (static_cast<std::uint64_t>(numbers[high]) << kHalf) |
           static_cast<std::uint64_t>(numbers[high + 1]);
  };
  return {.bytes = whole(0), .hash = whole(2)};
}

}  // namespace

// Numbers the shards, takes the tensors, and starts the thread that writes this rank's.
Status CheckpointWriter::Begin(Checkpoint checkpoint, const CheckpointPlace& place) {
  FOREBAY_CHECK(!busy());
  const std::uint32_t rank = communicator_.rank();
  has_shard_ = !checkpoint.tensors.empty();
  // Shards are numbered by the ranks that have tensors. With several replicas only the first has.
  std::vector<double> holders(communicator_.size());
  holders[rank] = has_shard_ ? 1 : 0;
  FOREBAY_TRY(communicator_.AllReduceSum(std::span<double>(holders)));
  shard_ = static_cast<std::size_t>(std::accumulate(holders.begin(), holders.begin() + rank, 0.0));
  place_ = place;
  error_.reset();
  path_.clear();
  // The tensors go to the thread; the manifest has the rest of the state.
  std::vector<CheckpointTensor> tensors = std::exchange(checkpoint.tensors, {});
  manifest_.state = std::move(checkpoint);
  manifest_.shards.assign(
      static_cast<std::size_t>(std::accumulate(holders.begin(), holders.end(), 0.0)), {});
  phase_ = Phase::kShards;
  // A rank without tensors has nothing to write, and votes that it is finished.
  if (!has_shard_) return {};
  // The task frees the copies as soon as they are written.
  const fs::path folder = UnpublishedFolder(place.folder, manifest_.state.global_step);
  auto write = [folder, shard = shard_, taken = std::move(tensors)]() mutable {
    const std::vector<CheckpointTensor> own = std::move(taken);
    return WithoutExceptions(folder.string(),
                             [&] { return WriteOwnShard(folder, shard, own); });
  };
  const Status begun = WithoutExceptions(folder.string(), [&]() -> Status {
    writing_ = std::async(std::launch::async, std::move(write));
    return {};
  });
  if (!begun.has_value()) error_ = begun.error();  // no thread is to be had
  return {};
}

// Takes the results of what has ended.
void CheckpointWriter::Collect() {
  if (Ready(writing_)) {
    const Result<ShardFacts> facts = writing_.get();
    if (facts.has_value()) {
      manifest_.shards[shard_] = *facts;
    } else {
      error_ = facts.error();
    }
  }
  if (Ready(publishing_)) {
    Result<fs::path> path = publishing_.get();
    if (path.has_value()) {
      path_ = *std::move(path);
    } else {
      error_ = path.error();
    }
  }
}

// A future that get() was called on is no longer valid: so valid() means that the thread has not
// ended, or that its result was not taken.
CheckpointWriter::Vote CheckpointWriter::Ask() {
  Collect();
  return {.unfinished = writing_.valid() || publishing_.valid() ? 1.0 : 0.0,
          .failed = error_ ? 1.0 : 0.0};
}

// Each rank contributes the numbers of its own shard, and zeros for the others.
Status CheckpointWriter::ShareFacts() {
  std::vector<double> numbers(kNumbersOfShard * manifest_.shards.size());
  if (has_shard_) {
    const auto own = ToNumbers(manifest_.shards[shard_]);
    std::copy(own.begin(), own.end(),
              numbers.begin() + static_cast<std::ptrdiff_t>(kNumbersOfShard * shard_));
  }
  FOREBAY_TRY(communicator_.AllReduceSum(std::span<double>(numbers)));
  for (std::size_t at = 0; at < manifest_.shards.size(); ++at) {
    manifest_.shards[at] =
        FactsOf(std::span(numbers).subspan(kNumbersOfShard * at, kNumbersOfShard));
  }
  return {};
}

// Ends the attempt. If it failed, rank 0 removes the unpublished folder with the shards of all
// ranks.
CheckpointWriter::Outcome CheckpointWriter::End(std::optional<Error> error) {
  phase_ = Phase::kIdle;
  const std::uint64_t step = manifest_.state.global_step;
  if (error && place_.publisher != nullptr) place_.publisher->Abandon(step);
  return {.global_step = step, .path = path_, .error = std::move(error)};
}

// All ranks see the same sum, and so they take the same branch.
Result<std::optional<CheckpointWriter::Outcome>> CheckpointWriter::Advance(const Vote& sum) {
  if (!busy() || sum.unfinished > 0) return std::optional<Outcome>();
  // All ranks are done with this phase, and at least one of them failed. The unpublished folder
  // goes.
  if (sum.failed > 0) {
    return std::optional(End(error_ ? *error_
                                    : Error(ErrorCode::kAborted,
                                            "another rank could not write its part")));
  }
  if (phase_ == Phase::kPublishing) return std::optional(End(std::nullopt));
  // Sizes and hashes of all shards, for the manifest that rank 0 writes.
  FOREBAY_TRY(ShareFacts());
  phase_ = Phase::kPublishing;
  if (place_.publisher != nullptr) {
    const std::string folder = place_.folder.string();
    const Status begun = WithoutExceptions(folder, [&]() -> Status {
      // The manifest does not change until the attempt has ended, so the thread may read it.
      publishing_ = std::async(std::launch::async, [this, folder] {
        return WithoutExceptions(folder, [&] { return place_.publisher->Publish(manifest_); });
      });
      return {};
    });
    // This rank's vote tells the others.
    if (!begun.has_value()) error_ = begun.error();
  }
  return std::optional<Outcome>();
}

Result<std::optional<CheckpointWriter::Outcome>> CheckpointWriter::Finish() {
  std::optional<Outcome> outcome;
  // The same protocol as between steps, but each rank waits for its own thread first.
  while (busy()) {
    if (writing_.valid()) writing_.wait();
    if (publishing_.valid()) publishing_.wait();
    const Vote own = Ask();
    std::array<double, 2> votes = {own.unfinished, own.failed};
    FOREBAY_TRY(communicator_.AllReduceSum(std::span<double>(votes)));
    FOREBAY_ASSIGN(outcome, Advance({.unfinished = votes[0], .failed = votes[1]}));
  }
  return outcome;
}

}  // namespace forebay::train
