// The messages that ask for sizes and times of files: what is read is what was written, and
// anything else is refused, by both sides.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/peer/peer_requests.h"
#include "server/stage/stat_source.h"

namespace forebay::peer::stats_messages_test {

using ::testing::HasSubstr;

constexpr std::uint64_t kBatch = 99;
const std::vector<std::string> kPaths = {"a/1.jpg", "a/\xff\n", "b/c/2.jpg"};

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

std::string RequestText() {
  return TextOf(WriteStatsRequest({.identity = 1, .dataset = 2}, kPaths));
}

std::vector<io::FileInfo> ThreeInfos() {
  return {{.bytes = 5, .mtime_ns = -1, .is_regular = true},
          {.bytes = ~0ULL, .mtime_ns = 1LL << 62, .is_directory = true},
          {}};
}

void ExpectSame(const std::vector<io::FileInfo>& read, const std::vector<io::FileInfo>& written) {
  ASSERT_EQ(read.size(), written.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].bytes, written[i].bytes);
    EXPECT_EQ(read[i].mtime_ns, written[i].mtime_ns);
    EXPECT_EQ(read[i].is_regular, written[i].is_regular);
    EXPECT_EQ(read[i].is_directory, written[i].is_directory);
  }
}

TEST(StatsMessagesTest, ARequestIsReadAsItWasWritten) {
  const Result<StatsAsked> asked = ParseStatsAsked(BufferOf(RequestText()));
  ASSERT_TRUE(asked.has_value()) << asked.error().ToString();
  EXPECT_EQ(asked->request.identity, 1U);
  EXPECT_EQ(asked->request.dataset, 2U);
  EXPECT_EQ(asked->batch, stage::BatchKey(2, kPaths));
  EXPECT_EQ(asked->paths, kPaths);
}

TEST(StatsMessagesTest, AnAnswerIsReadAsItWasWritten) {
  for (const std::size_t count : {3U, 2U, 0U}) {  // fewer: a path failed
    std::vector<io::FileInfo> infos = ThreeInfos();
    infos.resize(count);
    const auto read = ParseStatsReply(WriteStatsReply(kBatch, infos), kBatch, 3);
    ASSERT_TRUE(read.has_value()) << read.error().ToString();
    ExpectSame(*read, infos);
  }
}

TEST(StatsMessagesTest, TheLargestMessagesFit) {
  const std::vector<std::string> paths(
      limits::kStatPathsMax,
      std::string(limits::kStatPathBytesMax / limits::kStatPathsMax, 'a'));
  const grpc::ByteBuffer request = WriteStatsRequest({.identity = ~0ULL, .dataset = 2}, paths);
  EXPECT_TRUE(ParseStatsAsked(request).has_value());
  const std::vector<io::FileInfo> infos(paths.size(), ThreeInfos()[1]);
  EXPECT_TRUE(ParseStatsReply(WriteStatsReply(kBatch, infos), kBatch, paths.size()).has_value());
}

// The digests cover all that is used: no bit of it changes unnoticed.
TEST(StatsMessagesTest, EveryFlippedBitAndEveryCutOfARequestIsNoticed) {
  const std::string whole = RequestText();
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string altered = whole;
    altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
    const Result<StatsAsked> read = ParseStatsAsked(BufferOf(altered));
    // The server compares the identity.
    if (read.has_value()) {
      EXPECT_NE(read->request.identity, 1U) << "bit " << bit;
    }
  }
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(ParseStatsAsked(BufferOf(whole.substr(0, length))).has_value()) << length;
  }
}

TEST(StatsMessagesTest, EveryFlippedBitAndEveryCutOfAnAnswerIsNoticed) {
  const std::vector<io::FileInfo> infos = ThreeInfos();
  const std::string whole = TextOf(WriteStatsReply(kBatch, infos));
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string altered = whole;
    altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
    const auto read = ParseStatsReply(BufferOf(altered), kBatch, infos.size());
    // Some bits of a long number, and of the kind of other files, have no meaning.
    if (read.has_value()) ExpectSame(*read, infos);
  }
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(
        ParseStatsReply(BufferOf(whole.substr(0, length)), kBatch, infos.size()).has_value())
        << length;
  }
}

TEST(StatsMessagesTest, RequestsThatNoNodeSendsAreRefused) {
  const auto error_of = [](const std::vector<std::string>& paths) {
    return ParseStatsAsked(WriteStatsRequest({.identity = 1, .dataset = 2}, paths)).error();
  };
  using Paths = std::vector<std::string>;
  for (const Paths& paths : {Paths{}, Paths{"a", "/b"}, Paths{"../b"}, Paths{"a//b"},
                             Paths(limits::kStatPathsMax + 1, "a")}) {
    EXPECT_EQ(error_of(paths).code(), ErrorCode::kInvalidArgument);
  }
  v1::ObjectStatsRequest request;
  ASSERT_TRUE(request.ParseFromString(RequestText()));
  request.set_batch(request.batch() + 1);
  EXPECT_EQ(ParseStatsAsked(BufferOf(request.SerializeAsString())).error().code(),
            ErrorCode::kDataLoss);
  EXPECT_EQ(ParseStatsAsked(BufferOf("\x22\xFF")).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ParseStatsAsked(BufferOf(std::string(limits::kPeerMessageBytesMax + 1, '\0')))
                .error()
                .code(),
            ErrorCode::kInvalidArgument);
}

TEST(StatsMessagesTest, AnswersToAnotherRequestAreRefused) {
  const std::vector<io::FileInfo> infos = ThreeInfos();
  const grpc::ByteBuffer answer = WriteStatsReply(kBatch, infos);
  EXPECT_EQ(ParseStatsReply(answer, kBatch + 1, 3).error().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(ParseStatsReply(answer, kBatch, 2).error().code(), ErrorCode::kInvalidArgument)
      << "more sizes than paths";
  EXPECT_EQ(ParseStatsReply(BufferOf("\x0A\xFF"), kBatch, 3).error().code(),
            ErrorCode::kInvalidArgument);
}

TEST(StatsMessagesTest, AnswersWithListsOfUnequalLengthAreRefused) {
  const auto refuse = [](const std::function<void(v1::ObjectStatsReply&)>& change) {
    v1::ObjectStatsReply reply;
    EXPECT_TRUE(reply.ParseFromString(TextOf(WriteStatsReply(kBatch, ThreeInfos()))));
    change(reply);
    const auto read = ParseStatsReply(BufferOf(reply.SerializeAsString()), kBatch, 3);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr("of 3 files"));
  };
  refuse([](v1::ObjectStatsReply& reply) { reply.mutable_bytes()->RemoveLast(); });
  refuse([](v1::ObjectStatsReply& reply) { reply.mutable_mtimes_ns()->RemoveLast(); });
  refuse([](v1::ObjectStatsReply& reply) { reply.add_kinds(1); });
}

}  // namespace forebay::peer::stats_messages_test
