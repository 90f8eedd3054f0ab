// Each cost is the median of a few runs that all ranks begin together, on buffers larger than the
// caches. Latency and bandwidth of a link follow from a small and a large transfer.
#include "trainer/exec/measure/measure_costs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/exec/device/device.h"
#include "trainer/exec/device/tensor_update.h"
#include "trainer/exec/swap/copy_link.h"

namespace forebay::train {
namespace {

// More than caches hold, as a stage's parameters are.
constexpr std::size_t kFloats = std::size_t{4} << 20;
constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kSwapBytes = std::size_t{4} << 20;
constexpr std::size_t kSwapCopies = 8;
// The median of few: the start of a run should not take long.
constexpr int kRounds = 7;
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

class CostProbe {
 public:
  CostProbe(const CostRequest& request, Communicator& communicator)
      : request_(request), communicator_(communicator) {}

  // Every rank measures, because reductions and barriers are collective.
  Result<SimulationCosts> Run() {
    SimulationCosts costs;
    if (request_.device.is_cpu()) {
      FOREBAY_TRY(ProbeUpdate(costs));
      FOREBAY_TRY(ProbeSwap(costs.swap));
    } else {
      FOREBAY_TRY(ProbeDevice(costs));
    }
    if (communicator_.size() == 1) return costs;
    // The probe of the links has measured messages already.
    costs.message.latency_ns = request_.links.message_ns;
    if (request_.links.ns_per_byte > 0) {
      costs.message.bytes_per_ns = 1.0 / request_.links.ns_per_byte;
    }
    FOREBAY_TRY(ProbeReductions(costs.collective));
    return costs;
  }

 private:
  // The median of several runs of `work()`, a Status, which all ranks begin together.
  template <typename Callable>
  Result<std::uint64_t> Time(Callable&& work) const {
    std::array<std::uint64_t, kRounds> times = {};
    for (std::uint64_t& ns : times) {
      // All ranks begin together, as in a step.
      FOREBAY_TRY(communicator_.Barrier());
      const std::uint64_t began_ns = request_.now_ns();
      FOREBAY_TRY(work());
      ns = request_.now_ns() - began_ns;
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  // The time of the configured optimiser for each byte of parameters.
  Status ProbeUpdate(SimulationCosts& costs) const {
    // Values do not matter for the time, but they must not become denormal.
    std::vector<float> weights(kFloats, 1.0F);
    const std::vector<float> gradient(kFloats, 1e-3F);
    std::vector<std::vector<float>> states(request_.optimiser.optimiser->state_count(),
                                           std::vector<float>(kFloats));
    const std::vector<std::span<float>> spans(states.begin(), states.end());
    const UpdateStep step{.learning_rate = 1e-3, .number = 1};
    FOREBAY_ASSIGN(const std::uint64_t ns, Time([&]() -> Status {
                     UpdateWeights(request_.optimiser, step, weights, gradient, spans);
                     return {};
                   }));
    costs.update_ns_per_byte =
        static_cast<double>(ns) / static_cast<double>(kFloats * sizeof(float));
    return {};
  }

  // The same of a GPU.
  Status ProbeDevice(SimulationCosts& costs) const {
    const torch::TensorOptions there(request_.device);
    const auto floats = static_cast<std::int64_t>(kFloats);
    const torch::Tensor gradient = torch::ones({floats}, there);
    const torch::Tensor weights = torch::ones({floats}, there);
    TensorsToUpdate tensors{.weights = {weights}, .gradients = {gradient}, .states = {}};
    for (std::size_t at = 0; at < request_.optimiser.optimiser->state_count(); ++at) {
      tensors.states.push_back({torch::zeros({floats}, there)});
    }
    const auto timed = [&](const std::function<void()>& work) {
      return Time([&]() -> Status {
        work();
        Synchronise(request_.device);
        return {};
      });
    };
    const UpdateStep step{.learning_rate = 1e-3, .number = 1};
    constexpr auto kBytes = static_cast<double>(kFloats * sizeof(float));
    FOREBAY_ASSIGN(const std::uint64_t update_ns, timed([&] {
                     UpdateTensors(request_.optimiser, step, tensors);
                   }));
    costs.update_ns_per_byte = static_cast<double>(update_ns) / kBytes;
    const torch::Tensor host = HostRoom({floats}, torch::kFloat32, request_.device);
    const auto copy = [&](std::int64_t count) {
      return timed([&] { host.narrow(0, 0, count).copy_(weights.narrow(0, 0, count), true); });
    };
    FOREBAY_ASSIGN(costs.swap.latency_ns, copy(1));
    FOREBAY_ASSIGN(const std::uint64_t whole_ns, copy(floats));
    // The time of the bytes alone; at least 1, so that the rate is finite.
    const std::uint64_t bytes_ns = whole_ns - std::min(whole_ns - 1, costs.swap.latency_ns);
    costs.swap.bytes_per_ns = kBytes / static_cast<double>(bytes_ns);
    return {};
  }

  // A single small copy gives the latency, several large ones in a row the rate.
  Status ProbeSwap(LinkCost& cost) const {
    // Filled, so that every page is there: the first touch of a page would be timed as well.
    std::vector<std::byte> here(kSwapBytes * kSwapCopies, std::byte{1});
    std::vector<std::byte> host(kSwapBytes * kSwapCopies, std::byte{2});
    CopyLink link(request_.swap.link_bytes_per_ns);
    // Copies are queued, so that waiting for the last one times all of them.
    const auto copy = [&](std::size_t bytes, std::size_t count) -> Status {
      std::uint64_t last = 0;
      for (std::size_t at = 0; at < count; ++at) {
        last = link.Begin(std::span(host).subspan(at * kSwapBytes, bytes),
                          std::span(here).subspan(at * kSwapBytes, bytes));
      }
      link.Wait(last);
      return {};
    };
    FOREBAY_ASSIGN(cost.latency_ns, Time([&] { return copy(kSmallBytes, 1); }));
    FOREBAY_ASSIGN(const std::uint64_t many_ns,
                   Time([&] { return copy(kSwapBytes, kSwapCopies); }));
    const std::uint64_t bytes_ns = many_ns - std::min(many_ns - 1, cost.latency_ns);
    cost.bytes_per_ns =
        static_cast<double>(kSwapBytes * kSwapCopies) / static_cast<double>(bytes_ns);
    return {};
  }

  // Of `count` buckets that are under way at once, as those of a step are.
  Result<std::uint64_t> ReductionNs(std::uint64_t bucket_bytes, std::size_t count) const {
    Transport& transport = communicator_.transport();
    const Members members = AllMembers(transport);
    std::vector<float> values(bucket_bytes / sizeof(float) * count, 1.0F);
    std::uint64_t step = 0;
    // Each run has a step number of its own, so that a late message of one is not taken for the
    // next's.
    return Time([&] {
      return ReduceInBuckets(transport, members, values, bucket_bytes, ++step, kPatienceNs);
    });
  }

  // A reduction of few bytes gives the latency, several buckets at once the rate.
  Status ProbeReductions(LinkCost& cost) const {
    constexpr std::size_t kBuckets = 4;
    FOREBAY_ASSIGN(const std::uint64_t small_ns, ReductionNs(kSmallBytes, 1));
    FOREBAY_ASSIGN(const std::uint64_t large_ns, ReductionNs(request_.bucket_bytes, kBuckets));
    // At least 2: with one rank there is nothing to reduce, and Run has returned before.
    const double members = communicator_.size();
    // What leaves each member in both rounds.
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
  // Rank 0's figures, so that all ranks foresee the same times and plan alike.
  std::array<SimulationCosts, 1> shared = {costs};
  FOREBAY_TRY(communicator.Broadcast(std::as_writable_bytes(std::span(shared)), 0));
  return shared.front();
}

}  // namespace forebay::train
