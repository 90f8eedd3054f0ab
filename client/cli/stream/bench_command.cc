// `forebay bench`: how fast one stream of a data set is, read as a trainer would. Every byte of
// every batch is summed, because a batch that nobody reads costs no memory bandwidth and no page
// fault: its figure would be one that no trainer sees. Waits are those of Next alone.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/daemon_address.h"
#include "client/cli/human_text.h"
#include "client/cli/stream/stream_arguments.h"
#include "client/cli/stream/word_sum.h"
#include "forebay/client.h"

namespace forebay::cli {
namespace {

using std::chrono::steady_clock;

struct BenchArguments {
  std::shared_ptr<StreamArguments> stream;
  std::string delivery = "contiguous";
  double seconds = 5;
  bool inline_payload = false;
};

struct BenchResult {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sum = 0;  // of every byte's word: the bytes were really read
  double seconds = 0;
  double first_batch_ms = 0;
  std::vector<std::uint64_t> waits_ns;  // of Next
};

void Consume(const Batch& batch, BenchResult& result) {
  for (std::uint32_t field = 0; field < batch.fields().size(); ++field) {
    for (std::uint32_t sample = 0; sample < batch.sample_count(); ++sample) {
      // Samples are read by the interface that trainers use, with views as well as with contiguous
      // delivery, so the figure is the rate that a trainer would have.
      for (const auto span : batch.Spans(FieldId(field), sample)) {
        result.sum += SumWords(span);
        result.bytes += span.size();
      }
    }
  }
  result.batches += 1;
  result.samples += batch.sample_count();
}

Result<BenchResult> Measure(BatchStream& stream, double seconds) {
  BenchResult result;
  // The stream is open by now: opening is not part of the rate, the first batch is.
  const auto began = steady_clock::now();
  const auto until = began + std::chrono::duration_cast<steady_clock::duration>(
                                 std::chrono::duration<double>(seconds));
  auto now = began;
  while (now < until) {
    FOREBAY_ASSIGN(const std::optional<Batch> batch, stream.Next());
    const auto arrived = steady_clock::now();
    // All epochs have ended. A stream that failed has returned an error instead.
    if (!batch) break;
    result.waits_ns.push_back(
        static_cast<std::uint64_t>(std::chrono::nanoseconds(arrived - now).count()));
    Consume(*batch, result);
    // The next wait begins after the batch was read: only what Next makes the caller wait counts.
    now = steady_clock::now();
  }
  // The time is the measured one and not the one that was asked for, because the last batch may end
  // later.
  result.seconds = std::chrono::duration<double>(steady_clock::now() - began).count();
  result.first_batch_ms = static_cast<double>(stream.stats().first_batch_ns) / 1e6;
  // Not within the time that is measured. An error here says that a batch was lost or came twice,
  // and then the figures are worth nothing.
  FOREBAY_TRY(stream.Finish());
  return result;
}

double Quantile(std::vector<std::uint64_t>& values, double quantile) {
  if (values.empty()) return 0;
  // A wait that occurred, not one between two: a tail of few large waits should show as it is.
  const auto place = static_cast<std::size_t>(quantile * static_cast<double>(values.size() - 1));
  // Finds one quantile in linear time. Waits are some millions at most, and are needed in no order.
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(place),
                   values.end());
  return static_cast<double>(values[place]) / 1e3;
}

void PrintResult(CommandContext& context, BenchResult& result) {
  const double p50 = Quantile(result.waits_ns, 0.50);
  const double p99 = Quantile(result.waits_ns, 0.99);
  // Keeps the rates finite where the clock did not move.
  const double seconds = std::max(result.seconds, 1e-9);
  const double samples_per_s = static_cast<double>(result.samples) / seconds;
  const double bytes_per_s = static_cast<double>(result.bytes) / seconds;
  if (context.json) {
    context.PrintJson("bench", {{"batches", result.batches},
                                {"samples", result.samples},
                                {"bytes", result.bytes},
                                {"seconds", result.seconds},
                                {"samples_per_s", samples_per_s},
                                {"bytes_per_s", bytes_per_s},
                                {"wait_p50_us", p50},
                                {"wait_p99_us", p99},
                                {"first_batch_ms", result.first_batch_ms},
                                // Printed, so that a compiler cannot leave out the reading.
                                {"word_sum", result.sum}});
    return;
  }
  context.out << fmt::format(
      "{} samples in {} batches, {} in {}\n{} samples/s, {}\n"
      "wait for a batch: p50 {:.1f} us, p99 {:.1f} us; first batch after {:.1f} ms\n",
      HumanCount(result.samples), HumanCount(result.batches), HumanBytes(result.bytes),
      HumanSeconds(seconds), HumanCount(static_cast<std::uint64_t>(samples_per_s)),
      HumanRate(bytes_per_s), p50, p99, result.first_batch_ms);
}

Status RunBench(CommandContext& context, const BenchArguments& arguments) {
  FOREBAY_TRY(ResolveStreamArguments(*arguments.stream));
  StreamOptions options = arguments.stream->options;
  // A name of its own, so that a trainer's stream of the same data set is left alone.
  options.stream_name = "bench";
  // More than any bench reads: the time ends it, not the data set.
  options.epochs = 1'000'000;
  options.delivery = arguments.delivery == "views" ? Delivery::kViews : Delivery::kContiguous;
  FOREBAY_ASSIGN(const std::string address, DaemonAddress(context));
  FOREBAY_ASSIGN(const auto client,
                 Client::Connect({.address = address,
                                  .client_name = "forebay-bench",
                                  // Without it the bytes come through the socket; the difference is
                                  // what shared memory gains.
                                  .shared_memory = !arguments.inline_payload,
                                  .connect_timeout_ms = context.connect_timeout_ms}));
  FOREBAY_ASSIGN(const auto stream, client->Open(options));
  FOREBAY_ASSIGN(BenchResult result, Measure(*stream, arguments.seconds));
  PrintResult(context, result);
  return {};
}

}  // namespace

void AddBench(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "bench", "Read one stream for some seconds, every byte of it, and print its speed.");
  auto arguments = std::make_shared<BenchArguments>();
  arguments->stream = AddStreamArguments(command);
  command.AddOption("--delivery", arguments->delivery, "contiguous or views")
      .OneOf({"contiguous", "views"});
  command.AddOption("--depth", arguments->stream->options.prefetch_depth,
                      "Batches pulled ahead (default: 4)");
  command.AddOption("--seconds", arguments->seconds, "How long (default: 5)")
      .Within(0.01, 3600.0);
  command.AddFlag("--inline", arguments->inline_payload, "Without shared memory");
  command.OnRun([&context, arguments] { return RunBench(context, *arguments); });
}

}  // namespace forebay::cli
