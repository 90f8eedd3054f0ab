// The format of node files: what is written is read again, and what is damaged is refused. The
// fuzz target node_file_fuzz tries more.
#include "server/rendezvous/node_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::rendezvous::node_file_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

NodeFile SomeFile() {
  const NodeEntry node = {
      .identity = {.job = "4711", .host = "n1", .ssd_directory = "/ssd/a"},
      .place = {.job = "4711", .host = "n0", .ssd_directory = "/ssd"},
      .rank = NodeRank(0),
      .address = {.host = "fd00::1", .port = 7000},
      .capacity_bytes = 1ULL << 43,
      .nonce = 0xFEED,
      .agreed = {{"protocol version", "1"}, {"configuration", ""}}};
  NodeEntry other = node;
  other.rank = NodeRank(1);
  other.identity = {.job = "4711", .host = "[fd00::2]:7", .ssd_directory = ""};
  other.place = other.identity;
  other.agreed = {};
  return {.kind = NodeFileKind::kComplete,
          .leader_nonce = 0xFEED,
          .node_count = 2,
          .nodes = {node, other}};
}

// Replaces the bytes at `offset`, and makes the checksum right again.
template <typename T>
std::vector<std::byte> Changed(std::vector<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  const std::uint64_t sum =
      Checksum(std::span(bytes).first(bytes.size() - sizeof(std::uint64_t)));
  std::memcpy(bytes.data() + bytes.size() - sizeof(sum), &sum, sizeof(sum));
  return bytes;
}

void ExpectRefused(const std::vector<std::byte>& bytes, ErrorCode code) {
  const auto file = Decode(bytes);
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), code) << file.error().ToString();
}

TEST(NodeFile, IsReadAsItWasWritten) {
  const NodeFile file = SomeFile();
  const auto read = Decode(Encode(file));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(*read, file);
  const NodeFile refused = {.kind = NodeFileKind::kRefused, .leader_nonce = 3, .refusal = "why"};
  EXPECT_EQ(*Decode(Encode(refused)), refused);
}

TEST(NodeFile, CutsAReasonThatIsTooLong) {
  const NodeFile refused = {.kind = NodeFileKind::kRefused, .refusal = std::string(10'000, 'x')};
  EXPECT_EQ(Decode(Encode(refused))->refusal, std::string(4096, 'x'));
}

TEST(NodeFile, RefusesEveryCutAndEveryFlippedBit) {
  const std::vector<std::byte> bytes = Encode(SomeFile());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Decode(std::span(bytes).first(size)).has_value()) << size;
  }
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(Decode(flipped).has_value()) << bit;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  ExpectRefused(longer, ErrorCode::kDataLoss);
}

TEST(NodeFile, NamesAnotherVersion) {
  const auto file = Decode(Changed<std::uint32_t>(Encode(SomeFile()), 8, 1));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(file.error().message(),
              AllOf(HasSubstr("has version 1,"), HasSubstr("reads version 2:")));
}

TEST(NodeFile, RefusesWhatSomebodyElseMadeWithARightChecksum) {
  const std::vector<std::byte> bytes = Encode(SomeFile());
  ExpectRefused(Changed<std::uint64_t>(bytes, 0, 1), ErrorCode::kDataLoss);    // magic
  ExpectRefused(Changed<std::uint32_t>(bytes, 12, 9), ErrorCode::kDataLoss);   // kind
  ExpectRefused(Changed<std::uint8_t>(bytes, 28, 0xFF), ErrorCode::kDataLoss);  // refusal's length
  // More entries than there are bytes: refused before memory is allocated for them.
  ExpectRefused(Changed<std::uint32_t>(bytes, 29, 0xFFFF'FFFF), ErrorCode::kDataLoss);
  ExpectRefused(Changed<std::uint32_t>(bytes, 29, 1), ErrorCode::kDataLoss);
  ExpectRefused(Changed<std::uint32_t>(bytes, 33, limits::kNodeCountMax),
                ErrorCode::kDataLoss);  // rank
  NodeFile file = SomeFile();
  file.nodes[1].place.job = "../x";
  ExpectRefused(Encode(file), ErrorCode::kDataLoss);
  for (NodeIdentity NodeEntry::*const name : {&NodeEntry::identity, &NodeEntry::place}) {
    file = SomeFile();
    (file.nodes[1].*name).host = "";
    ExpectRefused(Encode(file), ErrorCode::kDataLoss);
    (file.nodes[1].*name).host = std::string(limits::kHostNameBytesMax + 9, 'n');
    ExpectRefused(Encode(file), ErrorCode::kDataLoss);
    file = SomeFile();
    (file.nodes[1].*name).ssd_directory = std::string(limits::kPathBytesMax + 1, 'd');
    ExpectRefused(Encode(file), ErrorCode::kDataLoss);
  }
  file = SomeFile();
  file.nodes[1].address.host = "a b";
  ExpectRefused(Encode(file), ErrorCode::kDataLoss);
  file = SomeFile();
  file.nodes[0].agreed.resize(limits::kAgreedValuesMax + 1, {"x", "y"});
  ExpectRefused(Encode(file), ErrorCode::kDataLoss);
  file = SomeFile();
  file.nodes[0].agreed[0].name = std::string(256, 'x');
  ExpectRefused(Encode(file), ErrorCode::kDataLoss);
  ExpectRefused(std::vector<std::byte>(limits::kNodeFileBytesMax + 1),
                ErrorCode::kResourceExhausted);
}

TEST(NodeFile, TheDigestOfAListDependsOnEveryPlace) {
  const std::vector<NodeEntry> nodes = SomeFile().nodes;
  const std::uint64_t digest = NodeListDigest(nodes);
  EXPECT_EQ(NodeListDigest(nodes), digest);
  EXPECT_NE(NodeListDigest(std::span(nodes).first(1)), digest);
  const std::function<void(NodeEntry&)> changes[] = {
      [](NodeEntry& entry) { entry.rank = NodeRank(2); },
      [](NodeEntry& entry) { entry.nonce += 1; },
      [](NodeEntry& entry) { entry.capacity_bytes += 1; },
      [](NodeEntry& entry) { entry.place.job = "4712"; },
      [](NodeEntry& entry) { entry.place.host = "n9"; },
      [](NodeEntry& entry) { entry.place.ssd_directory = "/other"; },
      [](NodeEntry& entry) { entry.agreed.push_back({"configuration", "b"}); },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    std::vector<NodeEntry> changed = nodes;
    changes[i](changed[1]);
    EXPECT_NE(NodeListDigest(changed), digest) << i;
  }
}

TEST(NodeFile, TheDigestOfAListIsTheSameWhenANodeTakesAPlace) {
  std::vector<NodeEntry> nodes = SomeFile().nodes;
  const std::uint64_t digest = NodeListDigest(nodes);
  nodes[1].identity.host = "n9";
  nodes[1].identity.ssd_directory = "/other";
  nodes[1].address = {.host = "10.0.0.9", .port = 9};
  EXPECT_EQ(NodeListDigest(nodes), digest);
}

}  // namespace forebay::rendezvous::node_file_test
