// The messages of the peer service apart from rows: extents, requests, errors and which of them are
// asked again, addresses and identities.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/peer/busy_retry.h"
#include "server/peer/channel_settings.h"
#include "server/peer/extent_messages.h"
#include "server/peer/peer_address.h"
#include "server/peer/peer_identity.h"
#include "server/peer/peer_requests.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

using ::testing::HasSubstr;

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string TextOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
}

TEST(ExtentMessagesTest, AnImageTravelsInChunksThatAreOrdinaryMessages) {
  const auto pins = std::make_shared<SlicePins>();
  const auto image = std::make_shared<std::vector<std::byte>>(2 * limits::kPeerChunkBytes + 5);
  for (std::size_t i = 0; i < image->size(); ++i) (*image)[i] = static_cast<std::byte>(i % 251);
  ExtentSender sender({.image_bytes = image->size(), .checksum = 99, .is_packed = true}, *image,
                      image, pins);
  grpc::ByteBuffer message;
  ASSERT_FALSE(sender.Next(message));
  v1::ExtentReply parsed;
  ASSERT_TRUE(parsed.ParseFromString(TextOf(message)));
  EXPECT_EQ(parsed.image_bytes(), image->size());
  const Result<ExtentHead> head = ExtentReceiver::TakeHead(message);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->image_bytes, image->size());
  EXPECT_EQ(head->checksum, 99U);
  EXPECT_TRUE(head->is_packed);
  std::vector<std::byte> received(image->size());
  ExtentReceiver receiver;
  receiver.SetImage(received);
  std::size_t chunks = 0;
  for (bool is_last = false; !is_last; ++chunks) {
    EXPECT_FALSE(receiver.Finish().has_value());
    is_last = sender.Next(message);
    ASSERT_TRUE(parsed.ParseFromString(TextOf(message)));
    EXPECT_LE(parsed.payload().size(), limits::kPeerChunkBytes);
    ASSERT_TRUE(receiver.Take(message).has_value());
  }
  EXPECT_EQ(chunks, 3U);
  EXPECT_TRUE(receiver.Finish().has_value());
  EXPECT_EQ(received, *image);
}

TEST(ExtentMessagesTest, SlicesKeepTheImageUntilTheyAreGone) {
  const auto pins = std::make_shared<SlicePins>();
  auto image = std::make_shared<std::vector<std::byte>>(5);
  const std::weak_ptr<std::vector<std::byte>> watched = image;
  grpc::ByteBuffer message;
  {
    ExtentSender sender({.image_bytes = 5}, *image, image, pins);
    image.reset();
    EXPECT_FALSE(sender.Next(message));
    EXPECT_TRUE(sender.Next(message));
  }
  EXPECT_FALSE(watched.expired());
  message.Clear();
  EXPECT_TRUE(watched.expired());
  pins->AwaitNone();
}

TEST(ExtentMessagesTest, WrongDescriptionsAreRefusedBeforeMemoryIsAllocated) {
  v1::ExtentReply head;
  for (const std::uint64_t bytes : {std::uint64_t{0}, limits::kExtentBytesMax + 1}) {
    head.set_image_bytes(bytes);
    grpc::ByteBuffer buffer = BufferOf(head.SerializeAsString());
    EXPECT_FALSE(ExtentReceiver::TakeHead(buffer).has_value()) << bytes;
  }
  head.set_image_bytes(10);
  head.set_payload("x");
  grpc::ByteBuffer with_payload = BufferOf(head.SerializeAsString());
  EXPECT_FALSE(ExtentReceiver::TakeHead(with_payload).has_value());
  head.clear_payload();
  head.set_checksum(1);
  const std::string whole = head.SerializeAsString();
  grpc::ByteBuffer truncated = BufferOf(whole.substr(0, whole.size() - 1));
  EXPECT_FALSE(ExtentReceiver::TakeHead(truncated).has_value());
}

TEST(ExtentMessagesTest, ChunksThatDoNotFitTheImageAreRefused) {
  std::vector<std::byte> image(10);
  ExtentReceiver receiver;
  receiver.SetImage(image);
  v1::ExtentReply chunk;
  grpc::ByteBuffer empty = BufferOf(chunk.SerializeAsString());
  EXPECT_FALSE(receiver.Take(empty).has_value());
  chunk.set_payload(std::string(6, 'x'));
  grpc::ByteBuffer fits = BufferOf(chunk.SerializeAsString());
  EXPECT_TRUE(receiver.Take(fits).has_value());
  grpc::ByteBuffer beyond = BufferOf(chunk.SerializeAsString());
  EXPECT_FALSE(receiver.Take(beyond).has_value());
  EXPECT_EQ(image[6], std::byte{0}) << "nothing of it is written";
  EXPECT_FALSE(receiver.Finish().has_value());
  const std::string whole = chunk.SerializeAsString();
  grpc::ByteBuffer truncated = BufferOf(whole.substr(0, whole.size() - 3));
  EXPECT_FALSE(receiver.Take(truncated).has_value());
}

TEST(PeerRequestsTest, ARequestIsReadAsItWasWritten) {
  const PeerRequest head{
      .identity = 1, .dataset = 2, .catalog_fingerprint = 3, .rebuilds = 12};
  RowsAsked rows{
      .request = head,
      .rows = {},
      .need = fetch::Need::kRuns,
      .place = {.order = 4, .rank = 5, .ranks = 6, .epoch = EpochId(7), .position = 1ULL << 40},
      .payload = {.tag = 14, .port = 65'535, .connection = 0xFFFFFFFF},
      .from = NodeRank(3),
      .slow_nodes = {NodeRank(9), NodeRank(0)}};
  for (std::uint64_t i = 0; i < limits::kPeerRowsMax; ++i) {
    rows.rows.push_back({.sample = SampleId(i << 38), .field = FieldId(3), .memory = {}});
  }
  const Result<RowsAsked> read = ParseRowsAsked(WriteRequest(rows));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->request.identity, 1U);
  EXPECT_EQ(read->request.dataset, 2U);
  EXPECT_EQ(read->request.catalog_fingerprint, 3U);
  EXPECT_EQ(read->request.rebuilds, 12U);
  EXPECT_EQ(read->need, fetch::Need::kRuns);
  EXPECT_EQ(read->place, rows.place);
  EXPECT_EQ(read->payload, rows.payload);
  EXPECT_EQ(read->from, rows.from);
  EXPECT_EQ(read->slow_nodes, rows.slow_nodes);
  ASSERT_EQ(read->rows.size(), rows.rows.size());
  EXPECT_EQ(read->rows.back().sample, rows.rows.back().sample);
  EXPECT_EQ(read->rows.back().field, FieldId(3));
  const Result<ExtentAsked> extent =
      ParseExtentAsked(WriteRequest(ExtentAsked{.request = head, .extent = ExtentId(7)}));
  ASSERT_TRUE(extent.has_value());
  EXPECT_EQ(extent->extent, ExtentId(7));
  EXPECT_EQ(extent->request.rebuilds, 12U);
  const Result<PartAsked> part =
      ParsePartAsked(WriteRequest(PartAsked{.request = {.identity = 1, .dataset = 2},
                                            .object = ObjectId(8),
                                            .object_hash = ~9ULL}));
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->request.identity, 1U);
  EXPECT_EQ(part->request.dataset, 2U);
  EXPECT_EQ(part->object, ObjectId(8));
  EXPECT_EQ(part->object_hash, ~9ULL);
}

TEST(PeerRequestsTest, ChunksAreListedOnlyWhereSomeAreAskedFor) {
  RowsAsked asked{.request = {.identity = 1, .dataset = 2, .catalog_fingerprint = 3}, .rows = {}};
  asked.rows = {{.sample = SampleId(5), .field = FieldId(0), .memory = {}},
                {.sample = SampleId(6), .field = FieldId(1), .memory = {}}};
  v1::SamplesRequest message;
  ASSERT_TRUE(message.ParseFromString(TextOf(WriteRequest(asked))));
  EXPECT_EQ(message.chunks_size(), 0);
  asked.rows[1].chunk = 300;
  ASSERT_TRUE(message.ParseFromString(TextOf(WriteRequest(asked))));
  EXPECT_EQ(message.chunks_size(), 2);
  const Result<RowsAsked> read = ParseRowsAsked(WriteRequest(asked));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(read->rows[0].chunk, 0U);
  EXPECT_EQ(read->rows[1].chunk, 300U);
  EXPECT_EQ(read->rows[1].sample, SampleId(6));
  message.add_chunks(1);
  EXPECT_EQ(ParseRowsAsked(BufferOf(message.SerializeAsString())).error().code(),
            ErrorCode::kInvalidArgument)
      << "more chunks than samples";
}

TEST(PeerRequestsTest, RequestsBeyondTheLimitsAreRefused) {
  v1::SamplesRequest request;
  EXPECT_FALSE(ParseRowsAsked(BufferOf(request.SerializeAsString())).has_value()) << "no rows";
  for (std::uint32_t i = 0; i < limits::kPeerRowsMax; ++i) {
    request.add_samples(i);
    request.add_fields(0);
  }
  request.add_samples(0);
  EXPECT_EQ(ParseRowsAsked(BufferOf(request.SerializeAsString())).error().code(),
            ErrorCode::kResourceExhausted);
  request.mutable_samples()->RemoveLast();
  request.mutable_samples()->RemoveLast();
  EXPECT_EQ(ParseRowsAsked(BufferOf(request.SerializeAsString())).error().code(),
            ErrorCode::kInvalidArgument)
      << "more fields than samples";
  request.mutable_fields()->RemoveLast();
  request.mutable_slow_nodes()->Resize(static_cast<int>(limits::kPeerSlowMax) + 1, 1);
  EXPECT_EQ(ParseRowsAsked(BufferOf(request.SerializeAsString())).error().code(),
            ErrorCode::kResourceExhausted);
  request.clear_slow_nodes();
  request.set_payload_port(65'536);
  EXPECT_EQ(ParseRowsAsked(BufferOf(request.SerializeAsString())).error().code(),
            ErrorCode::kInvalidArgument);
  request.set_payload_port(65'535);
  EXPECT_TRUE(ParseRowsAsked(BufferOf(request.SerializeAsString())).has_value());
  EXPECT_EQ(ParseRowsAsked(BufferOf("\x22\xFF")).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ParseExtentAsked(BufferOf("\x22\xFF")).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ParsePartAsked(BufferOf("\x22\xFF")).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(
      ParseExtentAsked(BufferOf(std::string(limits::kPeerMessageBytesMax + 1, '\0'))).has_value());
}

FirstReadsGiven TwoFirstReads() {
  return {.request = {.identity = 1, .dataset = 2, .catalog_fingerprint = 3, .rebuilds = 11},
          .from = NodeRank(4),
          .reads = {{.key = {.dataset = 2, .extent = ExtentId(5), .identity = 6}, .checksum = 7},
                    {.key = {.dataset = 2, .extent = ExtentId(~0U), .identity = ~0ULL},
                     .checksum = ~0ULL}}};
}

TEST(FirstReadsMessagesTest, FirstReadsAreReadAsTheyWereWritten) {
  const FirstReadsGiven given = TwoFirstReads();
  const Result<FirstReadsGiven> read = ParseFirstReadsGiven(WriteRequest(given));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(read->request.identity, 1U);
  EXPECT_EQ(read->request.catalog_fingerprint, 3U);
  EXPECT_EQ(read->request.rebuilds, 11U);
  EXPECT_EQ(read->from, NodeRank(4));
  ASSERT_EQ(read->reads.size(), 2U);
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_EQ(read->reads[i].key, given.reads[i].key);
    EXPECT_EQ(read->reads[i].checksum, given.reads[i].checksum);
  }
  const auto reply = ParseFirstReadsReply(WriteFirstReadsReply(std::vector<std::uint32_t>{0, 9}),
                                          10);
  ASSERT_TRUE(reply.has_value());
  EXPECT_THAT(*reply, ::testing::ElementsAre(0, 9));
}

TEST(FirstReadsMessagesTest, TheLargestMessageFits) {
  FirstReadsGiven given = TwoFirstReads();
  given.reads.assign(limits::kPeerFirstReadsMax, given.reads.back());
  const grpc::ByteBuffer message = WriteRequest(given);
  EXPECT_LE(message.Length(), static_cast<std::size_t>(limits::kPeerMessageBytesMax));
  EXPECT_TRUE(ParseFirstReadsGiven(message).has_value());
  given.reads.push_back(given.reads.back());
  EXPECT_EQ(ParseFirstReadsGiven(WriteRequest(given)).error().code(),
            ErrorCode::kResourceExhausted);
}

// A digest covers what is kept: no bit of it changes unnoticed.
TEST(FirstReadsMessagesTest, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::string whole = TextOf(WriteRequest(TwoFirstReads()));
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string altered = whole;
    altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
    const Result<FirstReadsGiven> read = ParseFirstReadsGiven(BufferOf(altered));
    if (!read.has_value()) continue;
    // The server compares the identity. Some bits of a long number have no meaning.
    const FirstReadsGiven given = TwoFirstReads();
    EXPECT_TRUE(read->request.identity != 1 ||
                (read->from == given.from && std::ranges::equal(read->reads, given.reads)))
        << "bit " << bit;
  }
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(ParseFirstReadsGiven(BufferOf(whole.substr(0, length))).has_value()) << length;
  }
}

TEST(FirstReadsMessagesTest, ListsOfUnequalLengthAreRefused) {
  v1::FirstReadsRequest request;
  EXPECT_EQ(ParseFirstReadsGiven(BufferOf(request.SerializeAsString())).error().code(),
            ErrorCode::kInvalidArgument);
  request.add_extents(1);
  request.add_identities(1);
  EXPECT_EQ(ParseFirstReadsGiven(BufferOf(request.SerializeAsString())).error().code(),
            ErrorCode::kInvalidArgument);
}

TEST(FirstReadsMessagesTest, AnswersThatNameOtherReadsAreRefused) {
  using Indexes = std::vector<std::uint32_t>;
  for (const Indexes& indexes : {Indexes{2}, Indexes{0, 0}, Indexes{1, 0}, Indexes{~0U}}) {
    EXPECT_FALSE(ParseFirstReadsReply(WriteFirstReadsReply(indexes), 2).has_value());
  }
}

TEST(PeerStatusTest, OnlyALostConnectionOrTimeIsNoAnswer) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status(static_cast<grpc::StatusCode>(code), "why\nso");
    const Error error = FromGrpcStatus(status, "127.0.0.1:9");
    const bool is_lost = code == grpc::UNAVAILABLE || code == grpc::DEADLINE_EXCEEDED ||
                         code == grpc::CANCELLED || code == grpc::UNKNOWN;
    EXPECT_EQ(stage::IsNoAnswer(error), is_lost) << code;
    EXPECT_THAT(error.message(), HasSubstr("node 127.0.0.1:9: why"));
    EXPECT_THAT(error.message(), ::testing::Not(HasSubstr("\n")));
  }
  const Error unknown =
      FromGrpcStatus(ToGrpcStatus(Error(ErrorCode::kUnknown, "a bug")), "127.0.0.1:9");
  EXPECT_FALSE(stage::IsNoAnswer(unknown));
  const grpc::Status odd(static_cast<grpc::StatusCode>(20), "odd");
  EXPECT_EQ(FromGrpcStatus(odd, "n").code(), ErrorCode::kInternal);
  const Error longest(ErrorCode::kNotFound, std::string(100'000, 'x'));
  EXPECT_EQ(ToGrpcStatus(longest).error_message().size(), limits::kPeerErrorBytesMax);
}

TEST(PeerStatusTest, ANodeThatIsTooBusySaysSoAndNoOtherLimitDoes) {
  const grpc::Status status = ToGrpcStatus(stage::TooBusy("1024 calls"));
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  const Error busy = FromGrpcStatus(status, "127.0.0.1:9");
  EXPECT_TRUE(stage::IsTooBusy(busy));
  EXPECT_TRUE(stage::IsTooBusy(busy.WithContext("data set 'a'")));
  EXPECT_THAT(busy.message(), HasSubstr("node 127.0.0.1:9: 1024 calls"));
  const Error memory(ErrorCode::kResourceExhausted, "no memory", ENOMEM);
  EXPECT_FALSE(stage::IsTooBusy(FromGrpcStatus(ToGrpcStatus(memory), "127.0.0.1:9")));
  // gRPC's own refusal of a message that is too long.
  const grpc::Status too_long(grpc::RESOURCE_EXHAUSTED, "larger than max");
  EXPECT_FALSE(stage::IsTooBusy(FromGrpcStatus(too_long, "127.0.0.1:9")));
  EXPECT_FALSE(stage::IsTooBusy(
      FromGrpcStatus(grpc::Status(grpc::NOT_FOUND, "none", status.error_details()), "n")));
}

TEST(BusyRetryTest, ACallIsMadeAgainAfterGrowingPausesUntilTheDeadline) {
  constexpr std::int64_t kMs = 1'000'000;
  const Error busy = stage::TooBusy("1024 calls");
  BusyRetry retry;
  std::int64_t now_ns = 5 * kMs;
  const std::int64_t deadline_ns = now_ns + 4000 * kMs;
  std::vector<std::int64_t> pauses_ms;
  while (const auto again_ns = retry.AgainNs(busy, now_ns, deadline_ns)) {
    pauses_ms.push_back((*again_ns - now_ns) / kMs);
    now_ns = *again_ns;
  }
  EXPECT_THAT(pauses_ms, ::testing::ElementsAre(10, 20, 40, 80, 160, 320, 640, 1000, 1000));
  EXPECT_LT(now_ns, deadline_ns);
  EXPECT_TRUE(stage::IsTooBusy(retry.Outcome(busy)));
}

TEST(BusyRetryTest, OnlyARefusalIsRepeatedAndADeadlineAfterOneIsNoSilence) {
  const Error late(ErrorCode::kDeadlineExceeded, "too late");
  const Error gone(ErrorCode::kUnavailable, "the connection was lost");
  BusyRetry retry;
  for (const Error& error : {late, gone, Error(ErrorCode::kResourceExhausted, "no memory")}) {
    EXPECT_FALSE(retry.AgainNs(error, 0, 1'000'000'000).has_value()) << error.ToString();
    EXPECT_EQ(retry.Outcome(error).code(), error.code());
  }
  ASSERT_TRUE(retry.AgainNs(stage::TooBusy("1024 calls"), 0, 1'000'000'000).has_value());
  EXPECT_TRUE(stage::IsTooBusy(retry.Outcome(late)));
  EXPECT_EQ(retry.Outcome(gone).code(), ErrorCode::kUnavailable) << "it is gone by now";
}

// Even if the clock of the deadline says that some time is left.
TEST(BusyRetryTest, ACallThatWasNotSentBeforeItsDeadlineIsNotMadeAgain) {
  const Error not_sent = stage::NotSent("too late");
  BusyRetry retry;
  EXPECT_FALSE(retry.AgainNs(not_sent, 0, 1'000'000'000).has_value());
  EXPECT_FALSE(retry.AgainNs(not_sent, 1'000'000'001, 1'000'000'000).has_value());
  ASSERT_TRUE(retry.AgainNs(stage::TooBusy("1024 calls"), 0, 1'000'000'000).has_value());
  EXPECT_TRUE(stage::IsNotSent(retry.Outcome(not_sent)));
}

TEST(PeerAddressTest, OnlyLoopbackAddressesAreAcceptedWithoutTheOption) {
  for (const char* address : {"127.0.0.1:4000", "127.9.8.7:0", "[::1]:65535"}) {
    EXPECT_TRUE(CheckPeerAddress(address, false).has_value()) << address;
  }
  for (const char* address : {"10.0.0.2:4000", "localhost:4000", "node7:1", "[fe80::1]:4000",
                              "0.0.0.0:1", "128.0.0.1:1"}) {
    const Status refused = CheckPeerAddress(address, false);
    ASSERT_FALSE(refused.has_value()) << address;
    EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(refused.error().message(), HasSubstr("no secret"));
    EXPECT_TRUE(CheckPeerAddress(address, true).has_value()) << address;
  }
}

TEST(PeerAddressTest, OtherTextIsNoAddress) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:x", "127.0.0.1:80x",
                              "127.0.0.1:65536", "127.0.0.1:-1", "::1:80", "[]:80"}) {
    EXPECT_EQ(CheckPeerAddress(address, true).error().code(), ErrorCode::kInvalidArgument)
        << address;
  }
}

TEST(PeerIdentityTest, EachDifferenceIsNamedWithBothSides) {
  const PeerIdentity ours{.address = "127.0.0.1:1", .job_id = "job", .config_digest = 5};
  PeerIdentity same = ours;
  same.address = "127.0.0.1:2";
  EXPECT_TRUE(CheckSameIdentity(ours, same).has_value());
  EXPECT_EQ(DigestOf(ours), DigestOf(same));
  struct Case {
    const char* what;
    std::string ours, theirs;
    PeerIdentity identity;
  };
  std::vector<Case> cases(5, {.what = "", .ours = "1", .theirs = "99", .identity = same});
  cases[0].what = "protocol version";
  cases[0].ours = std::to_string(kPeerProtocolVersion);
  cases[0].identity.protocol_version = 99;
  cases[1].what = "order version";
  cases[1].identity.order_version = 99;
  cases[1].ours = std::to_string(kOrderSpecVersion);
  cases[2].what = "catalog version";
  cases[2].identity.catalog_version = 99;
  cases[3] = {.what = "job", .ours = "'job'", .theirs = "'other'", .identity = same};
  cases[3].identity.job_id = "other";
  cases[4] = {.what = "configuration digest", .ours = "0000000000000005",
              .theirs = "0000000000000006", .identity = same};
  cases[4].identity.config_digest = 6;
  for (const Case& c : cases) {
    const Status refused = CheckSameIdentity(ours, c.identity);
    ASSERT_FALSE(refused.has_value()) << c.what;
    EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(refused.error().message(),
                HasSubstr("node 127.0.0.1:1 has " + std::string(c.what) + " " + c.ours +
                          ", node '127.0.0.1:2' has " + c.theirs));
    EXPECT_NE(DigestOf(ours), DigestOf(c.identity));
  }
}

}  // namespace
}  // namespace forebay::peer
