// forebay_comm_plan_bench: reductions and pipeline messages at the same time, below mpirun with two
// ranks, for every communication plan and for the one that the probe at the start chooses. Rank 0
// prints one line of JSON: times of the phase by plan, and message times under the chosen plan.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/comm/link_probe.h"
#include "trainer/comm/transport/mpi_transport.h"

namespace forebay::train {
namespace {

// Longer than any phase takes: whoever meets it hangs, and the benchmark fails.
constexpr std::uint64_t kPatienceNs = 60'000'000'000;
constexpr std::uint64_t kKibibyte = 1024;

struct Settings {
  std::uint64_t gradient_kib = 48 * kKibibyte;
  std::uint32_t trips = 30;
  std::uint64_t message_kib = 256;
  std::uint32_t rounds = 7;
};

// How a gradient is reduced: in pieces of so many bytes, so many of them at the same time.
struct CommunicationPlan {
  std::uint64_t bucket_bytes = 0;
  // Without a limit all buckets are under way together; with 1 each waits for the one before it.
  std::size_t at_once = SIZE_MAX;

  std::string Name() const {
    return fmt::format("{}K{}", bucket_bytes / kKibibyte,
                       at_once == SIZE_MAX ? "" : fmt::format(" x{}", at_once));
  }
};

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

// A message to and fro, again and again, as activations and their gradients go.
class PingPong {
 public:
  PingPong(Transport& transport, const Settings& settings, std::uint64_t step)
      : transport_(transport),
        room_(settings.message_kib * kKibibyte),
        legs_(2 * settings.trips),
        step_(step) {}

  bool done() const { return leg_ == legs_; }
  const std::vector<std::uint64_t>& times_ns() const { return times_ns_; }

  // Goes as far as it can; nullopt: done.
  Result<std::optional<Ticket>> Advance() {
    while (!done()) {
      if (!ticket_) FOREBAY_TRY(Begin());
      FOREBAY_ASSIGN(const bool arrived, transport_.Test(*ticket_));
      if (!arrived) return ticket_;
      ticket_.reset();
      // Half a round trip, because the clocks of two processes cannot be compared.
      if (++leg_ % 2 == 0) times_ns_.push_back((NowNs() - began_ns_) / 2);
    }
    return std::optional<Ticket>();
  }

 private:
  Status Begin() {
    if (leg_ % 2 == 0) began_ns_ = NowNs();
    const std::uint32_t peer = 1 - transport_.rank();
    const MessageTag tag{.step = step_, .micro_batch = leg_};
    // The two ranks take turns: where one sends, the other receives.
    const bool sends = (leg_ + transport_.rank()) % 2 == 0;
    Result<Ticket> ticket = sends ? transport_.BeginSend(peer, Lane::kActivation, tag, room_)
                                  : transport_.BeginReceive(peer, Lane::kActivation, tag, room_);
    if (!ticket.has_value()) return ticket.error();
    ticket_ = *ticket;
    return {};
  }

  Transport& transport_;
  std::vector<std::byte> room_;
  std::uint32_t legs_;
  std::uint64_t step_;
  std::uint32_t leg_ = 0;
  std::uint64_t began_ns_ = 0;
  std::optional<Ticket> ticket_;
  std::vector<std::uint64_t> times_ns_;
};

class Phase {
 public:
  Phase(Communicator& communicator, const Settings& settings)
      : communicator_(communicator),
        settings_(settings),
        gradient_(settings.gradient_kib * kKibibyte / sizeof(float), 1.0F) {}

  // The phase's time on this rank. `message_ns` gets what half a round trip took, each time.
  Result<std::uint64_t> Run(const CommunicationPlan& plan,
                            std::vector<std::uint64_t>& message_ns) {
    // Both ranks begin together. Otherwise the first would measure its wait for the second.
    FOREBAY_TRY(communicator_.Barrier());
    Transport& transport = communicator_.transport();
    const std::uint64_t began_ns = NowNs();
    const std::size_t floats = plan.bucket_bytes / sizeof(float);
    // A step number of its own for each run, so that nothing of an earlier run fits its tags.
    PingPong messages(transport, settings_, ++step_);
    CollectiveQueue queue;
    std::uint32_t begun = 0;
    std::uint32_t ended = 0;
    while (true) {
      // New buckets begin as soon as earlier ones have ended, as in a stage of the trainer.
      while (begun - ended < plan.at_once && begun * floats < gradient_.size()) {
        FOREBAY_TRY(BeginBucket(queue, begun++, floats));
      }
      FOREBAY_ASSIGN(std::vector<Ticket> waited, queue.Advance(transport));
      while (ended < begun && queue.Done(ended)) ++ended;
      FOREBAY_ASSIGN(const std::optional<Ticket> message, messages.Advance());
      if (message) waited.push_back(*message);
      const bool reduced = ended == begun && begun * floats >= gradient_.size();
      // The phase is as long as the longer of the two, which is what a step would wait for.
      if (reduced && messages.done()) break;
      // Waits for whichever comes first: reductions and messages must not hold each other up here.
      if (!waited.empty()) FOREBAY_TRY(transport.AwaitAny(waited, kPatienceNs));
    }
    message_ns.insert(message_ns.end(), messages.times_ns().begin(), messages.times_ns().end());
    return NowNs() - began_ns;
  }

 private:
  Status BeginBucket(CollectiveQueue& queue, std::uint32_t bucket, std::size_t floats) {
    const std::size_t at = bucket * floats;
    const auto part = std::span(gradient_).subspan(at, std::min(floats, gradient_.size() - at));
    Transport& transport = communicator_.transport();
    return queue.Begin(
        bucket,
        std::make_unique<AllReduce<float>>(
            AllMembers(transport), CollectiveTag{.step = step_, .edge = bucket}, part),
        transport);
  }

  Communicator& communicator_;
  const Settings& settings_;
  std::vector<float> gradient_;
  std::uint64_t step_ = 0;
};

// Every size from 16 KiB to the gradient as a whole; all buckets at once, and one by one.
std::vector<CommunicationPlan> AllPlans(const Settings& settings) {
  std::vector<CommunicationPlan> plans;
  const std::uint64_t whole = settings.gradient_kib * kKibibyte;
  for (const std::size_t at_once : {SIZE_MAX, std::size_t{1}}) {
    for (std::uint64_t bytes = 16 * kKibibyte; bytes < whole; bytes *= 2) {
      plans.push_back({.bucket_bytes = bytes, .at_once = at_once});
    }
  }
  plans.push_back({.bucket_bytes = whole});
  return plans;
}

double Median(std::vector<std::uint64_t> values) {
  std::ranges::sort(values);
  return static_cast<double>(values[values.size() / 2]);
}

Result<nlohmann::json> Run(const Settings& settings, Communicator& communicator) {
  // With two ranks the peer is known, and every byte of a reduction crosses the one link.
  if (communicator.size() != 2) return Error(ErrorCode::kInvalidArgument, "needs two ranks");
  FOREBAY_ASSIGN(const LinkProbe probe,
                 ProbeLinks(communicator, {.gradient_bytes = settings.gradient_kib * kKibibyte,
                                           .now_ns = NowNs}));
  std::vector<CommunicationPlan> plans = AllPlans(settings);
  // The probe may choose a size that the list lacks. It is measured, too.
  const auto is_chosen = [&](const CommunicationPlan& plan) {
    return plan.bucket_bytes == probe.bucket_bytes && plan.at_once == SIZE_MAX;
  };
  if (std::ranges::none_of(plans, is_chosen)) plans.push_back({.bucket_bytes = probe.bucket_bytes});
  std::vector<std::vector<std::uint64_t>> times(plans.size());
  std::vector<std::uint64_t> chosen_message_ns;
  Phase phase(communicator, settings);
  // Plan after plan in each round, so that a slow moment of the machine falls on all of them.
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    for (std::size_t at = 0; at < plans.size(); ++at) {
      std::vector<std::uint64_t> message_ns;
      FOREBAY_ASSIGN(const std::uint64_t took_ns, phase.Run(plans[at], message_ns));
      if (round == 0) continue;  // what is set up once
      times[at].push_back(took_ns);
      if (is_chosen(plans[at])) {
        chosen_message_ns.insert(chosen_message_ns.end(), message_ns.begin(), message_ns.end());
      }
    }
  }
  nlohmann::json report = {
      {"probe", Describe(probe)},
      {"chosen", CommunicationPlan{.bucket_bytes = probe.bucket_bytes}.Name()},
      {"message_ms", Median(chosen_message_ns) * 1e-6}};
  for (std::size_t at = 0; at < plans.size(); ++at) {
    report["phase_ms"][plans[at].Name()] = Median(times[at]) * 1e-6;
  }
  return report;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times reductions beside pipeline messages, for every communication plan.");
  app.add_option("--gradient-kib", settings.gradient_kib)->check(CLI::PositiveNumber);
  app.add_option("--trips", settings.trips)->check(CLI::PositiveNumber);
  app.add_option("--message-kib", settings.message_kib)->check(CLI::PositiveNumber);
  app.add_option("--rounds", settings.rounds)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const auto failed = [](const Error& error) {
    std::fprintf(stderr, "forebay_comm_plan_bench: %s\n", error.ToString().c_str());
    return 1;
  };
  Result<std::unique_ptr<Transport>> transport = MakeMpiTransport();
  if (!transport.has_value()) return failed(transport.error());
  Communicator communicator(*std::move(transport));
  const Result<nlohmann::json> report = Run(settings, communicator);
  if (!report.has_value()) {
    const int code = failed(report.error());
    // The other rank may be waiting for a message that will not come.
    communicator.Abort(code);
    return code;
  }
  if (communicator.rank() == 0) std::printf("%s\n", report->dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) { return forebay::train::Main(argc, argv); }
