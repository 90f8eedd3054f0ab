// Runs commands of `forebay` against a daemon from memory: what tests of these commands share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "client/testing/fake_admin_service.h"
#include "client/testing/fake_daemon.h"

namespace forebay::cli {

class CliTest : public ::testing::Test {
 protected:
  // The arguments, and whom they are for.
  std::vector<std::string> With(std::vector<std::string> arguments) const {
    arguments.push_back("--address");
    arguments.push_back(daemon_.address());
    return arguments;
  }

  // Data set "fake" of 1000 bytes, in that state.
  static v1::StageProgress Progress(const std::string& state, std::uint64_t staged, bool done) {
    v1::StageProgress progress;
    v1::DatasetStatus& dataset = *progress.mutable_dataset();
    dataset.set_name("fake");
    dataset.set_state(state);
    dataset.set_samples(1'281'167);
    dataset.set_total_bytes(1000);
    dataset.set_staged_bytes(staged);
    if (state == "failed") dataset.set_error("object 7 has changed");
    progress.set_done(done);
    return progress;
  }

  forebay::testing::FakeAdminService admin_;
  forebay::testing::FakeDaemon daemon_{
      {.samples = 100, .admin = admin_.service(), .socket_path = {}}};
};

}  // namespace forebay::cli
