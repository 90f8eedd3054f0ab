// Writes the binary seeds of the fuzz targets, which are checked in: write_seeds FOLDER makes
// FOLDER/<target>/. The seeds of server/catalog come from its own catalog_fuzz_seeds.
// A fuzzer changes bytes at random, and hardly ever hits a magic number or a checksum. So each
// branch that lies behind one needs a seed that gets there: a well-formed input of each kind, and
// beside it inputs that are wrong in one thing only. They are made by the encoders of the formats,
// so a format that changes needs a run of this program and no work by hand: the test
// `write_seeds.InCorpus` fails until the files that differ are in the corpus.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/util/delimited_message_util.h>

#include "forebay/v1/admin.pb.h"
#include "forebay/v1/data.pb.h"
#include "forebay/v1/peer.pb.h"
#include "proto/contract/check.h"
#include "proto/contract/order_token.h"
#include "proto/contract/tensor.h"
#include "proto/contract/wire_layout.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/selection.h"
#include "server/peer/member_requests.h"
#include "server/peer/peer_requests.h"
#include "server/peer/row_checksum.h"
#include "server/rendezvous/node_file.h"
#include "server/tier/ssd/manifest_log.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay {
namespace {

// Writes files, and remembers whether all were written.
class SeedFolder {
 public:
  explicit SeedFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void Write(const std::string& place, std::string_view text) {
    const std::filesystem::path path = folder_ / place;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file << text;
    // Closed before the check, because the last bytes are written by close.
    file.close();
    is_good_ = is_good_ && file.good();
  }
  void Write(const std::string& place, std::span<const std::byte> bytes) {
    Write(place, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  bool is_good() const { return is_good_; }

 private:
  std::filesystem::path folder_;
  bool is_good_ = true;
};

// The bytes of a struct as they travel. Only for structs of fixed layout (wire_layout.h) and
// numbers.
template <typename T>
std::string TextOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A spec and a token for each mode that has parameters of its own. Between them, these also have
// two tail policies, a first epoch in another mode, and both versions of the encoding.
void WriteOrders(SeedFolder& seeds) {
  const OrderSpec global = {.seed = 7, .sample_count = 1000, .selection_fingerprint = 3};
  OrderSpec block = {.seed = 8,
                     .sample_count = 12345,
                     .tail = TailPolicy::kPad,
                     .shape = {.mode = OrderMode::kBlock, .block_samples = 10, .window_runs = 4}};
  block.first_epoch_shape = OrderShape{.mode = OrderMode::kSequential};
  const OrderSpec partial = {.seed = 9,
                             .sample_count = 1003,
                             .tail = TailPolicy::kShort,
                             .shape = {.mode = OrderMode::kPartial,
                                       .block_samples = 10,
                                       .canonical_nodes = 4,
                                       .exchange_millionths = 300'000,
                                       .global_batch = 32}};
  seeds.Write("order_spec/global", global.Encode());
  seeds.Write("order_spec/block", block.Encode());
  seeds.Write("order_spec/partial", partial.Encode());
  PositionToken token = {.catalog_fingerprint = 5,
                         .order = global,
                         .global_batch = 32,
                         .next_epoch = EpochId(2),
                         .next_step = StepId(9)};
  seeds.Write("order_token/global", token.Encode());
  token.order = block;
  seeds.Write("order_token/block", token.Encode());
  token.order = partial;
  seeds.Write("order_token/partial", token.Encode());
}

// Files on SSD as an earlier daemon may have left them. The torn manifest lacks the end of its last
// record, as after a loss of power.
void WriteTier(SeedFolder& seeds) {
  using namespace tier;
  constexpr std::uint64_t kGeneration = 4;
  const ExtentKey key = {.dataset = 11, .extent = ExtentId(2), .identity = 13};
  const SegmentShape shape = {.image_bytes = 5000, .piece_count = 3};
  std::vector<std::byte> manifest = EncodeManifestHeader(kGeneration);
  seeds.Write("manifest_log/empty", manifest);
  for (const ManifestKind kind : {ManifestKind::kPublish, ManifestKind::kRemove}) {
    // The checksum of a record covers its offset, so a record at another place is refused.
    const auto record = EncodeManifestRecord({.kind = kind, .key = key, .shape = shape},
                                             kGeneration, manifest.size());
    manifest.insert(manifest.end(), record.begin(), record.end());
  }
  seeds.Write("manifest_log/published_and_removed", manifest);
  seeds.Write("manifest_log/torn", std::span(manifest).first(manifest.size() - 5));

  // The trailer without a table of pieces, and the one with it, have different lengths.
  const SegmentShape whole = {.image_bytes = 5000, .piece_count = 0};
  std::vector<std::byte> trailer(whole.trailer_bytes());
  EncodeTrailer(key, whole, {.image = 17, .pieces = {}}, trailer);
  seeds.Write("segment_format/no_pieces", trailer);
  trailer.assign(shape.trailer_bytes(), std::byte{0});
  EncodeTrailer(key, shape, {.image = 17, .pieces = {1, 2, 3}}, trailer);
  seeds.Write("segment_format/three_pieces", trailer);
  seeds.Write("segment_format/name", SegmentName(key));
  seeds.Write("segment_format/temp_name", SegmentTempName(key, 12));
}

// One file of each kind of the rendezvous, as leader and follower write them for two nodes.
void WriteNodeFiles(SeedFolder& seeds) {
  using namespace rendezvous;
  const NodeIdentity first = {.job = "4711", .host = "n0", .ssd_directory = "/ssd"};
  const NodeEntry leader = {.identity = first,
                            .place = first,
                            .rank = NodeRank(0),
                            .address = {.host = "10.0.0.1", .port = 7000},
                            .capacity_bytes = 1ULL << 40,
                            .nonce = 5,
                            .agreed = {{"protocol version", "1"}, {"configuration", "9f3c"}}};
  NodeEntry follower = leader;
  // IPv6, and a host name that looks like an address: both contain the separators of the format.
  follower.place.host = "[fd00::2]:7000";
  follower.identity = follower.place;
  follower.rank = NodeRank(1);
  follower.address.host = "fd00::2";
  follower.nonce = 6;
  NodeFile file = {.kind = NodeFileKind::kOpen, .leader_nonce = 5, .node_count = 2,
                   .nodes = {leader}};
  seeds.Write("node_file/call", Encode(file));
  file.kind = NodeFileKind::kAnswer;
  file.nodes = {follower};
  seeds.Write("node_file/answer", Encode(file));
  file.kind = NodeFileKind::kComplete;
  file.nodes = {leader, follower};
  seeds.Write("node_file/list", Encode(file));
  // A node has taken the place of the follower, and another place is free.
  NodeEntry joined = follower;
  joined.identity.host = "n2";
  joined.address = {.host = "10.0.0.3", .port = 7000};
  file.nodes = {leader, TakePlace(follower, joined)};
  file.nodes = *WithFreePlaces(std::move(file.nodes), 1);
  file.node_count = 3;
  seeds.Write("node_file/places", Encode(file));
  file.node_count = 2;
  file.kind = NodeFileKind::kRefused;
  file.refusal = "ranks are missing";
  file.nodes = {leader};
  seeds.Write("node_file/refused", Encode(file));
}

// What the daemon answers to a client: the number of regions decides how many entries follow, and a
// refusal has none.
void WriteHandshakes(SeedFolder& seeds) {
  ServerHello hello;
  hello.session = 1;
  hello.generation = 2;
  seeds.Write("handshake/no_regions", TextOf(hello));
  hello.region_count = 2;
  const RegionEntry arena = {.id = 0, .kind = 1, .bytes = 4096, .page_bytes = 4096,
                             .generation = 2};
  RegionEntry slots = arena;
  slots.id = 1;
  slots.kind = 2;
  seeds.Write("handshake/two_regions", TextOf(hello) + TextOf(arena) + TextOf(slots));
  hello.region_count = 0;
  hello.status = static_cast<std::uint32_t>(ErrorCode::kUnavailable);
  seeds.Write("handshake/refused", TextOf(hello));
}

// Two samples of a fixed field, a varying one and a constant.
v1::StreamReply MakeReply(std::uint32_t region) {
  v1::StreamReply reply;
  for (const char* name : {"image", "text", "label"}) {
    v1::Field& field = *reply.mutable_opened()->add_fields();
    field.set_name(name);
    field.set_dtype(static_cast<std::uint32_t>(Dtype::kBytes));
    if (field.name() == "image") {
      field.set_dtype(static_cast<std::uint32_t>(Dtype::kU8));
      field.add_shape(4);
    }
    field.set_constant(field.name() == "label");
  }
  v1::Batch& batch = *reply.add_batches();
  batch.set_id(1);
  batch.set_sample_count(2);
  batch.set_sample_ids(TextOf(std::uint64_t{5}) + TextOf(std::uint64_t{9}));
  batch.add_fields()->set_tensor(TextOf(WireSpan{.region = region, .offset = 0, .length = 8}));
  v1::FieldData& text = *batch.add_fields();
  text.set_spans(TextOf(WireSpan{.region = region, .offset = 8, .length = 3}) +
                 TextOf(WireSpan{.region = region, .offset = 11, .length = 2}) +
                 TextOf(WireSpan{.region = kAbsentRegion}));
  // The first sample has two spans, the second one a span that says its value is absent.
  text.add_span_counts(2);
  text.add_span_counts(1);
  batch.add_fields()->set_constants(TextOf(std::int64_t{1}) + TextOf(std::int64_t{-1}));
  return reply;
}

// The same batch in both deliveries: spans point into a region, or into the message itself.
void WriteReplies(SeedFolder& seeds) {
  seeds.Write("batch_decoder/shared_memory", MakeReply(0).SerializeAsString());
  v1::StreamReply reply = MakeReply(kInlineRegion);
  reply.mutable_batches(0)->set_inline_bytes(13);
  // Bytes of an inline batch come in chunks, which name the batch they belong to.
  reply.mutable_chunk()->set_batch_id(1);
  reply.mutable_chunk()->set_data("thirteen byte");
  seeds.Write("batch_decoder/inline", reply.SerializeAsString());
}

// As a delivery log writes binary values.
std::string HexOf(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

// What the first line of a log says, as far as the seeds differ in it.
struct LogHeader {
  std::string selection = "all";
  std::uint64_t sample_count = 6;
  std::uint64_t first_epoch = 0;
  std::uint64_t first_step = 0;
  std::uint64_t epochs = 1;
  std::uint64_t opened_unix_ns = 0;
};

// Of a stream in file order, three samples to a step.
std::string HeaderLine(const LogHeader& header) {
  const OrderSpec order = {.seed = 1, .sample_count = header.sample_count,
                           .shape = {.mode = OrderMode::kSequential}};
  return R"({"forebay_delivery_log":1,"opened_unix_ns":)" + std::to_string(header.opened_unix_ns) +
         R"(,"dataset":"d","stream":"s","selection":")" + header.selection +
         R"(","catalog_fingerprint":3,"samples":)" + std::to_string(header.sample_count) +
         R"(,"global_batch":3,"ranks":1,"rank":0,"first_epoch":)" +
         std::to_string(header.first_epoch) + R"(,"first_step":)" +
         std::to_string(header.first_step) + R"(,"epochs":)" + std::to_string(header.epochs) +
         R"(,"order_spec":")" + HexOf(order.Encode()) + "\"}\n";
}

// Logs of a client, which `forebay audit` reads: whole ones, one whose reader was started again,
// and one that ends within a line, as after a crash.
void WriteDeliveryLogs(SeedFolder& seeds) {
  const std::string first = R"({"epoch":0,"step":0,"position":0,"ids":[0,1,2]})" "\n";
  const std::string second = R"({"epoch":0,"step":1,"position":3,"ids":[3,4,5]})" "\n";
  seeds.Write("delivery_history/whole", HeaderLine({}) + first + second);
  seeds.Write("delivery_history/restarted", HeaderLine({}) + first + second +
                                                HeaderLine({.first_step = 1, .opened_unix_ns = 1}) +
                                                second);
  seeds.Write("delivery_history/selection", HeaderLine({.selection = "range:10:16"}) + first);
  seeds.Write("delivery_history/torn",
              HeaderLine({}) + first + second.substr(0, second.size() / 2));
  seeds.Write("delivery_history/torn_twice",
              HeaderLine({}) + first.substr(0, first.size() / 2) + "\n{\"forebay\n" +
                  HeaderLine({.opened_unix_ns = 1}) + first + second);
  // By the clocks, the log of an earlier run is missing.
  using namespace std::string_literals;
  seeds.Write("delivery_history/log_missing", HeaderLine({.first_step = 1}) + "\0"s +
                                                  HeaderLine({.opened_unix_ns = 1}) + first +
                                                  second);
  // Once, no epoch at all was judged then.
  seeds.Write("delivery_history/batch_before_its_stream", HeaderLine({.first_epoch = 1}) + first);
  // The header of a log says how much was selected. These once cost 2 GiB of memory and a million
  // epochs, before a single step had been read.
  seeds.Write("delivery_history/claims_a_huge_selection",
              HeaderLine({.selection = "hash:0:1", .sample_count = 1ULL << 28}) + first);
  seeds.Write("delivery_history/claims_endless_epochs",
              HeaderLine({.epochs = ~std::uint32_t{0}}) + first);
  seeds.Write("delivery_history/claims_the_last_epoch",
              HeaderLine({.first_epoch = ~std::uint64_t{0}}));
}

// What stream_request_fuzz serves: 512 records, and a reader of all of them.
v1::StreamRequest OpenRequest(std::string_view selection, Delivery delivery) {
  // The order spec has to fit the selection, or the stream is refused before anything else is
  // looked at. So size and fingerprint come from the selection itself.
  const auto selected = catalog::MakeSelection(selection, 512, "");
  FOREBAY_CHECK(selected.has_value());
  const auto order = OrderSpec{.seed = 7,
                               .sample_count = (*selected)->size(),
                               .selection_fingerprint = (*selected)->fingerprint(),
                               .tail = TailPolicy::kPad}
                         .Encode();
  v1::StreamRequest request;
  v1::OpenStream& open = *request.mutable_open();
  open.set_dataset("data");
  open.set_stream_name("train");
  open.set_selection(std::string(selection));
  open.set_order_spec(order.data(), order.size());
  open.set_global_batch(16);
  open.set_ranks(2);
  open.set_delivery(static_cast<std::uint32_t>(delivery));
  open.set_credits(4);
  return request;
}

// Asks for `count` steps of epoch 0, from `step` on.
v1::StreamRequest PullRequest(std::uint64_t step, std::uint32_t count) {
  v1::StreamRequest request;
  v1::Pull& pull = *request.add_pulls();
  pull.set_first_step(step);
  pull.set_step_count(count);
  return request;
}

// Several messages of one stream as one input: each has its length before it.
template <typename Message>
std::string DelimitedOf(const std::vector<Message>& messages) {
  std::ostringstream out;
  for (const Message& message : messages) {
    FOREBAY_CHECK(google::protobuf::util::SerializeDelimitedToOstream(message, &out));
  }
  return out.str();
}
std::string Delimited(const std::vector<v1::StreamRequest>& requests) {
  return DelimitedOf(requests);
}

// Requests of a client. The bad ones break a rule of the protocol and are well-formed otherwise, so
// that they get past the parser.
void WriteRequests(SeedFolder& seeds) {
  const v1::StreamRequest open = OpenRequest("all", Delivery::kContiguous);
  v1::StreamRequest release;
  for (std::uint64_t id = 1; id <= 3; ++id) release.add_release(id);
  // Micro-batches divide the global batch, whatever the ranks, so one of 16 samples is all of it. A
  // reader may ask for any epoch, because the daemon keeps no state of delivery.
  v1::StreamRequest micro = PullRequest(3, 1);
  micro.mutable_pulls(0)->set_micro_size(16);
  micro.mutable_pulls(0)->set_epoch(9);
  v1::StreamRequest finish;
  finish.set_finish(true);
  seeds.Write("stream_request/contiguous",
              Delimited({open, PullRequest(0, 3), release, PullRequest(3, 4), finish}));
  seeds.Write("stream_request/views", Delimited({OpenRequest("range:3:200", Delivery::kViews),
                                                 PullRequest(11, 2), micro}));
  v1::StreamRequest inlined = OpenRequest("hash:0:0.5", Delivery::kContiguous);
  inlined.mutable_open()->set_inline_payload(true);
  seeds.Write("stream_request/inline", Delimited({inlined, PullRequest(0, 1)}));
  // Cut off with three batches, of which the reader still has one, and comes back twice.
  v1::StreamRequest named = open;
  named.mutable_open()->set_reader(77);
  named.mutable_open()->set_call(1);
  v1::StreamRequest again = named;
  again.mutable_open()->add_still_held(2);
  again.mutable_open()->add_gone_readers(78);
  again.mutable_open()->set_call(2);
  v1::StreamRequest last = again;
  last.mutable_open()->set_call(3);
  v1::StreamRequest release_kept;
  release_kept.add_release(2);
  v1::StreamRequest close;
  close.set_close(true);
  seeds.Write("stream_request/cut_off",
              Delimited({named, PullRequest(0, 3), again, release_kept, PullRequest(3, 4), last,
                         PullRequest(7, 1), close}));
  // The stream has four credits. Nobody has delivered the batches that `release` names. The first
  // message must open a stream, and no later one may. The last pull wraps around 64 bits.
  seeds.Write("stream_request/more_than_credits", Delimited({open, PullRequest(0, 5)}));
  seeds.Write("stream_request/not_held", Delimited({open, release}));
  seeds.Write("stream_request/opened_twice", Delimited({open, open}));
  seeds.Write("stream_request/not_opened", Delimited({PullRequest(0, 1)}));
  seeds.Write("stream_request/steps_that_do_not_exist",
              Delimited({open, PullRequest(~std::uint64_t{0}, 4)}));

  // Indices at and behind the end of a selection, where a sum could overflow.
  v1::ResolveRequest resolve;
  resolve.set_dataset("data");
  resolve.set_selection("hash:0.25:0.5");
  resolve.set_first_index(7);
  resolve.set_count(100);
  seeds.Write("resolve_request/hash", resolve.SerializeAsString());
  resolve.set_selection("range:9000:20000");
  seeds.Write("resolve_request/beyond", resolve.SerializeAsString());
  resolve.set_selection("list:train");
  seeds.Write("resolve_request/no_such_split", resolve.SerializeAsString());
  resolve.set_selection("all");
  resolve.set_first_index(~std::uint64_t{0});
  resolve.set_count(65'536);
  seeds.Write("resolve_request/behind_the_end", resolve.SerializeAsString());
}

// A file: the length of the header, the header, and data without a meaning.
std::string Safetensors(const std::string& header, std::size_t data_bytes) {
  return TextOf(std::uint64_t{header.size()}) + header + std::string(data_bytes, '\x3c');
}

// Weights of others, which the trainer loads. Half a tensor, tensors that overlap, and a shape
// whose product overflows 64 bits each claim bytes that the file does not have.
void WriteSafetensors(SeedFolder& seeds) {
  const std::string half = R"("h":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]})";
  const std::string brain = R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[12,20]})";
  const std::string single = R"("f":{"dtype":"F32","shape":[],"data_offsets":[20,24]})";
  const std::string all = "{" + half + "," + brain + "," + single;
  seeds.Write("safetensors/three_tensors",
              Safetensors(all + R"(,"__metadata__":{"format":"pt"}})", 24));
  seeds.Write("safetensors/no_tensors", Safetensors("{}", 0));
  seeds.Write("safetensors/torn", Safetensors(all + "}", 23));
  seeds.Write("safetensors/overlap", Safetensors("{" + half + "," + single + "}", 20));
  seeds.Write("safetensors/there_twice", Safetensors("{" + half + "," + half + "}", 12));
  seeds.Write("safetensors/endless_shape",
              Safetensors(R"({"f":{"dtype":"F32","shape":[4611686018427387904,4],)"
                          R"("data_offsets":[0,0]}})", 0));
  // Brackets in brackets cost a parser by recursion its stack.
  seeds.Write("safetensors/deep", Safetensors("{\"f\":[[[[[]]]]]}", 0));
  seeds.Write("safetensors/header_beyond_the_file",
              TextOf(std::uint64_t{1} << 40) + std::string(9, ' '));
}

// What a client says first on the Unix socket. Bytes behind the hello belong to gRPC, so the
// acceptor must leave them in the socket.
void WriteClientHellos(SeedFolder& seeds) {
  ClientHello hello;
  seeds.Write("acceptor/inline", TextOf(hello));
  hello.flags = ClientHello::kWantsSharedMemory;
  seeds.Write("acceptor/shared_memory", TextOf(hello));
  // A client that died within its hello must not get a session.
  seeds.Write("acceptor/torn", TextOf(hello).substr(0, 20));
  seeds.Write("acceptor/goes_on_talking", TextOf(hello) + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  // Only the version of shared memory is newer: the refusal has to name it.
  hello.layout_version += 1;
  seeds.Write("acceptor/newer", TextOf(hello));
  hello.magic = 0;
  seeds.Write("acceptor/another_protocol", TextOf(hello));
}

// What peer_reply_fuzz asks for: rows of 0, 1 and 40 bytes.
v1::SamplesReply RowsReply(std::size_t begin, std::size_t end) {
  const fetch::Row rows[] = {{.sample = SampleId(1), .field = FieldId(0), .memory = {}},
                             {.sample = SampleId(2), .field = FieldId(0), .memory = {}},
                             {.sample = SampleId(2), .field = FieldId(1), .memory = {}}};
  const std::string texts[] = {"", "x", std::string(40, 'y')};
  v1::SamplesReply reply;
  for (std::size_t i = begin; i < end; ++i) {
    v1::RowEnd& row = *reply.add_ends();
    row.set_bytes(texts[i].size());
    row.set_checksum(Checksum(peer::RowIdentity(77, rows[i], texts[i].size()),
                              std::as_bytes(std::span(texts[i]))));
    *reply.mutable_payload() += texts[i];
  }
  return reply;
}

// Returns the catalog part of an object a.tar with one sample, in the form for messages.
std::string EncodedPart() {
  catalog::CatalogPart part({.path = "a.tar", .bytes = 12'288, .mtime_ns = 0}, {});
  const std::uint8_t jpg = part.FieldNumber("jpg", 0).value();
  const std::uint8_t cls = part.FieldNumber("cls", 1024).value();
  std::vector<catalog::CutExtent> unused;
  FOREBAY_CHECK(part.AddSample({.key = "1",
                                .fields = {{.field = jpg, .offset = 512, .length = 3},
                                           {.field = cls, .offset = 1536, .length = 1}}},
                               512)
                    .has_value());
  FOREBAY_CHECK(part.AddExtent({.object_offset = 512,
                                .bytes = 1025,
                                .sample_count = 1,
                                .starting_count = 1},
                               {}, unused)
                    .has_value());
  catalog::MemorySink sink;
  FOREBAY_CHECK(
      catalog::EncodePart(catalog::TablesOf(catalog::FindDriver("tar")->format, part), sink)
          .has_value());
  const std::vector<std::byte> bytes = sink.Release();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

v1::CatalogPartReply PartReply(bool is_there, const std::string& payload) {
  v1::CatalogPartReply reply;
  reply.set_is_there(is_there);
  reply.set_payload(payload);
  return reply;
}

// Writes answers to a request for a catalog part. The receiver takes the first four.
void WritePartReplies(SeedFolder& seeds) {
  using Replies = std::vector<v1::CatalogPartReply>;
  const std::string part = EncodedPart();
  const auto half = static_cast<std::ptrdiff_t>(part.size() / 2);
  const std::string begin(part.begin(), part.begin() + half);
  const std::string end(part.begin() + half, part.end());
  seeds.Write("part_reply/part", DelimitedOf(Replies{PartReply(true, part)}));
  seeds.Write("part_reply/two_chunks",
              DelimitedOf(Replies{PartReply(true, begin), PartReply(true, end)}));
  seeds.Write("part_reply/not_there_yet", DelimitedOf(Replies{PartReply(false, "")}));
  v1::CatalogPartReply failed;
  failed.mutable_failure()->set_code(static_cast<std::uint32_t>(ErrorCode::kDataLoss));
  failed.mutable_failure()->set_message("archive 'a.tar' is truncated");
  failed.mutable_failure()->set_age_ms(1500);
  seeds.Write("part_reply/failure", DelimitedOf(Replies{failed}));
  seeds.Write("part_reply/truncated", DelimitedOf(Replies{PartReply(true, begin)}));
  seeds.Write("part_reply/goes_on",
              DelimitedOf(Replies{PartReply(false, ""), PartReply(true, part)}));
  std::string altered = part;
  altered[100] = static_cast<char>(altered[100] ^ 1);
  seeds.Write("part_reply/flipped_bit", DelimitedOf(Replies{PartReply(true, altered)}));
  // The counts of extents and of bytes of samples say more than there are.
  for (const std::size_t count_at : {40U, 48U}) {
    std::string lying = part;
    lying[count_at] = static_cast<char>(lying[count_at] + 1);
    seeds.Write("part_reply/lying_count_" + std::to_string(count_at),
                DelimitedOf(Replies{PartReply(true, lying)}));
  }
}

// The bytes of a message that was written by hand.
std::string TextOfMessage(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  FOREBAY_CHECK(message.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
}

// Writes requests of another node.
void WritePeerRequests(SeedFolder& seeds) {
  v1::SamplesRequest rows;
  rows.set_identity(1);
  rows.set_dataset(2);
  rows.set_catalog_fingerprint(3);
  for (std::uint64_t i = 0; i < 5; ++i) {
    // Numbers of one to five bytes, because protobuf writes them in as many as they need.
    rows.add_samples(i << (8 * i));
    rows.add_fields(static_cast<std::uint32_t>(i % 2));
  }
  seeds.Write("peer_request/rows", rows.SerializeAsString());
  v1::SamplesRequest carried = rows;
  carried.set_payload_tag(0x7FFFFFFF);
  carried.set_node(65'535);
  seeds.Write("peer_request/rows_over_mpi", carried.SerializeAsString());
  v1::SamplesRequest for_a_reader = rows;
  v1::ReaderPlace& place = *for_a_reader.mutable_place();
  place.set_order(4);
  place.set_rank(5);
  place.set_ranks(6);
  place.set_epoch(7);
  place.set_position(std::uint64_t{1} << 40);
  seeds.Write("peer_request/rows_for_a_reader", for_a_reader.SerializeAsString());
  v1::SamplesRequest chunks = rows;
  for (std::uint32_t i = 0; i < 5; ++i) chunks.add_chunks(i << (6 * i));
  seeds.Write("peer_request/chunks", chunks.SerializeAsString());
  chunks.add_chunks(1);
  seeds.Write("peer_request/more_chunks_than_samples", chunks.SerializeAsString());
  // Samples and fields are two lists of one length in a sound request.
  rows.add_fields(7);
  seeds.Write("peer_request/more_fields_than_samples", rows.SerializeAsString());
  v1::ExtentRequest extent;
  extent.set_identity(1);
  extent.set_dataset(2);
  extent.set_catalog_fingerprint(3);
  extent.set_extent(9);
  seeds.Write("peer_request/extent", extent.SerializeAsString());
  // Only a request with the right digest gets as far as its reads.
  const peer::FirstReadsGiven given = {
      .request = {.identity = 1, .dataset = 2, .catalog_fingerprint = 3},
      .from = NodeRank(4),
      .reads = {{.key = {.dataset = 2, .extent = ExtentId(5), .identity = 6}, .checksum = 7},
                {.key = {.dataset = 2, .extent = ExtentId(800), .identity = 9}, .checksum = 10}}};
  std::string first_reads = TextOfMessage(peer::WriteRequest(given));
  seeds.Write("peer_request/first_reads", first_reads);
  first_reads.back() = static_cast<char>(first_reads.back() ^ 1);
  seeds.Write("peer_request/first_reads_flipped_bit", first_reads);
}

// Requests for sizes of files, and answers for a batch of three. Only those whose digests are right
// get as far as the paths or the sizes.
void WriteStats(SeedFolder& seeds) {
  const auto request = [](const std::vector<std::string>& paths) {
    return TextOfMessage(peer::WriteStatsRequest({.identity = 1, .dataset = 2}, paths));
  };
  seeds.Write("peer_request/stats", request({"a/1.jpg", "a/b/2.jpg"}));
  seeds.Write("peer_request/stats_beside_root", request({"a/1.jpg", "a/../../2.jpg"}));
  seeds.Write("peer_request/stats_absolute", request({"/a"}));
  std::string altered = request({"a/1.jpg"});
  altered.back() = static_cast<char>(altered.back() ^ 1);
  seeds.Write("peer_request/stats_flipped_bit", altered);
  const auto reply = [](std::size_t files) {
    constexpr std::uint64_t kBatch = 99;  // as in peer_reply_fuzz.cc
    std::vector<io::FileInfo> infos(files, {.bytes = 300, .mtime_ns = 7, .is_regular = true});
    infos.front().is_regular = false;
    v1::ObjectStatsReply message;
    FOREBAY_CHECK(
        message.ParseFromString(TextOfMessage(peer::WriteStatsReply(kBatch, infos))));
    return message;
  };
  using Replies = std::vector<v1::ObjectStatsReply>;
  seeds.Write("peer_reply/stats", DelimitedOf(Replies{reply(3), reply(1), reply(4)}));
  v1::ObjectStatsReply uneven = reply(3);
  uneven.mutable_mtimes_ns()->RemoveLast();
  v1::ObjectStatsReply flipped = reply(3);
  flipped.set_bytes(1, 301);
  seeds.Write("peer_reply/stats_malformed", DelimitedOf(Replies{uneven, flipped}));
}

// Requests of a node that joins, and answers to it.
void WriteJoin(SeedFolder& seeds) {
  peer::JoinAsked asked{
      .node = {.address = "10.0.0.1:7",
               .protocol_version = 1,  // so that the seed stays as it is
               .order_version = 2,
               .catalog_version = 3,
               .job_id = "job",
               .config_digest = 5},
      .entry = {std::byte{1}, std::byte{2}},
      .first = 299};
  seeds.Write("peer_request/join", TextOfMessage(peer::WriteRequest(asked)));
  asked.node.node_list_digest = 6;
  asked.takes_place = true;
  asked.first = 0;
  seeds.Write("peer_request/join_takes_place", TextOfMessage(peer::WriteRequest(asked)));
  asked.entry.clear();
  seeds.Write("peer_request/join_without_entry", TextOfMessage(peer::WriteRequest(asked)));
  v1::JoinReply list;
  list.set_nodes("some nodes");
  list.set_node_count(300);
  list.add_free(3);
  list.add_free(299);
  v1::JoinReply not_rising = list;
  not_rising.add_free(299);
  v1::JoinReply without_nodes = list;
  without_nodes.clear_nodes();
  seeds.Write("peer_reply/join", DelimitedOf(std::vector{list, v1::JoinReply()}));
  seeds.Write("peer_reply/join_malformed", DelimitedOf(std::vector{not_rising, without_nodes}));
}

// Writes a request for a catalog part.
void WritePartRequest(SeedFolder& seeds) {
  v1::CatalogPartRequest part;
  part.set_identity(1);
  part.set_dataset(2);
  part.set_object_hash(3);
  part.set_object(4);
  seeds.Write("peer_request/catalog_part", part.SerializeAsString());
}

// Writes answers of another node. Lengths and checksums of the rows are right, so that the receiver
// gets as far as the one thing that is wrong.
void WritePeerReplies(SeedFolder& seeds) {
  using Replies = std::vector<v1::SamplesReply>;
  // The row of 40 bytes begins in the first chunk and ends in the third, where its checksum comes.
  const v1::SamplesReply all = RowsReply(0, 3);
  seeds.Write("peer_reply/rows", DelimitedOf(Replies{all}));
  v1::SamplesReply begin = RowsReply(0, 2);
  *begin.mutable_payload() += std::string(15, 'y');
  v1::SamplesReply middle;
  middle.set_payload(std::string(15, 'y'));
  v1::SamplesReply last = RowsReply(2, 3);
  last.set_payload(std::string(10, 'y'));
  seeds.Write("peer_reply/row_in_three_chunks", DelimitedOf(Replies{begin, middle, last}));
  v1::SamplesReply failed = RowsReply(0, 2);
  // An error takes the place of the row's checksum, and the other rows are good.
  failed.add_ends()->set_code(3);
  failed.mutable_ends(2)->set_message("no such row");
  seeds.Write("peer_reply/row_with_error", DelimitedOf(Replies{failed}));
  v1::SamplesReply carried_answer = all;
  carried_answer.clear_payload();
  carried_answer.set_is_carried(true);
  seeds.Write("peer_reply/rows_over_mpi", DelimitedOf(Replies{carried_answer}));
  carried_answer.mutable_ends()->RemoveLast();
  seeds.Write("peer_reply/too_few_rows_over_mpi", DelimitedOf(Replies{carried_answer}));
  // Found only by the checksum of the row.
  v1::SamplesReply flipped = all;
  flipped.mutable_payload()->back() ^= 1;
  seeds.Write("peer_reply/flipped_bit", DelimitedOf(Replies{flipped}));
  seeds.Write("peer_reply/more_rows", DelimitedOf(Replies{all, RowsReply(1, 2)}));
  // The first message says how long the image is; chunks follow until it is complete.
  v1::ExtentReply head;
  head.set_image_bytes(12);
  head.set_checksum(5);
  head.set_is_packed(true);
  v1::ExtentReply chunk;
  chunk.set_payload("sixsix");
  using ExtentReplies = std::vector<v1::ExtentReply>;
  seeds.Write("peer_reply/extent", DelimitedOf(ExtentReplies{head, chunk, chunk}));
  seeds.Write("peer_reply/extent_too_long", DelimitedOf(ExtentReplies{head, chunk, chunk, chunk}));
  v1::FirstReadsReply differing;
  for (const std::uint32_t index : {0U, 3U, 8U}) differing.add_differing(index);
  v1::FirstReadsReply beyond = differing;
  beyond.add_differing(9);
  seeds.Write("peer_reply/first_reads", DelimitedOf(std::vector{differing, beyond}));
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_seeds FOLDER\n");
    return 2;
  }
  forebay::SeedFolder seeds(argv[1]);
  forebay::WriteOrders(seeds);
  forebay::WriteTier(seeds);
  forebay::WriteNodeFiles(seeds);
  forebay::WriteHandshakes(seeds);
  forebay::WriteReplies(seeds);
  forebay::WriteDeliveryLogs(seeds);
  forebay::WriteRequests(seeds);
  forebay::WritePeerRequests(seeds);
  forebay::WritePeerReplies(seeds);
  forebay::WritePartRequest(seeds);
  forebay::WritePartReplies(seeds);
  forebay::WriteStats(seeds);
  forebay::WriteJoin(seeds);
  forebay::WriteClientHellos(seeds);
  forebay::WriteSafetensors(seeds);
  return seeds.is_good() ? 0 : 1;
}
