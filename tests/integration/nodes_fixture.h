// NodesTest: the fixture of tests with the four daemons of a job. It starts them, has one reader on
// each of some nodes read an epoch at the same time, and compares what they got together with the
// data set.
#pragma once

#include <barrier>
#include <cstdint>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {

class NodesTest : public ::testing::Test {
 protected:
  explicit NodesTest(const RigOptions& options = {.records = 16'384, .ram = "24MiB"})  // 64 MiB
      : records_(options.records), rig_(options) {}
  // What the daemons said explains a failure, and the folder with their logs goes with the rig.
  void TearDown() override {
    if (!HasFailure()) return;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      std::cerr << "log of node " << rank << ":\n" << ReadText(rig_.node_log(rank));
    }
  }
  static constexpr std::uint32_t kNodes = 4;
  static constexpr std::uint32_t kGlobalBatch = 48;  // for two, three and four ranks

  virtual std::unique_ptr<DaemonProcess> StartNode(std::uint32_t rank,
                                                   const std::vector<std::string>& more) {
    return rig_.StartNode(rank, kNodes, more);
  }
  void StartAll(const std::vector<std::string>& more = {}) {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) daemons_.push_back(StartNode(rank, more));
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      ASSERT_FALSE(daemons_[rank]->ready_line().empty()) << ReadText(rig_.node_log(rank));
    }
  }
  std::unique_ptr<RawClient> ClientOf(std::uint32_t rank) {
    return std::make_unique<RawClient>(rig_.node_socket(rank));
  }
  // One epoch, or some steps of one, by one rank on each of these nodes, at the same time. What all
  // got together. `part.after_batch` is called for the first of them. With `in_step`, none begins a
  // step before all have the one before it, as in a training program.
  EpochCounts ReadTogether(const std::vector<std::uint32_t>& nodes, EpochPart part,
                           bool in_step = false) {
    part.ranks = static_cast<std::uint32_t>(nodes.size());
    part.global_batch = kGlobalBatch;
    std::barrier step(static_cast<std::ptrdiff_t>(nodes.size()));
    std::vector<std::future<EpochCounts>> readers;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      part.rank = i;
      if (i > 0) part.after_batch = {};
      if (in_step) part.after_batch = [&step](std::uint64_t) { step.arrive_and_wait(); };
      readers.push_back(std::async(std::launch::async, [this, node = nodes[i], part] {
        const auto client = ClientOf(node);
        return ReadEpoch(*client, "train", shape_, part);
      }));
    }
    EpochCounts all;
    for (auto& reader : readers) {
      EpochCounts counts = reader.get();
      EXPECT_EQ(counts.error, "");
      EXPECT_TRUE(counts.trailer);
      all.samples += counts.samples;
      all.distinct += counts.distinct;
      all.wrong += counts.wrong;
      all.rewritten += counts.rewritten;
      all.content_digest += counts.content_digest;
      all.by_position.merge(counts.by_position);
    }
    return all;
  }
  EpochCounts ReadTogether(const std::vector<std::uint32_t>& nodes, std::uint32_t epoch) {
    return ReadTogether(nodes, EpochPart{.epoch = epoch});
  }
  void ExpectExact(const EpochCounts& counts) {
    EXPECT_EQ(counts.samples, records_);
    EXPECT_EQ(counts.distinct, records_);
    EXPECT_EQ(counts.wrong, 0U);
    // The digest does not depend on the order, so it is the same for every exact epoch.
    if (digest_ == 0) digest_ = counts.content_digest;
    EXPECT_EQ(counts.content_digest, digest_);
  }
  // What a job of one node delivers in an epoch, sample by sample.
  std::map<std::uint64_t, std::uint64_t> DeliveredByOneNode(std::uint32_t epoch) {
    const auto daemon = rig_.Start();
    RawClient client(rig_.socket_path());
    const EpochCounts counts = ReadEpoch(client, "train", {},
                                         {.epoch = epoch, .global_batch = kGlobalBatch});
    ExpectExact(counts);
    return counts.by_position;
  }
  // What `forebay launch` says when its command has ended.
  void Finish(std::uint32_t rank) {
    v1::DrainRequest request;
    request.set_after_all(true);
    v1::DrainReply reply;
    const auto context = NewContext();
    EXPECT_TRUE(ClientOf(rank)->admin().Drain(context.get(), request, &reply).ok());
  }
  // Whether a line of a node's log says this about another node.
  bool LogSays(std::uint32_t rank, std::uint32_t about, const std::string& what) const {
    std::istringstream lines(ReadText(rig_.node_log(rank)));
    const std::string name = "(rank " + std::to_string(about) + ")";
    for (std::string line; std::getline(lines, line);) {
      if (line.find(name) != line.npos && line.find(what) != line.npos) return true;
    }
    return false;
  }
  std::uint64_t GfsBytes(std::uint32_t rank) { return ClientOf(rank)->Status().gfs().bytes(); }
  std::uint64_t GfsBytesOfAll() {
    std::uint64_t bytes = 0;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) bytes += GfsBytes(rank);
    return bytes;
  }
  void AwaitStagedEverywhere() {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) AwaitStaged(*ClientOf(rank));
  }
  // The nodes by rank, as this one sees them.
  std::vector<v1::NodeStatus> NodesSeenBy(std::uint32_t rank) {
    const auto client = ClientOf(rank);
    v1::NodesReply reply;
    const auto context = NewContext();
    EXPECT_TRUE(client->admin().Nodes(context.get(), {}, &reply).ok());
    EXPECT_EQ(reply.nodes_size(), kNodes);
    return {reply.nodes().begin(), reply.nodes().end()};
  }
  // Expects that both views of a daemon's status say that the connections are protected like this.
  void ExpectConnections(std::uint32_t rank, const std::string& protection) {
    const auto client = ClientOf(rank);
    EXPECT_EQ(client->Status().node_connections(), protection);
    v1::NodesReply reply;
    const auto context = NewContext();
    EXPECT_TRUE(client->admin().Nodes(context.get(), {}, &reply).ok());
    EXPECT_EQ(reply.node_connections(), protection);
  }
  std::string Outcome(std::uint32_t rank) {
    const std::optional<int> code = daemons_[rank]->Wait();
    return code ? std::to_string(*code) : "still runs";
  }

  const std::uint64_t records_;
  const std::uint64_t steps_ = (records_ + kGlobalBatch - 1) / kGlobalBatch;  // of an epoch
  DaemonRig rig_;
  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
  OrderShape shape_;
  std::uint64_t digest_ = 0;
};

}  // namespace forebay::integration
