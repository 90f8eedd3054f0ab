// ScannedNodes: the fixture of tests with four daemons and a data set without an index, of which
// each daemon scans a part. Their clients know every record from how the files were written, and
// say of each node what it does with an object that is damaged, was changed, or has vanished.
#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/check.h"
#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {

class ScannedNodes : public NodesTest, public ::testing::WithParamInterface<RecordFiles> {
 protected:
  explicit ScannedNodes(std::uint64_t records = 4096, const std::string& served = "gfs")
      : NodesTest(RigOptions{
            .records = records, .files = GetParam(), .ram = "24MiB", .served = served}) {}
  static constexpr std::uint32_t kLast = kScannedFiles - 1;

  // Whether a node has a catalog, once it has tried: empty, or its error.
  std::string CataloguingError(std::uint32_t rank, const std::string& dataset = kDataset) {
    const auto client = ClientOf(rank);
    v1::DescribeRequest request;
    request.set_dataset(dataset);
    request.set_wait_for_catalog(true);
    v1::DescribeReply reply;
    const auto context = NewContext();
    const grpc::Status status = client->data().Describe(context.get(), request, &reply);
    return status.ok() ? "" : "error " + std::to_string(status.error_code()) + ": " +
                                  status.error_message();
  }
  // Of all nodes, which are asked at the same time.
  std::vector<std::string> CataloguingErrors() {
    std::vector<std::future<std::string>> answers;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      answers.push_back(
          std::async(std::launch::async, [this, rank] { return CataloguingError(rank); }));
    }
    std::vector<std::string> errors;
    for (auto& answer : answers) errors.push_back(answer.get());
    return errors;
  }
  // One client per node, which tries again until its node has a catalog. Each error on the way has
  // to name `object`.
  void AwaitCataloguedEverywhere(const std::string& object) {
    std::vector<std::future<std::string>> clients;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      clients.push_back(std::async(std::launch::async, [this, rank, object] {
        std::string error;
        std::mutex mutex;
        std::condition_variable pause;
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (std::chrono::steady_clock::now() < end) {
          error = CataloguingError(rank);
          if (error.empty()) return error;
          EXPECT_THAT(error, ::testing::HasSubstr(object)) << "node " << rank;
          // As a program that does not try again at once; nothing is decided by the pause.
          std::unique_lock lock(mutex);
          pause.wait_for(lock, std::chrono::milliseconds(300));
        }
        return error;
      }));
    }
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      EXPECT_EQ(clients[rank].get(), "") << "node " << rank;
    }
  }

  // What one reader on this node gets of the whole data set. Each error has to name `object`, and
  // no record may be wrong. True if there was an error.
  bool FailsByName(std::uint32_t rank, const std::string& object) {
    SCOPED_TRACE("node " + std::to_string(rank));
    const std::string error = CataloguingError(rank);
    if (!error.empty()) {
      EXPECT_THAT(error, ::testing::HasSubstr(object));
      return true;
    }
    const auto client = ClientOf(rank);
    const EpochCounts counts =
        ReadEpoch(*client, "train", shape_, {.global_batch = kGlobalBatch});
    EXPECT_EQ(counts.wrong, 0U);
    EXPECT_EQ(counts.distinct, counts.samples);
    if (counts.error.empty()) {
      EXPECT_EQ(counts.samples, records_);
      EXPECT_TRUE(counts.rewritten == 0 || counts.rewritten == rig_.RecordsOfObject())
          << counts.rewritten << " records of the object in their second version";
    }
    if (!counts.error.empty()) {
      EXPECT_THAT(counts.error, ::testing::HasSubstr(object));
    }
    for (const v1::BatchError& failed : counts.errors) {
      EXPECT_THAT(failed.message(), ::testing::HasSubstr(object));
    }
    return !counts.error.empty();
  }
  // An epoch in which the records of one object are those that it was rewritten with.
  void ExpectRewritten(const EpochCounts& counts) {
    EXPECT_EQ(counts.samples, records_);
    EXPECT_EQ(counts.distinct, records_);
    EXPECT_EQ(counts.wrong, 0U);
    EXPECT_EQ(counts.rewritten, rig_.RecordsOfObject());
  }

  std::string PathOf(std::uint64_t file) { return rig_.gfs_path() + "/" + rig_.ObjectName(file); }
  // In a new file of the same name, as `tar` and most programs do it.
  static void Replace(const std::string& path, const std::string& text) {
    const std::string fresh = path + ".new";
    std::ofstream file(fresh, std::ios::binary);
    file << text;
    file.close();
    FOREBAY_CHECK(file.good());
    std::filesystem::rename(fresh, path);
  }
  // `forebay stage --rebuild` on this node, as soon as that is possible.
  void Rebuild(std::uint32_t rank) {
    const auto client = ClientOf(rank);
    v1::StageRequest request;
    request.set_wait(true);
    request.set_rebuild(true);
    v1::StageProgress last;
    EXPECT_TRUE(Eventually([&] {
      const auto context = NewContext();
      const auto reader = client->admin().Stage(context.get(), request);
      while (reader->Read(&last)) {
      }
      return reader->Finish().ok();
    }));
    EXPECT_EQ(last.dataset().error(), "") << "node " << rank;
  }
  // A key of the data set.
  void SetInConfig(const std::string& line) {
    std::ofstream(rig_.folder() + "/f.toml", std::ios::app) << line;
  }
  // What the node has saved for its next daemon, except the extents on its SSD.
  void ForgetState(std::uint32_t rank) {
    std::filesystem::remove_all(rig_.node_state(rank));
  }
  std::uint64_t EntriesInRendezvous() {
    std::uint64_t entries = 0;
    std::error_code missing;
    const std::filesystem::recursive_directory_iterator files(rig_.rendezvous_path(), missing);
    for (const auto& entry : files) entries += entry.is_regular_file(missing) ? 1 : 0;
    return entries;
  }
  void EndAll() {
    for (const auto& daemon : daemons_) daemon->Signal(SIGTERM);
    for (std::uint32_t rank = 0; rank < daemons_.size(); ++rank) EXPECT_EQ(Outcome(rank), "0");
    daemons_.clear();
  }
};

inline std::string FilesName(const ::testing::TestParamInfo<RecordFiles>& tested) {
  return tested.param == RecordFiles::kArchives ? "Tar" : "JsonLines";
}

}  // namespace forebay::integration
