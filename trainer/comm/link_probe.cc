// Measures messages first: a small one gives the latency, a large one the time per byte. Then it
// reduces a sample of the gradient with buckets of every size in turn, round by round, while the
// time budget lasts, and chooses the smallest size that is within 3 % of the fastest. Every
// decision is made on rank 0, or from means over all ranks, so that all ranks choose alike.
#include "trainer/comm/link_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/comm/collectives.h"

namespace forebay::train {
namespace {

constexpr std::uint64_t kPatienceNs = 60'000'000'000;
constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
constexpr std::size_t kSmallTrips = 31;
constexpr std::size_t kLargeTrips = 9;
constexpr std::uint64_t kBucketBytesMin = std::uint64_t{256} << 10;
constexpr std::uint64_t kBucketBytesMax = std::uint64_t{16} << 20;  // and the sample as a whole
constexpr std::uint64_t kSampleBytesMax = std::uint64_t{64} << 20;
constexpr int kRoundsMin = 3;  // that the sample is made small enough for
constexpr int kRoundsMax = 8;
// Of two sizes as fast as each other within this, the smaller: messages wait for less.
constexpr double kSame = 1.03;

using Clock = std::function<std::uint64_t()>;

// Half of a round trip to `peer`, the median.
Result<std::uint64_t> HalfTripNs(Communicator& communicator, std::uint32_t peer,
                                 std::size_t bytes, std::size_t trips, const Clock& now_ns) {
  Transport& transport = communicator.transport();
  const bool first = communicator.rank() < peer;
  std::vector<std::byte> room(bytes);
  std::vector<std::uint64_t> times;
  for (std::size_t trip = 0; trip < trips; ++trip) {
    const MessageTag tag{.step = trip, .edge = static_cast<std::uint32_t>(bytes)};
    const std::uint64_t began_ns = now_ns();
    for (const bool sends : {first, !first}) {
      const Result<Ticket> ticket =
          sends ? transport.BeginSend(peer, Lane::kActivation, tag, room)
                : transport.BeginReceive(peer, Lane::kActivation, tag, room);
      if (!ticket.has_value()) return ticket.error();
      FOREBAY_TRY(transport.Wait(*ticket, kPatienceNs));
    }
    times.push_back((now_ns() - began_ns) / 2);
  }
  // The median: single trips are delayed by other processes of the node.
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(trips / 2));
  return times[trips / 2];
}

// The largest of all ranks' values.
Result<std::uint64_t> Largest(Communicator& communicator, std::uint64_t own) {
  std::vector<double> all(communicator.size());
  all[communicator.rank()] = static_cast<double>(own);
  FOREBAY_TRY(communicator.AllReduceSum(std::span<double>(all)));
  return static_cast<std::uint64_t>(*std::ranges::max_element(all));
}

// Pairs (0, 1), (2, 3) ..., then (1, 2), (3, 4) ...: every link between neighbours once.
Result<std::uint64_t> SlowestNs(Communicator& communicator, std::size_t bytes, std::size_t trips,
                                const Clock& now_ns) {
  std::uint64_t slowest_ns = 0;
  for (const std::uint32_t shift : {0U, 1U}) {
    FOREBAY_TRY(communicator.Barrier());
    // All pairs work at the same time, as the stages of a pipeline do.
    const std::uint32_t place = communicator.rank() + shift;
    const std::uint32_t peer = (place ^ 1U) - shift;
    // A rank without a partner in this round still takes part in the barriers before and after.
    if (place < shift || peer >= communicator.size()) continue;
    FOREBAY_ASSIGN(const std::uint64_t took_ns,
                   HalfTripNs(communicator, peer, bytes, trips, now_ns));
    slowest_ns = std::max(slowest_ns, took_ns);
  }
  return Largest(communicator, slowest_ns);
}

Result<Members> GroupOf(const Communicator& communicator, std::uint32_t stages) {
  // Ranks of one stage are `stages` apart, because the stages of a replica are neighbours.
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = communicator.rank() % stages; rank < communicator.size();
       rank += stages) {
    ranks.push_back(rank);
  }
  return MakeMembers(std::move(ranks), communicator.rank());
}

std::vector<BucketTime> Candidates(std::uint64_t sample_bytes) {
  std::vector<BucketTime> tried;
  for (std::uint64_t bytes = kBucketBytesMin; bytes <= kBucketBytesMax && bytes < sample_bytes;
       bytes *= 2) {
    tried.push_back({.bucket_bytes = bytes, .reduction_ns = UINT64_MAX});
  }
  // The sample in one piece: no bucket is larger.
  tried.push_back({.bucket_bytes = sample_bytes, .reduction_ns = UINT64_MAX});
  return tried;
}

// As much of the gradient as the budget allows. Each byte leaves a rank about twice.
std::uint64_t SampleBytes(const ProbeRequest& request, double ns_per_byte) {
  // Enough time for at least kRoundsMin rounds over all sizes.
  const double tries = kRoundsMin * static_cast<double>(Candidates(kSampleBytesMax).size());
  const double affordable =
      static_cast<double>(request.budget_ns) / (tries * 2 * std::max(ns_per_byte, 1e-3));
  const std::uint64_t most =
      affordable < static_cast<double>(kSampleBytesMax)
          ? std::max(kBucketBytesMin, static_cast<std::uint64_t>(affordable))
          : kSampleBytesMax;
  return std::min(request.gradient_bytes, most) / sizeof(float) * sizeof(float);
}

class BucketSearch {
 public:
  BucketSearch(Communicator& communicator, const ProbeRequest& request, Members members)
      : communicator_(communicator), request_(request), members_(std::move(members)) {}

  // Rounds over all bucket sizes, until the time is over.
  Status Run(LinkProbe& probe, std::uint64_t began_ns) {
    // The sums grow from try to try, with many members up to infinity. That takes no longer: only
    // denormal numbers are slow to add.
    values_.assign(probe.sample_bytes / sizeof(float), 1.0F);
    probe.tried = Candidates(probe.sample_bytes);
    for (int round = 0; round < kRoundsMax; ++round) {
      const std::uint64_t round_ns = request_.now_ns();
      for (BucketTime& candidate : probe.tried) {
        FOREBAY_ASSIGN(const std::uint64_t took_ns, Try(candidate.bucket_bytes));
        // The shortest time counts: delays by other processes only ever add.
        candidate.reduction_ns = std::min(candidate.reduction_ns, took_ns);
      }
      FOREBAY_ASSIGN(const bool goes_on, TimeForAnother(began_ns, round_ns));
      if (!goes_on) break;
    }
    const std::uint64_t best_ns =
        std::ranges::min(probe.tried, {}, &BucketTime::reduction_ns).reduction_ns;
    const auto chosen = std::ranges::find_if(probe.tried, [best_ns](const BucketTime& tried) {
      return static_cast<double>(tried.reduction_ns) <= kSame * static_cast<double>(best_ns);
    });
    probe.bucket_bytes = chosen->bucket_bytes;
    return {};
  }

 private:
  // The mean over the ranks: the same on each.
  Result<std::uint64_t> Try(std::uint64_t bucket_bytes) {
    FOREBAY_TRY(communicator_.Barrier());
    const std::uint64_t began_ns = request_.now_ns();
    FOREBAY_TRY(ReduceInBuckets(communicator_.transport(), members_, values_, bucket_bytes,
                                step_++, kPatienceNs));
    // The mean, because the ranks leave a reduction at different times, and all have to choose
    // alike.
    std::array<double, 1> sum = {static_cast<double>(request_.now_ns() - began_ns)};
    FOREBAY_TRY(communicator_.AllReduceSum(std::span<double>(sum)));
    return static_cast<std::uint64_t>(sum[0] / communicator_.size());
  }

  // Rank 0's clock decides.
  Result<bool> TimeForAnother(std::uint64_t began_ns, std::uint64_t round_ns) {
    const std::uint64_t now_ns = request_.now_ns();
    // Goes on only if another round like the last one still fits.
    const bool time = now_ns - began_ns + (now_ns - round_ns) <= request_.budget_ns;
    std::array<std::byte, 1> decision = {time ? std::byte{1} : std::byte{0}};
    FOREBAY_TRY(communicator_.Broadcast(decision, 0));
    return decision[0] != std::byte{0};
  }

  Communicator& communicator_;
  const ProbeRequest& request_;
  Members members_;
  std::vector<float> values_;
  std::uint64_t step_ = 0;
};

std::string SizeName(std::uint64_t bytes) {
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
  if (bytes >= kMebibyte) {
    return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / kMebibyte);
  }
  return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / 1024);
}

}  // namespace

// Messages on all links between neighbours, then buckets over the ranks that reduce together.
Result<LinkProbe> ProbeLinks(Communicator& communicator, const ProbeRequest& request) {
  FOREBAY_CHECK(request.now_ns && request.stages > 0);
  LinkProbe probe;
  if (communicator.size() == 1) return probe;
  const std::uint64_t began_ns = request.now_ns();
  FOREBAY_ASSIGN(probe.message_ns,
                 SlowestNs(communicator, kSmallBytes, kSmallTrips, request.now_ns));
  FOREBAY_ASSIGN(const std::uint64_t large_ns,
                 SlowestNs(communicator, kLargeBytes, kLargeTrips, request.now_ns));
  // On a very noisy machine the large message can be the faster one; then bytes count as free.
  if (large_ns > probe.message_ns) {
    probe.ns_per_byte = static_cast<double>(large_ns - probe.message_ns) / kLargeBytes;
  }
  FOREBAY_ASSIGN(Members members, GroupOf(communicator, request.stages));
  probe.sample_bytes = SampleBytes(request, probe.ns_per_byte);
  // One replica: nothing is reduced, so that there is no bucket size to choose.
  if (communicator.size() <= request.stages || probe.sample_bytes == 0) {
    probe.sample_bytes = 0;
    return probe;
  }
  FOREBAY_TRY(BucketSearch(communicator, request, std::move(members)).Run(probe, began_ns));
  return probe;
}

std::string Describe(const LinkProbe& probe) {
  std::string text = fmt::format("{:.1f} us + {:.2f} ns/byte a message",
                                 static_cast<double>(probe.message_ns) * 1e-3, probe.ns_per_byte);
  if (probe.tried.empty()) return text;
  text += fmt::format("; {} are reduced in", SizeName(probe.sample_bytes));
  for (const BucketTime& tried : probe.tried) {
    text += fmt::format("{} {:.1f} ms by {}", tried.bucket_bytes == probe.tried[0].bucket_bytes
                                                  ? ""
                                                  : ",",
                        static_cast<double>(tried.reduction_ns) * 1e-6,
                        SizeName(tried.bucket_bytes));
  }
  return text + fmt::format(": buckets of {}", SizeName(probe.bucket_bytes));
}

}  // namespace forebay::train
