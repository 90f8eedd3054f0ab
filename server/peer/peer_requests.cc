// A request comes from another node, so whatever is counted or indexed by its numbers is checked
// first. Numbers that only the catalog can judge (samples, fields, extents) are passed on as they
// are, and checked by whoever answers (LocalRows, LocalExtents). The identity and the fingerprint
// are only read here, and compared by those who answer, too.
#include "server/peer/peer_requests.h"

#include <algorithm>

#include <fmt/format.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/peer/proto_buffer.h"
#include "server/stage/stat_source.h"

namespace forebay::peer {
namespace {

// These fields are in every request that names a catalog, with the same names.
template <typename Message>
PeerRequest RequestOf(const Message& message) {
  return {.identity = message.identity(),
          .dataset = message.dataset(),
          .catalog_fingerprint = message.catalog_fingerprint(),
          .rebuilds = message.rebuilds()};
}

template <typename Message>
void SetRequest(const PeerRequest& request, Message& message) {
  message.set_identity(request.identity);
  message.set_dataset(request.dataset);
  message.set_catalog_fingerprint(request.catalog_fingerprint);
  message.set_rebuilds(request.rebuilds);
}

// The numbers are those of ObjectStatsReply (peer.proto).
enum FileKind : std::uint32_t { kOther = 0, kRegular = 1, kDirectory = 2 };

std::uint32_t KindOf(const io::FileInfo& info) {
  if (info.is_regular) return kRegular;
  return info.is_directory ? kDirectory : kOther;
}

// A size that was altered on its way would give this node another catalog than the other nodes
// have.
// The batch is covered as well, so that the answer to another request does not pass for this one.
std::uint64_t DigestOf(std::uint64_t batch, std::span<const io::FileInfo> infos) {
  ByteWriter writer;
  writer.Le<std::uint64_t>(batch);
  for (const io::FileInfo& info : infos) {
    writer.Le<std::uint64_t>(info.bytes);
    writer.Le<std::uint64_t>(static_cast<std::uint64_t>(info.mtime_ns));
    writer.Le<std::uint32_t>(KindOf(info));
  }
  return Checksum(writer.bytes());
}

// A checksum that was altered on its way would later make right bytes look wrong, and the other way
// round, so all that is kept is covered.
std::uint64_t DigestOf(const FirstReadsGiven& given) {
  ByteWriter writer;
  writer.Le<std::uint64_t>(given.request.dataset);
  writer.Le<std::uint64_t>(given.request.catalog_fingerprint);
  writer.Le<std::uint32_t>(given.request.rebuilds);
  writer.Le<std::uint32_t>(given.from.value());
  for (const stage::FirstRead& read : given.reads) {
    writer.Le<std::uint32_t>(read.key.extent.value());
    writer.Le<std::uint64_t>(read.key.identity);
    writer.Le<std::uint64_t>(read.checksum);
  }
  return Checksum(writer.bytes());
}

}  // namespace

grpc::ByteBuffer WriteRequest(const RowsAsked& asked) {
  v1::SamplesRequest message;
  SetRequest(asked.request, message);
  message.mutable_samples()->Reserve(static_cast<int>(asked.rows.size()));
  message.mutable_fields()->Reserve(static_cast<int>(asked.rows.size()));
  // Two lists of numbers, which protobuf packs, are half as long as a list of messages.
  for (const fetch::Row& row : asked.rows) {
    message.add_samples(row.sample.value());
    message.add_fields(row.field.value());
  }
  // A request for values of fields alone has no list of chunks.
  if (std::ranges::any_of(asked.rows, [](const fetch::Row& row) { return row.chunk != 0; })) {
    for (const fetch::Row& row : asked.rows) message.add_chunks(row.chunk);
  }
  message.set_needs_runs(asked.need == fetch::Need::kRuns);
  // A place in no order is not sent: the owner would have nothing to compare it with.
  if (asked.place.order != 0) {
    v1::ReaderPlace& place = *message.mutable_place();
    place.set_order(asked.place.order);
    place.set_rank(asked.place.rank);
    place.set_ranks(asked.place.ranks);
    place.set_epoch(asked.place.epoch.value());
    place.set_position(asked.place.position);
  }
  // Without a carrier the tag is 0, which protobuf does not send, and the node is not looked at.
  message.set_payload_tag(asked.payload.tag);
  message.set_payload_port(asked.payload.port);
  message.set_payload_connection(asked.payload.connection);
  message.set_node(asked.from.value());
  for (const NodeRank node : asked.slow_nodes) message.add_slow_nodes(node.value());
  return ToBuffer(message);
}

grpc::ByteBuffer WriteRequest(const ExtentAsked& asked) {
  v1::ExtentRequest message;
  SetRequest(asked.request, message);
  message.set_extent(asked.extent.value());
  return ToBuffer(message);
}

// The reads are sent as three lists of numbers, for the same reason as rows are.
grpc::ByteBuffer WriteRequest(const FirstReadsGiven& given) {
  v1::FirstReadsRequest message;
  SetRequest(given.request, message);
  message.set_node(given.from.value());
  for (const stage::FirstRead& read : given.reads) {
    message.add_extents(read.key.extent.value());
    message.add_identities(read.key.identity);
    message.add_checksums(read.checksum);
  }
  message.set_digest(DigestOf(given));
  return ToBuffer(message);
}

// The node that asks has no catalog yet, so the request has no fingerprint. The hash of the object
// takes its place: both nodes must have listed the same file under that number.
grpc::ByteBuffer WriteRequest(const PartAsked& asked) {
  v1::CatalogPartRequest message;
  message.set_identity(asked.request.identity);
  message.set_dataset(asked.request.dataset);
  message.set_object_hash(asked.object_hash);
  message.set_object(asked.object.value());
  return ToBuffer(message);
}

// The files have no numbers yet, so their paths are sent. The batch is a digest of them, by which
// the other node notices if one was altered on its way.
grpc::ByteBuffer WriteStatsRequest(const PeerRequest& request,
                                   std::span<const std::string> paths) {
  v1::ObjectStatsRequest message;
  message.set_identity(request.identity);
  message.set_dataset(request.dataset);
  message.set_batch(stage::BatchKey(request.dataset, paths));
  message.mutable_paths()->Reserve(static_cast<int>(paths.size()));
  for (const std::string& path : paths) message.add_paths(path);
  return ToBuffer(message);
}

Result<RowsAsked> ParseRowsAsked(const grpc::ByteBuffer& bytes) {
  v1::SamplesRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  // The limit comes first, before anything is reserved for the rows.
  const auto count = static_cast<std::uint32_t>(message.samples_size());
  if (count > limits::kPeerRowsMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} rows are asked for in one call, at most {} are possible", count,
                             limits::kPeerRowsMax));
  }
  if (count == 0 || message.fields_size() != message.samples_size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} samples and {} fields are asked for; each row has one of both",
                             count, message.fields_size()));
  }
  // Ranks of slow nodes are not checked, because LinkWatch passes over those that it does not know.
  if (static_cast<std::size_t>(message.slow_nodes_size()) > limits::kPeerSlowMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} slow nodes are named in one call, at most {} are possible",
                             message.slow_nodes_size(), limits::kPeerSlowMax));
  }
  // Without this check the port would be cut to 16 bits below, and be another one.
  constexpr std::uint32_t kPortMax = 65'535;
  if (message.payload_port() > kPortMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("rows are awaited at port {}, which is above {}",
                             message.payload_port(), kPortMax));
  }
  const bool has_chunks = message.chunks_size() > 0;
  if (has_chunks && message.chunks_size() != message.samples_size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} chunks of {} samples are asked for; each row has one, or none has",
                             message.chunks_size(), count));
  }
  // A message without a place reads as zeros, and order 0 means that the place is not known.
  RowsAsked asked{.request = RequestOf(message),
                  .rows = {},
                  .need = message.needs_runs() ? fetch::Need::kRuns : fetch::Need::kSamples,
                  .place = {.order = message.place().order(),
                            .rank = message.place().rank(),
                            .ranks = message.place().ranks(),
                            .epoch = EpochId(message.place().epoch()),
                            .position = message.place().position()},
                  .payload = {.tag = message.payload_tag(),
                              .port = static_cast<std::uint16_t>(message.payload_port()),
                              .connection = message.payload_connection()},
                  .from = NodeRank(message.node())};
  for (const std::uint32_t node : message.slow_nodes()) {
    asked.slow_nodes.push_back(NodeRank(node));
  }
  asked.rows.reserve(count);
  // The node that answers needs no memory for the rows: it sends them from where they lie.
  for (int i = 0; i < message.samples_size(); ++i) {
    asked.rows.push_back({.sample = SampleId(message.samples(i)),
                          .field = FieldId(message.fields(i)),
                          .memory = {},
                          .chunk = has_chunks ? message.chunks(i) : 0});
  }
  return asked;
}

// Each extent that a number can name is possible here: only the catalog knows how many there are.
Result<ExtentAsked> ParseExtentAsked(const grpc::ByteBuffer& bytes) {
  v1::ExtentRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  return ExtentAsked{.request = RequestOf(message), .extent = ExtentId(message.extent())};
}

Result<FirstReadsGiven> ParseFirstReadsGiven(const grpc::ByteBuffer& bytes) {
  v1::FirstReadsRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  // As for rows: the limit first, then lists of one length, then the reads themselves.
  const auto count = static_cast<std::uint32_t>(message.extents_size());
  if (count > limits::kPeerFirstReadsMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} first reads are given in one call, at most {} are possible", count,
                             limits::kPeerFirstReadsMax));
  }
  if (count == 0 || message.identities_size() != message.extents_size() ||
      message.checksums_size() != message.extents_size()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} extents, {} identities and {} checksums are given; each first "
                             "read has one of all",
                             count, message.identities_size(), message.checksums_size()));
  }
  FirstReadsGiven given{
      .request = RequestOf(message), .from = NodeRank(message.node()), .reads = {}};
  given.reads.reserve(count);
  for (int i = 0; i < message.extents_size(); ++i) {
    given.reads.push_back({.key = {.dataset = message.dataset(),
                                   .extent = ExtentId(message.extents(i)),
                                   .identity = message.identities(i)},
                           .checksum = message.checksums(i)});
  }
  // The digest is taken of what was parsed, so it covers all that is kept.
  if (message.digest() != DigestOf(given)) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("{} first reads of node {} do not match their digest", count,
                             message.node()));
  }
  return given;
}

grpc::ByteBuffer WriteFirstReadsReply(std::span<const std::uint32_t> differing) {
  v1::FirstReadsReply message;
  message.mutable_differing()->Add(differing.begin(), differing.end());
  return ToBuffer(message);
}

Result<std::vector<std::uint32_t>> ParseFirstReadsReply(const grpc::ByteBuffer& bytes,
                                                        std::size_t count) {
  v1::FirstReadsReply message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  std::vector<std::uint32_t> differing(message.differing().begin(), message.differing().end());
  // The order must rise, so that there are no more indexes than reads, and none comes twice.
  for (std::size_t i = 0; i < differing.size(); ++i) {
    if (differing[i] < count && (i == 0 || differing[i - 1] < differing[i])) continue;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the answer names first read {} of {}, or does not name them in "
                             "rising order",
                             differing[i], count));
  }
  return differing;
}

// The number of the object is compared with the list of objects by LocalExtents, and the hash with
// that of the object.
Result<PartAsked> ParsePartAsked(const grpc::ByteBuffer& bytes) {
  v1::CatalogPartRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  return PartAsked{.request = {.identity = message.identity(),
                               .dataset = message.dataset(),
                               .catalog_fingerprint = 0},
                   .object = ObjectId(message.object()),
                   .object_hash = message.object_hash()};
}

Result<StatsAsked> ParseStatsAsked(const grpc::ByteBuffer& bytes) {
  v1::ObjectStatsRequest message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  StatsAsked asked{.request = {.identity = message.identity(),
                               .dataset = message.dataset(),
                               .catalog_fingerprint = 0},
                   .batch = message.batch(),
                   .paths = {message.paths().begin(), message.paths().end()}};
  // These paths go to the file system of this node, so each must stay beneath the root.
  FOREBAY_TRY(stage::CheckBatch(asked.paths));
  if (asked.batch != stage::BatchKey(message.dataset(), asked.paths)) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("{} paths do not match their digest", asked.paths.size()));
  }
  return asked;
}

grpc::ByteBuffer WriteStatsReply(std::uint64_t batch, std::span<const io::FileInfo> infos) {
  v1::ObjectStatsReply message;
  for (const io::FileInfo& info : infos) {
    message.add_bytes(info.bytes);
    message.add_mtimes_ns(info.mtime_ns);
    message.add_kinds(KindOf(info));
  }
  message.set_digest(DigestOf(batch, infos));
  return ToBuffer(message);
}

Result<std::vector<io::FileInfo>> ParseStatsReply(const grpc::ByteBuffer& bytes,
                                                  std::uint64_t batch, std::size_t count) {
  v1::ObjectStatsReply message;
  FOREBAY_TRY(FromBuffer(bytes, message));
  // Fewer than were asked for are no error: the next path has failed on the other node, and this
  // node tries it itself (StatSource).
  const int sizes = message.bytes_size();
  if (static_cast<std::size_t>(sizes) > count || message.mtimes_ns_size() != sizes ||
      message.kinds_size() != sizes) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("an answer with {} sizes, {} times and {} kinds of {} files", sizes,
                             message.mtimes_ns_size(), message.kinds_size(), count));
  }
  std::vector<io::FileInfo> infos;
  infos.reserve(static_cast<std::size_t>(sizes));
  for (int i = 0; i < sizes; ++i) {
    infos.push_back({.bytes = message.bytes(i),
                     .mtime_ns = message.mtimes_ns(i),
                     .is_regular = message.kinds(i) == kRegular,
                     .is_directory = message.kinds(i) == kDirectory});
  }
  if (message.digest() != DigestOf(batch, infos)) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("sizes and times of {} files do not match their digest", sizes));
  }
  return infos;
}

}  // namespace forebay::peer
