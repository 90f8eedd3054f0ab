// The samples are read as `forebay bench` reads them, every byte, so that a rate is what a trainer
// would get. The daemon counts per stream from which tier each sample came; it is asked before the
// stream ends, because it forgets the counts with the stream.
#include "client/cli/tune/node_survey.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "client/cli/command_context.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/stream/word_sum.h"
#include "forebay/stream_options.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::cli {
namespace {

using std::chrono::steady_clock;

constexpr const char* kStreamName = "tune";
// So many of a stream's samples have to come from one tier for its rate to be that of the tier.
constexpr double kOneTier = 0.95;
// Less was received or staged by accident, for example a catalog's few bytes.
constexpr double kLeastBytes = 1 << 20;

std::optional<double> RateFrom(std::uint64_t bytes, double seconds) {
  if (static_cast<double>(bytes) < kLeastBytes || seconds <= 0) return std::nullopt;
  return static_cast<double>(bytes) / seconds;
}

std::optional<double>& RateOf(NodeSurvey& survey, ReadSource source) {
  return survey.rates[static_cast<std::size_t>(source)];
}

// Counts what a stream delivered, and measures how long that took.
struct StreamReading {
  std::uint64_t samples = 0, bytes = 0;
  double seconds = 0;
  std::uint64_t words = 0;  // their sum
};

Result<StreamReading> ReadFor(BatchStream& stream, double seconds) {
  StreamReading reading;
  const auto began = steady_clock::now();
  while (reading.seconds < seconds) {
    FOREBAY_ASSIGN(const std::optional<Batch> batch, stream.Next());
    if (!batch) break;
    for (std::uint32_t field = 0; field < batch->fields().size(); ++field) {
      for (std::uint32_t sample = 0; sample < batch->sample_count(); ++sample) {
        for (const auto span : batch->Spans(FieldId(field), sample)) {
          reading.words += SumWords(span);
          reading.bytes += span.size();
        }
      }
    }
    reading.samples += batch->sample_count();
    reading.seconds = std::chrono::duration<double>(steady_clock::now() - began).count();
  }
  return reading;
}

// A mixture of tiers says nothing about either of them, and neither does a stream that other nodes
// supply. So in a job of several nodes, tiers are hardly ever measured.
void TakeTierRates(const v1::StatusReply& status, const StreamReading& reading,
                   NodeSurvey& survey) {
  for (const v1::StreamStatus& stream : status.streams()) {
    if (stream.name() != kStreamName || stream.samples() == 0 || reading.bytes == 0) continue;
    const auto part = [&](std::uint64_t hits) {
      return static_cast<double>(hits) / static_cast<double>(stream.samples());
    };
    const double rate = static_cast<double>(reading.bytes) / reading.seconds;
    if (part(stream.hit_ram_samples()) >= kOneTier) RateOf(survey, ReadSource::kRam) = rate;
    if (part(stream.hit_ssd_samples()) >= kOneTier) RateOf(survey, ReadSource::kSsd) = rate;
  }
}

void TakeStatus(const v1::StatusReply& status, const DatasetInfo& info, NodeSurvey& survey) {
  for (const v1::TierStatus& tier : status.tiers()) {
    const auto capacity = static_cast<double>(tier.capacity_bytes());
    if (tier.name() == "ram") survey.ram_bytes = capacity;
    // A tier that has failed takes nothing any more.
    if (tier.name() == "ssd" && !tier.retired()) survey.ssd_bytes = capacity;
  }
  for (const v1::DatasetStatus& dataset : status.datasets()) {
    if (dataset.name() != info.name) continue;
    survey.copies_bytes = static_cast<double>(dataset.copied_bytes());
    // Staging counts the time of reading, checking and storing. That is what an extent on no tier
    // would take, too.
    survey.dataset.extents = static_cast<double>(std::max<std::uint64_t>(1, dataset.extents()));
    RateOf(survey, ReadSource::kGfs) =
        RateFrom(dataset.gfs_bytes(), static_cast<double>(dataset.staging_ms()) / 1e3);
  }
}

void TakeNodes(const v1::NodesReply& reply, NodeSurvey& survey) {
  survey.nodes = static_cast<std::uint64_t>(std::max(1, reply.nodes_size()));
  // The times of several nodes overlap, so this is the rate at which one of them supplies. It is
  // the lower bound of what the link of this node can do.
  std::uint64_t bytes = 0, busy_ns = 0;
  for (const v1::NodeStatus& node : reply.nodes()) {
    bytes += node.received_bytes();
    busy_ns += node.busy_ns();
  }
  RateOf(survey, ReadSource::kLink) = RateFrom(bytes, static_cast<double>(busy_ns) / 1e9);
}

// Opens a stream in mode `global`, or in mode `block` where the daemon says that the tiers do not
// hold the data set; then `refusal` is what it said.
Result<std::unique_ptr<BatchStream>> OpenAccepted(Client& client, StreamOptions options,
                                                  std::string& refusal) {
  Result<std::unique_ptr<BatchStream>> whole = client.Open(options);
  if (whole.has_value() || whole.error().code() != ErrorCode::kResourceExhausted) return whole;
  options.mode = OrderMode::kBlock;
  // An error of this one has another cause than the order.
  FOREBAY_ASSIGN(auto in_runs, client.Open(options));
  refusal = whole.error().message();
  return in_runs;
}

}  // namespace

Result<NodeSurvey> SurveyNode(const CommandContext& context, Client& client,
                              const DatasetInfo& info, const std::string& selection,
                              const SurveyOptions& options) {
  StreamOptions stream_options;
  stream_options.dataset = info.name;
  stream_options.stream_name = kStreamName;
  stream_options.selection = selection;
  stream_options.global_batch = options.global_batch;
  // More than are read: the time ends the reading, not the data set.
  stream_options.epochs = 1'000'000;
  NodeSurvey survey;
  FOREBAY_ASSIGN(const auto stream, OpenAccepted(client, stream_options, survey.refusal));
  FOREBAY_ASSIGN(const StreamReading reading, ReadFor(*stream, options.seconds));
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  v1::StatusReply status;
  FOREBAY_TRY(link.AskStatus(status));
  FOREBAY_TRY(stream->Finish());
  // The nodes are asked after the reading, which has made traffic between them.
  v1::NodesReply nodes;
  FOREBAY_TRY(link.AskNodes(nodes));
  TakeStatus(status, info, survey);
  TakeTierRates(status, reading, survey);
  TakeNodes(nodes, survey);
  // The daemon counts extents and bytes of the whole set, of which the selection is a part.
  const double part = static_cast<double>(info.selected_count) /
                      static_cast<double>(std::max<std::uint64_t>(1, info.sample_count));
  survey.dataset.samples = info.selected_count;
  survey.dataset.bytes = static_cast<double>(info.total_bytes) * part;
  survey.dataset.extents = std::max(1.0, survey.dataset.extents * part);
  return survey;
}

}  // namespace forebay::cli
