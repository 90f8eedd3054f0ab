#include "trainer/exec/measure_costs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/exec/copy_link.h"

namespace forebay::train {
namespace {

// More than caches hold, as a stage's parameters are.
constexpr std::size_t kFloats = std::size_t{4} << 20;
constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kSwapBytes = std::size_t{4} << 20;
constexpr std::size_t kSwapCopies = 8;
constexpr int kRounds = 7;
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

class CostProbe {
 public:
  CostProbe(const CostRequest& request, Communicator& communicator)
      : request_(request), communicator_(communicator) {}

  Result<SimulationCosts> Run() {
    FOREBAY_TRY(communicator_.Barrier());
    SimulationCosts costs;
    ProbeUpdate(costs);
    ProbeSwap(costs.swap);
    if (communicator_.size() == 1) return costs;
    costs.message.latency_ns = request_.links.message_ns;
    if (request_.links.ns_per_byte > 0) {
      costs.message.bytes_per_ns = 1.0 / request_.links.ns_per_byte;
    }
    FOREBAY_TRY(ProbeReductions(costs.collective));
    return costs;
  }

 private:
  // The median of several runs.
  template <typename Callable>
  std::uint64_t Time(int rounds, Callable&& work) const {
    std::vector<std::uint64_t> times;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t began_ns = request_.now_ns();
      work();
      times.push_back(request_.now_ns() - began_ns);
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  static double PerByte(std::uint64_t ns) {
    return static_cast<double>(ns) / static_cast<double>(kFloats * sizeof(float));
  }

  void ProbeUpdate(SimulationCosts& costs) const {
    std::vector<float> weights(kFloats, 1.0F);
    const std::vector<float> gradient(kFloats, 1e-3F);
    std::vector<std::vector<float>> states(OptimiserStates(request_.optimiser),
                                           std::vector<float>(kFloats));
    const std::vector<std::span<float>> spans(states.begin(), states.end());
    const OptimiserOptions options{.kind = request_.optimiser};
    const UpdateStep step{.learning_rate = 1e-3, .number = 1};
    costs.update_ns_per_byte = PerByte(
        Time(kRounds, [&] { UpdateWeights(options, step, weights, gradient, spans); }));
  }

  void ProbeSwap(LinkCost& cost) const {
    std::vector<std::byte> here(kSwapBytes * kSwapCopies, std::byte{1});
    std::vector<std::byte> host(kSwapBytes * kSwapCopies, std::byte{2});
    CopyLink link(request_.swap.link_bytes_per_ns);
    const auto copy = [&](std::size_t bytes, std::size_t count) {
      std::uint64_t last = 0;
      for (std::size_t at = 0; at < count; ++at) {
        last = link.Begin(std::span(host).subspan(at * kSwapBytes, bytes),
                          std::span(here).subspan(at * kSwapBytes, bytes));
      }
      link.Wait(last);
    };
    cost.latency_ns = Time(kRounds, [&] { copy(kSmallBytes, 1); });
    const std::uint64_t many_ns = Time(kRounds, [&] { copy(kSwapBytes, kSwapCopies); });
    const std::uint64_t bytes_ns = many_ns - std::min(many_ns - 1, cost.latency_ns);
    cost.bytes_per_ns =
        static_cast<double>(kSwapBytes * kSwapCopies) / static_cast<double>(bytes_ns);
  }

  // Of `count` buckets that are under way at once, as those of a step are.
  Result<std::uint64_t> ReductionNs(std::uint64_t bytes, std::size_t count) {
    std::vector<std::vector<float>> buckets(count,
                                            std::vector<float>(bytes / sizeof(float), 1.0F));
    std::vector<std::uint64_t> times;
    for (int round = 0; round < kRounds; ++round) {
      FOREBAY_TRY(communicator_.Barrier());
      const std::uint64_t began_ns = request_.now_ns();
      CollectiveQueue queue;
      Transport& transport = communicator_.transport();
      for (std::uint32_t id = 0; id < count; ++id) {
        const CollectiveTag tag{.step = static_cast<std::uint64_t>(round), .edge = id};
        FOREBAY_TRY(queue.Begin(id,
                                std::make_unique<AllReduce<float>>(AllMembers(transport), tag,
                                                                   buckets[id]),
                                transport));
      }
      while (true) {
        FOREBAY_ASSIGN(const std::vector<Ticket> waited, queue.Advance(transport));
        if (waited.empty()) break;
        FOREBAY_TRY(transport.AwaitAny(waited, kPatienceNs));
      }
      times.push_back(request_.now_ns() - began_ns);
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  Status ProbeReductions(LinkCost& cost) {
    constexpr std::size_t kBuckets = 4;
    FOREBAY_ASSIGN(const std::uint64_t small_ns, ReductionNs(kSmallBytes, 1));
    FOREBAY_ASSIGN(const std::uint64_t large_ns, ReductionNs(request_.bucket_bytes, kBuckets));
    const double members = communicator_.size();
    const double bytes = static_cast<double>(request_.bucket_bytes) *
                         static_cast<double>(kBuckets) * 2.0 * (members - 1) / members;
    cost.latency_ns = small_ns;
    cost.bytes_per_ns =
        bytes / static_cast<double>(large_ns - std::min(large_ns - 1, small_ns));
    return {};
  }

  const CostRequest& request_;
  Communicator& communicator_;
};

}  // namespace

Result<SimulationCosts> MeasureCosts(const CostRequest& request, Communicator& communicator) {
  CostProbe probe(request, communicator);
  FOREBAY_ASSIGN(SimulationCosts costs, probe.Run());
  static_assert(std::is_trivially_copyable_v<SimulationCosts>);
  std::array<SimulationCosts, 1> shared = {costs};
  FOREBAY_TRY(communicator.Broadcast(std::as_writable_bytes(std::span(shared)), 0));
  return shared.front();
}

}  // namespace forebay::train
