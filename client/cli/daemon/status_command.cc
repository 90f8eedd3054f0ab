// `forebay status` and `forebay datasets`: each sends one request to the daemon's admin service and
// prints the reply as tables for people, or as one JSON object with --json. A member of the JSON
// has the name of its field in admin.proto. The tables show the figures that an operator looks at
// first. Lines below a table appear only where something needs attention: damage, failures, or
// bytes that are on no tier.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/daemon/dataset_json.h"
#include "client/cli/daemon/nodes_table.h"
#include "client/cli/human_text.h"
#include "forebay/v1/admin.pb.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

// The functions that make JSON use the names of admin.proto without a change, because scripts read
// these members, and the comments of admin.proto are then their documentation as well.
JsonObject TierJson(const v1::TierStatus& tier) {
  return {{"name", tier.name()},
          {"capacity_bytes", tier.capacity_bytes()},
          {"used_bytes", tier.used_bytes()},
          {"pinned_bytes", tier.pinned_bytes()},
          {"extents", tier.extents()},
          {"evictions", tier.evictions()},
          {"hit_samples", tier.hit_samples()},
          {"hit_bytes", tier.hit_bytes()},
          {"bad_extents", tier.bad_extents()},
          {"device_errors", tier.device_errors()},
          // A retired tier stays in the list: its bytes are gone, and an operator has to see why.
          {"retired", tier.retired()}};
}

JsonObject StreamJson(const v1::StreamStatus& stream) {
  return {{"name", stream.name()},
          {"dataset", stream.dataset()},
          {"client", stream.client()},
          {"client_pid", stream.client_pid()},
          {"client_uid", stream.client_uid()},
          {"rank", stream.rank()},
          {"ranks", stream.ranks()},
          {"batches", stream.batches()},
          {"samples", stream.samples()},
          {"bytes", stream.bytes()},
          {"credits", stream.credits()},
          {"held", stream.held()},
          {"cut_off", stream.cut_off()},
          {"failed", stream.failed()},
          {"copied_views", stream.copied_views()},
          {"hit_ram_samples", stream.hit_ram_samples()},
          {"hit_ssd_samples", stream.hit_ssd_samples()},
          {"gfs_wait_samples", stream.gfs_wait_samples()},
          {"decoded_chunks", stream.decoded_chunks()},
          {"decoded_bytes", stream.decoded_bytes()},
          {"decode_ns", stream.decode_ns()},
          {"kept_samples", stream.kept_samples()}};
}

JsonArray CapsJson(const v1::GfsCounters& gfs) {
  JsonArray caps;
  for (const v1::GfsCap& cap : gfs.caps()) {
    caps.Add(JsonObject({{"name", cap.name()},
                         {"job_rate", cap.job_rate()},
                         {"node_rate", cap.node_rate()},
                         {"rate", cap.rate()},
                         {"lent", cap.lent()},
                         {"borrowed", cap.borrowed()},
                         {"inherited", cap.inherited()},
                         {"inherited_from", cap.has_inherited_from()
                                                ? JsonValue(cap.inherited_from())
                                                : JsonValue()},
                         {"used_rate", cap.used_rate()},
                         {"used", cap.used()},
                         {"waited_s", cap.waited_s()}}));
  }
  return caps;
}

// `status` and `datasets` print the same array, so a script can read data sets from either. The
// object of one data set is in dataset_json.h, because `stage` prints it as well.
JsonArray DatasetsJson(const v1::StatusReply& reply) {
  JsonArray datasets;
  for (const v1::DatasetStatus& dataset : reply.datasets()) datasets.Add(DatasetJson(dataset));
  return datasets;
}

JsonObject StatusJson(const v1::StatusReply& reply) {
  JsonObject json = {{"version", reply.version()},
               {"job_id", reply.job_id()},
               {"pid", reply.pid()},
               {"generation", reply.generation()},
               {"uptime_ms", reply.uptime_ms()},
               {"io_backend", reply.io_backend()},
               {"clients", reply.clients()},
               {"node_connections", reply.node_connections()},
               {"memory_limit_bytes", reply.memory_limit_bytes()},
               {"slot_bytes_capacity", reply.slot_bytes_capacity()},
               {"slot_bytes_used", reply.slot_bytes_used()},
               {"pages", JsonObject({{"reserved_bytes", reply.pages().reserved_bytes()},
                 {"transparent_bytes", reply.pages().transparent_bytes()},
                 {"small_bytes", reply.pages().small_bytes()},
                 {"advice", reply.pages().advice()}})},
               {"gfs", JsonObject({{"opens", reply.gfs().opens()},
                 {"reads", reply.gfs().reads()},
                 {"bytes", reply.gfs().bytes()},
                 {"stats", reply.gfs().stats()},
                 {"incidents", reply.gfs().incidents()},
                 {"retries", reply.gfs().retries()},
                 {"given_up", reply.gfs().given_up()},
                 {"failing", reply.gfs().failing()},
                 {"last_error", reply.gfs().last_error()},
                 {"hung", reply.gfs().hung()},
                 {"hung_total", reply.gfs().hung_total()},
                 {"hung_oldest", reply.gfs().hung_oldest()},
                 {"hung_oldest_ms", reply.gfs().hung_oldest_ms()},
                 {"is_yielding", reply.gfs().is_yielding()},
                 {"caps", CapsJson(reply.gfs())}})}};
  const v1::ScrubStatus& scrub = reply.scrub();
  json.Add("scrub", JsonObject({{"enabled", scrub.enabled()},
                   {"extents", scrub.extents()},
                   {"bytes", scrub.bytes()},
                   {"bad_extents", scrub.bad_extents()}}));
  const v1::DecodeStatus& decode = reply.decode();
  json.Add("decode", JsonObject({{"capacity_bytes", decode.capacity_bytes()},
                    {"used_bytes", decode.used_bytes()},
                    {"units", decode.units()},
                    {"hits", decode.hits()},
                    {"shared", decode.shared()},
                    {"decoded", decode.decoded()},
                    {"evictions", decode.evictions()},
                    {"decoded_bytes", decode.decoded_bytes()},
                    {"decode_ns", decode.decode_ns()}}));
  JsonArray tiers;
  for (const v1::TierStatus& tier : reply.tiers()) tiers.Add(TierJson(tier));
  json.Add("tiers", tiers);
  json.Add("datasets", DatasetsJson(reply));
  JsonArray streams;
  for (const v1::StreamStatus& stream : reply.streams()) streams.Add(StreamJson(stream));
  json.Add("streams", streams);
  return json;
}

// Fields of the reply have no value that says "unknown": an older daemon, which does not send a
// newer counter, shows as 0. A line that needs a counter above 0 is not printed then.
void PrintTiers(CommandContext& context, const v1::StatusReply& reply) {
  TextTable table({"TIER", "USED", "OF", "PINNED", "EXTENTS", "EVICTIONS", "HITS", "HIT BYTES"});
  for (const v1::TierStatus& tier : reply.tiers()) {
    table.Add({tier.name() + (tier.retired() ? " (retired)" : ""), HumanBytes(tier.used_bytes()),
               HumanBytes(tier.capacity_bytes()), HumanBytes(tier.pinned_bytes()),
               HumanCount(tier.extents()), HumanCount(tier.evictions()),
               HumanCount(tier.hit_samples()), HumanBytes(tier.hit_bytes())});
  }
  context.out << '\n' << table.ToString();
  for (const v1::TierStatus& tier : reply.tiers()) {
    // A healthy tier has no line: a column of zeros would hide the one that is not.
    if (tier.bad_extents() + tier.device_errors() == 0) continue;
    context.out << tier.name() << ": " << HumanCount(tier.bad_extents())
                << " damaged extents were dropped (they are fetched again when needed), "
                << HumanCount(tier.device_errors()) << " device errors\n";
  }
}

void PrintDatasets(CommandContext& context, const v1::StatusReply& reply) {
  TextTable table({"DATA SET", "STATE", "SAMPLES", "SIZE", "STAGED", "RAM", "SSD", "GFS READ",
                   "STORED"});
  for (const v1::DatasetStatus& dataset : reply.datasets()) {
    table.Add({dataset.name(), dataset.state(), HumanCount(dataset.samples()),
               HumanBytes(dataset.total_bytes()), HumanBytes(dataset.staged_bytes()),
               HumanBytes(dataset.ram_bytes()), HumanBytes(dataset.ssd_bytes()),
               HumanBytes(dataset.gfs_bytes()),
               // "raw" may be followed by the reason why the data set is not packed. The reason
               // would make the column too wide, so it follows below the table.
               dataset.stored_form().substr(0, dataset.stored_form().find(" (compress"))});
  }
  context.out << '\n' << table.ToString();
  for (const v1::DatasetStatus& dataset : reply.datasets()) {
    if (dataset.stored_form().find(" (compress") != std::string::npos) {
      context.out << dataset.name() << ": " << dataset.stored_form() << '\n';
    }
    // Samples in these bytes are still delivered, but they have to be read from the GFS. The
    // daemon's reason also says what to change.
    if (dataset.unstaged_bytes() > 0) {
      context.out << dataset.name() << ": " << HumanBytes(dataset.unstaged_bytes())
                  << " on no tier: " << PrintableLine(dataset.unstaged_reason()) << '\n';
    }
    if (dataset.other_nodes_bytes() > 0) {
      context.out << dataset.name() << ": " << HumanBytes(dataset.other_nodes_bytes())
                  << " lie on other nodes of the job (forebay status --nodes)\n";
    }
    if (dataset.copied_bytes() > 0) {
      context.out << dataset.name() << ": " << HumanBytes(dataset.copied_bytes())
                  << " are copies of what other nodes keep\n";
    }
    if (dataset.gfs_pieces() > 0) {
      context.out << dataset.name() << ": " << HumanCount(dataset.gfs_pieces()) << " pieces ("
                  << HumanBytes(dataset.gfs_piece_bytes())
                  << ") of extents on no tier were read from the GFS one by one\n";
    }
    // A mismatch means that a file has changed since it was read first, or that a read returned
    // wrong bytes. A count is enough here, because the daemon logs each of them with its place.
    if (dataset.mismatches() > 0) {
      context.out << dataset.name() << ": " << HumanCount(dataset.mismatches())
                  << " reads did not match the first read of their extent (the log names them)\n";
    }
    if (!dataset.error().empty()) {
      context.out << dataset.name() << ": " << PrintableLine(dataset.error()) << '\n';
    }
  }
}

void PrintStreams(CommandContext& context, const v1::StatusReply& reply) {
  TextTable table({"STREAM", "DATA SET", "RANK", "CLIENT", "BATCHES", "SAMPLES", "BYTES", "HELD",
                   "RAM HITS", "SSD HITS", "GFS WAITS"});
  for (const v1::StreamStatus& stream : reply.streams()) {
    table.Add({stream.name(), stream.dataset(),
               fmt::format("{}/{}", stream.rank(), stream.ranks()), stream.client(),
               HumanCount(stream.batches()), HumanCount(stream.samples()),
               HumanBytes(stream.bytes()),
               fmt::format("{}/{}", stream.held(), stream.credits()),
               HumanCount(stream.hit_ram_samples()), HumanCount(stream.hit_ssd_samples()),
               HumanCount(stream.gfs_wait_samples())});
  }
  // A daemon often has no stream, and this table is left out then. A daemon without tiers or data
  // sets is unusual, so those two tables are printed without rows as well.
  if (table.row_count() != 0) context.out << '\n' << table.ToString();
  for (const v1::StreamStatus& stream : reply.streams()) {
    if (!stream.cut_off()) continue;
    context.out << fmt::format(
        "{} {}/{}: the client was cut off and may still read {} batches; their memory is kept "
        "until it comes back or ends\n",
        stream.name(), stream.rank(), stream.ranks(), stream.held());
  }
  for (const v1::StreamStatus& stream : reply.streams()) {
    // Only a stream of packed data has such a line. It may have decoded nothing itself, where other
    // streams had already decoded all values that it needed.
    if (stream.decoded_bytes() + stream.kept_samples() == 0) continue;
    const double seconds = static_cast<double>(stream.decode_ns()) / 1e9;
    // Chunks decode as a whole, so a batch that takes few samples of each makes the daemon decode
    // more than it delivers. A large quotient asks for smaller chunks or another order.
    const double amplification = static_cast<double>(stream.decoded_bytes()) /
                                 static_cast<double>(std::max<std::uint64_t>(1, stream.bytes()));
    context.out << fmt::format(
        "{} {}/{}: decoded {} of {} chunks in {}, {:.2f} times what was delivered; {} values were "
        "decoded already\n",
        stream.name(), stream.rank(), stream.ranks(), HumanBytes(stream.decoded_bytes()),
        HumanCount(stream.decoded_chunks()), HumanSeconds(seconds), amplification,
        HumanCount(stream.kept_samples()));
  }
}

// A job without caps has no such line.
void PrintCaps(CommandContext& context, const v1::GfsCounters& gfs) {
  for (const v1::GfsCap& cap : gfs.caps()) {
    const auto rate = [&](double value) {
      if (cap.name() == "requests") return fmt::format("{:.0f} in flight", value);
      return cap.name() == "bytes" ? HumanRate(value) : fmt::format("{:.1f}/s", value);
    };
    const std::string inherited =
        cap.has_inherited_from() ? fmt::format(", inherited {} from node {}, which is lost",
                                               rate(cap.inherited()), cap.inherited_from())
                                 : "";
    context.out << fmt::format(
        "GFS cap on {}: {} for the job, {} of it for this node; now it may use {} (lent {}, "
        "borrowed {}{}) and uses {}; calls have waited {}\n",
        cap.name(), rate(cap.job_rate()), rate(cap.node_rate()), rate(cap.rate()),
        rate(cap.lent()), rate(cap.borrowed()), inherited, rate(cap.used_rate()),
        HumanSeconds(cap.waited_s()));
  }
}

void PrintStatus(CommandContext& context, const v1::StatusReply& reply) {
  context.out << fmt::format(
      "forebayd {} (pid {}), job '{}', up {}, {} I/O, {} clients\n"
      "memory limit {}, slots {} of {}, decoded chunks {} of {}\n"
      "memory pages: 2 MiB reserved {}, 2 MiB transparent {}, 4 KiB {}\n"
      "GFS: {} opens, {} reads, {} bytes ({}), {} stats\n",
      reply.version(), reply.pid(), reply.job_id(),
      HumanSeconds(static_cast<double>(reply.uptime_ms()) / 1000), reply.io_backend(),
      reply.clients(), HumanBytes(reply.memory_limit_bytes()),
      HumanBytes(reply.slot_bytes_used()), HumanBytes(reply.slot_bytes_capacity()),
      HumanBytes(reply.decode().used_bytes()), HumanBytes(reply.decode().capacity_bytes()),
      HumanBytes(reply.pages().reserved_bytes()), HumanBytes(reply.pages().transparent_bytes()),
      HumanBytes(reply.pages().small_bytes()),
      HumanCount(reply.gfs().opens()), HumanCount(reply.gfs().reads()),
      // Both forms: the exact number shows whether each byte was read once, the other is for
      // reading.
      HumanCount(reply.gfs().bytes()), HumanBytes(reply.gfs().bytes()),
      HumanCount(reply.gfs().stats()));
  context.out << NodeConnectionsLine(reply.node_connections());
  PrintCaps(context, reply.gfs());
  // Small pages cost speed, and only the site can change that.
  if (!reply.pages().advice().empty()) {
    context.out << "small pages: " << PrintableLine(reply.pages().advice()) << '\n';
  }
  // Failures of the GFS that were mended by repeating a call are shown, too: they are often the
  // reason for slow staging, and nothing else tells of them.
  if (reply.gfs().incidents() > 0) {
    context.out << "gfs failures " << HumanCount(reply.gfs().incidents()) << ", calls repeated "
                << HumanCount(reply.gfs().retries()) << ", given up "
                << HumanCount(reply.gfs().given_up()) << ", failing now "
                << HumanCount(reply.gfs().failing()) << ", last error: "
                << PrintableLine(reply.gfs().last_error()) << '\n';
  }
  // A call that is not answered is no failure yet, and cannot be taken back. The oldest one names
  // the object that an operator should look for on the file system.
  if (reply.gfs().hung() > 0) {
    context.out << "gfs calls not answered " << HumanCount(reply.gfs().hung())
                << ", the oldest for "
                << HumanSeconds(static_cast<double>(reply.gfs().hung_oldest_ms()) / 1000) << ": "
                << PrintableLine(reply.gfs().hung_oldest()) << '\n';
  }
  if (reply.gfs().is_yielding()) {
    context.out << "other nodes read the GFS in place of this one, because only here it is slow: "
                   "look at its mount\n";
  }
  PrintTiers(context, reply);
  PrintDatasets(context, reply);
  PrintStreams(context, reply);
}

// The daemon answers with its whole status in one reply. `datasets` shows a part of that reply, so
// the admin service needs no second call for it.
Result<v1::StatusReply> AskStatus(const CommandContext& context) {
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  v1::StatusReply reply;
  FOREBAY_TRY(link.AskStatus(reply));
  return reply;
}

Status RunNodes(CommandContext& context) {
  FOREBAY_ASSIGN(const AdminLink link, AdminLink::Connect(context));
  v1::NodesReply reply;
  FOREBAY_TRY(link.AskNodes(reply));
  if (context.json) {
    context.PrintJson("nodes", {{"nodes", NodesJson(reply)},
                                {"is_encrypted", reply.is_encrypted()},
                                {"node_connections", reply.node_connections()}});
  } else {
    context.out << NodesTable(reply);
  }
  return {};
}

Status RunStatus(CommandContext& context) {
  FOREBAY_ASSIGN(const v1::StatusReply reply, AskStatus(context));
  if (context.json) {
    context.PrintJson("status", StatusJson(reply));
  } else {
    PrintStatus(context, reply);
  }
  return {};
}

Status RunDatasets(CommandContext& context) {
  FOREBAY_ASSIGN(const v1::StatusReply reply, AskStatus(context));
  if (context.json) {
    // An object around the array, because every line of JSON has to name its schema.
    context.PrintJson("datasets", {{"datasets", DatasetsJson(reply)}});
    return {};
  }
  TextTable table({"DATA SET", "FORMAT", "STATE", "SAMPLES", "SIZE", "OBJECTS", "EXTENTS",
                   "CATALOG"});
  for (const v1::DatasetStatus& dataset : reply.datasets()) {
    table.Add({dataset.name(), dataset.format(), dataset.state(), HumanCount(dataset.samples()),
               HumanBytes(dataset.total_bytes()), HumanCount(dataset.objects()),
               HumanCount(dataset.extents()),
               // Hexadecimal, because fingerprints are compared by eye and never computed with.
               fmt::format("{:016x}", dataset.catalog_fingerprint())});
  }
  context.out << table.ToString();
  return {};
}

}  // namespace

void AddStatus(Command& program, CommandContext& context) {
  Command command =
      program.AddCommand("status",
                         "Show tiers, data sets, streams and what was read from the GFS.");
  const auto nodes = std::make_shared<bool>(false);
  command.AddFlag("--nodes", *nodes,
                  "Show the nodes of the job instead: shares, tiers, and how fast each of them "
                  "supplies this one; the slowest first");
  command.OnRun([&context, nodes] { return *nodes ? RunNodes(context) : RunStatus(context); });
}

void AddDatasets(Command& program, CommandContext& context) {
  program.AddCommand("datasets", "List the daemon's data sets.").OnRun([&context] {
    return RunDatasets(context);
  });
}

}  // namespace forebay::cli
