// forebay_consume: a trainer that trains nothing. Streams minibatches through the public client
// library, reads every byte of them and prints what that took. It has no access to the daemon but
// that library, so what it reaches a user's program can reach.
#include <time.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/consumer/batch_summer.h"
#include "bench/consumer/consume_options.h"
#include "bench/peers/run_report.h"
#include "forebay/client.h"

namespace forebay::bench {
namespace {

Result<StreamOptions> ToStreamOptions(const ConsumeOptions& options) {
  StreamOptions stream;
  stream.dataset = options.dataset;
  stream.stream_name = options.stream_name;
  stream.selection = options.selection;
  stream.global_batch = options.global_batch;
  stream.ranks = options.ranks;
  stream.rank = options.rank;
  stream.epochs = options.epochs;
  stream.seed = options.seed;
  FOREBAY_ASSIGN(stream.mode, ParseOrderMode(options.mode));
  if (!options.epoch0_mode.empty()) {
    FOREBAY_ASSIGN(stream.epoch0_mode, ParseOrderMode(options.epoch0_mode));
  }
  stream.block_samples = options.block_samples;
  stream.window_runs = options.window_runs;
  stream.canonical_nodes = options.canonical_nodes;
  FOREBAY_ASSIGN(stream.exchange_millionths, ExchangeMillionths(options.exchange_fraction));
  stream.prefetch_depth = options.prefetch_depth;
  // Every sample of every epoch, so that digests can be compared.
  stream.tail = TailPolicy::kShort;
  stream.delivery = options.delivery == "views" ? Delivery::kViews : Delivery::kContiguous;
  if (!options.resume.empty()) {
    std::ifstream file(options.resume, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    FOREBAY_ASSIGN(stream.resume, PositionToken::Parse(std::as_bytes(std::span(bytes))));
  }
  return stream;
}

// Writes where a later run continues, as a trainer does in its checkpoint.
Status WriteToken(const PositionToken& token, const std::string& path) {
  const auto bytes = token.Encode();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  file.close();
  if (!file) return Error(ErrorCode::kInternal, "cannot write the token to " + path);
  return {};
}

// The accelerator's step: a sleep, as MLPerf Storage defines it.
void Compute(double step_ms) {
  if (step_ms <= 0) return;
  // Relative and not to a deadline: a real step begins when its batch is there, so time that was
  // lost is not caught up on.
  const auto step_ns = static_cast<long>(step_ms * 1e6);
  timespec step{.tv_sec = step_ns / 1'000'000'000, .tv_nsec = step_ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &step, nullptr);
}

// Collects what the epochs of one stream took.
class EpochMeter {
 public:
  EpochMeter(const ConsumeOptions& options, RunReport& report)
      : options_(options), report_(report), begin_(NowSeconds()), begin_cpu_(CpuSeconds()),
        begin_switches_(ContextSwitches()) {}

  // A batch of `epoch` has come after `wait_ms`. Closes the epoch before it.
  void Begin(EpochId epoch, double wait_ms) {
    waits_ms_.push_back(wait_ms);
    // An epoch ends when its last batch was consumed, which this class sees only when the next
    // batch arrives. The wait for that batch belongs to the new epoch.
    if (epoch_ && *epoch_ != epoch) Close(wait_ms);
    if (!epoch_) compute_begin_ = NowSeconds();
    epoch_ = epoch;
    ++steps_;
  }
  DeliveryDigest& digest() { return digest_; }

  void End() {
    // The last epoch ends with the stream.
    if (epoch_) Close(0);
    report_.waits = SummariseWaits(waits_ms_);
  }

 private:
  // `wait_ms` at the end belongs to the next epoch.
  void Close(double wait_ms) {
    const double now = NowSeconds() - wait_ms * 1e-3;
    const double cpu = CpuSeconds();
    const std::uint64_t switches = ContextSwitches();
    report_.epochs.push_back({.seconds = now - begin_,
                              .cpu_seconds = cpu - begin_cpu_,
                              .context_switches = switches - begin_switches_,
                              .digest = digest_});
    if (options_.step_ms > 0) {
      const double compute_s = static_cast<double>(steps_) * options_.step_ms * 1e-3;
      // MLPerf Storage's accelerator utilisation: the time of the steps over the time of the epoch.
      report_.au.push_back(compute_s / (now - compute_begin_));
    }
    digest_ = {};
    steps_ = 0;
    begin_ = compute_begin_ = now;
    begin_cpu_ = cpu;
    begin_switches_ = switches;
  }

  const ConsumeOptions& options_;
  RunReport& report_;
  std::optional<EpochId> epoch_;
  DeliveryDigest digest_;
  std::uint64_t steps_ = 0;
  double begin_;
  double begin_cpu_;
  std::uint64_t begin_switches_;
  double compute_begin_ = 0;  // the first step's I/O is left out of the utilisation
  std::vector<double> waits_ms_;
};

// Consumes all epochs of one stream into `report`.
Status ConsumeStream(Client& client, const ConsumeOptions& options, bool with_content,
                     RunReport& report) {
  FOREBAY_ASSIGN(const StreamOptions stream_options, ToStreamOptions(options));
  EpochMeter meter(options, report);
  FOREBAY_ASSIGN(const std::unique_ptr<BatchStream> stream, client.Open(stream_options));
  FOREBAY_ASSIGN(const FieldId field, PayloadField(stream->fields()));
  for (std::uint32_t batches = 1;; ++batches) {
    const double asked = NowSeconds();
    FOREBAY_ASSIGN(std::optional<Batch> batch, stream->Next());
    if (!batch) break;
    meter.Begin(batch->epoch(), (NowSeconds() - asked) * 1e3);
    FOREBAY_TRY(AddBatch(*batch, field, with_content, meter.digest()));
    if (batches == options.stop_after) {
      if (!options.token.empty()) FOREBAY_TRY(WriteToken(batch->token(), options.token));
      // The stream has no trailer yet that Finish could check. It is given up, as by a job that is
      // ended.
      meter.End();
      return {};
    }
    // Released before the step, as a trainer does that has copied the batch to its device. The
    // daemon can use the slot again.
    batch.reset();
    Compute(options.step_ms);
  }
  meter.End();
  return stream->Finish();
}

Result<std::unique_ptr<Client>> Connect(const ConsumeOptions& options) {
  ClientOptions client;
  client.address = options.address;
  client.client_name = "forebay_consume";
  return Client::Connect(client);
}

// Milliseconds from nothing to the first batch in hand.
Result<double> FirstBatchMs(const ConsumeOptions& options) {
  FOREBAY_ASSIGN(const StreamOptions stream_options, ToStreamOptions(options));
  const double begin = NowSeconds();
  // A new connection each time: the handshake and the opening of the stream are what is measured.
  FOREBAY_ASSIGN(const std::unique_ptr<Client> client, Connect(options));
  FOREBAY_ASSIGN(const std::unique_ptr<BatchStream> stream, client->Open(stream_options));
  FOREBAY_ASSIGN(const std::optional<Batch> batch, stream->Next());
  if (!batch) return Error(ErrorCode::kOutOfRange, "the stream is empty");
  return (NowSeconds() - begin) * 1e3;
}

Result<RunReport> Measure(ConsumeOptions options) {
  RunReport report{.contender = "forebay",
                   .settings = "delivery=" + options.delivery + " mode=" + options.mode +
                               " batch=" + std::to_string(options.global_batch) +
                               " ranks=" + std::to_string(options.ranks) +
                               " prefetch=" + std::to_string(options.prefetch_depth)};
  if (options.connects > 0) {
    for (std::uint32_t i = 0; i < options.connects; ++i) {
      FOREBAY_ASSIGN(const double first_ms, FirstBatchMs(options));
      report.connects_ms.push_back(first_ms);
    }
    return report;
  }
  FOREBAY_ASSIGN(const std::unique_ptr<Client> client, Connect(options));
  // On the same connection and before the timed epochs, which it also warms up.
  if (options.check) {
    ConsumeOptions check = options;
    check.epochs = 1;
    check.step_ms = 0;
    check.stop_after = 0;
    RunReport checked;
    FOREBAY_TRY(ConsumeStream(*client, check, true, checked));
    if (checked.epochs.empty()) return Error(ErrorCode::kOutOfRange, "the stream is empty");
    report.check = checked.epochs.front();
  }
  FOREBAY_TRY(ConsumeStream(*client, options, options.content, report));
  return report;
}

void AddOptions(CLI::App& app, ConsumeOptions& options) {
  app.add_option("--socket", options.address, "The daemon's address: unix:/path");
  app.add_option("--dataset", options.dataset)->required();
  app.add_option("--delivery", options.delivery)
      ->check(CLI::IsMember({"contiguous", "views"}))->capture_default_str();
  app.add_option("--stream", options.stream_name)->capture_default_str();
  app.add_option("--selection", options.selection)->capture_default_str();
  app.add_option("--batch", options.global_batch, "Samples per step over all ranks")
      ->capture_default_str();
  app.add_option("--ranks", options.ranks)->capture_default_str();
  app.add_option("--rank", options.rank)->capture_default_str();
  app.add_option("--epochs", options.epochs, "Timed epochs")->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--mode", options.mode, "global, block, sequential, partial")
      ->capture_default_str();
  app.add_option("--epoch0-mode", options.epoch0_mode, "Of epoch 0, where it differs");
  app.add_option("--block-samples", options.block_samples)->capture_default_str();
  app.add_option("--window-runs", options.window_runs)->capture_default_str();
  app.add_option("--canonical-nodes", options.canonical_nodes)->capture_default_str();
  app.add_option("--exchange-fraction", options.exchange_fraction)->capture_default_str();
  app.add_option("--prefetch", options.prefetch_depth)->capture_default_str();
  app.add_option("--step-ms", options.step_ms, "Compute time of an emulated accelerator");
  app.add_option("--connects", options.connects,
                 "Measure connect to first batch this often, and nothing else");
  app.add_flag("--check", options.check, "An untimed epoch first, with the content digest");
  app.add_flag("--content", options.content, "Digests of content and positions in all epochs");
  app.add_option("--stop-after", options.stop_after, "Ends the stream after so many batches");
  app.add_option("--token", options.token, "File for the position at which --stop-after ended")
      ->needs("--stop-after");
  app.add_option("--resume", options.resume, "Continues at the position in this file");
}

int Run(int argc, char** argv) {
  ConsumeOptions options;
  CLI::App app("forebay_consume: streams minibatches and reads every byte of them");
  AddOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  return PrintReport("forebay_consume", Measure(options));
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Run(argc, argv); }
