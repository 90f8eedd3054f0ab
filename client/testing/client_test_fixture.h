// Steps that tests of a client and a FakeDaemon share. For *_test.cc only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/fake_daemon.h"
#include "client/testing/fake_dataset.h"
#include "forebay/client.h"
#include "proto/contract/check.h"

namespace forebay::testing {

// Compares all bytes with those of FakeDataset, because a slot that was given back is written over
// at its beginning.
inline bool HasItsBytes(const Batch& batch) {
  const auto image = batch.Tensor("image");
  FOREBAY_CHECK(image.has_value());
  const std::uint64_t sample_bytes = image->bytes / batch.sample_count();
  for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
    for (std::uint64_t b = 0; b < sample_bytes; ++b) {
      if (image->data[i * sample_bytes + b] !=
          FakeDataset::ImageByte(batch.sample_ids()[i].value(), b)) {
        return false;
      }
    }
  }
  return true;
}

// Of the job that a FakeDaemon serves unless it was told of another one.
inline Result<std::unique_ptr<Client>> TryConnect(const FakeDaemon& daemon,
                                                  bool shared_memory = true) {
  return Client::Connect({.address = daemon.address(),
                          .job_id = "job-1",
                          .shared_memory = shared_memory,
                          .connect_timeout_ms = 10'000});
}

// The test has failed where it is null.
inline std::unique_ptr<Client> Connect(const FakeDaemon& daemon, bool shared_memory = true) {
  auto client = TryConnect(daemon, shared_memory);
  EXPECT_TRUE(client.has_value()) << client.error().ToString();
  return client ? std::move(*client) : nullptr;
}

// Batches of 16 of the FakeDataset.
inline StreamOptions FakeStream(std::uint32_t prefetch_depth = StreamOptions().prefetch_depth) {
  StreamOptions options;
  options.dataset = "fake";
  options.global_batch = 16;
  options.prefetch_depth = prefetch_depth;
  return options;
}

// The test has failed where it is null.
inline std::unique_ptr<BatchStream> Open(Client& client, const StreamOptions& options) {
  auto stream = client.Open(options);
  EXPECT_TRUE(stream.has_value()) << stream.error().ToString();
  return stream ? std::move(*stream) : nullptr;
}

inline void ExpectDataLoss(const Error& error, const std::string& words) {
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.ToString();
  EXPECT_THAT(error.message(), ::testing::HasSubstr(words));
}

// Waits for what another thread is about to do.
template <typename Condition>
bool Soon(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace forebay::testing
