// CheckedStream: an open stream, each of whose samples is held against the model.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "server/stream/testing/serve_fixture.h"
#include "tests/model/served_model.h"

namespace forebay::model {

// Not thread-safe. Closed on destruction; the rooms outlive it.
class CheckedStream {
 public:
  // The error is the service's.
  static Result<std::unique_ptr<CheckedStream>> Open(stream::ServeFixture& rooms,
                                                     std::shared_ptr<ServedModel> served,
                                                     const stream::ServeFixture::Ask& ask);
  ~CheckedStream() { session_->Close(); }

  // A batch that came as an error.
  struct Refusal {
    Error error;
    std::vector<std::uint64_t> samples;
  };
  // Pulls up to `steps` further steps of the epoch. An error here is a difference to the model;
  // what the service refused is appended to `refusals`.
  Status Pull(std::uint64_t steps, std::vector<Refusal>& refusals);
  // Every sample of the epoch has come or was refused, once. Begins the next one.
  Status EndEpoch();
  std::uint64_t steps_left() const { return session_->spec().plan.steps() - next_step_; }
  std::uint64_t delivered() const { return delivered_; }  // samples, over all epochs
  ServedModel& served() { return *served_; }

 private:
  CheckedStream(std::shared_ptr<ServedModel> served,
                std::unique_ptr<stream::CollectingSink> sink,
                std::shared_ptr<stream::StreamSession> session)
      : served_(std::move(served)), sink_(std::move(sink)), session_(std::move(session)) {}
  bool AwaitNext();
  Status Take(const stream::CollectingSink::Taken& batch);
  std::vector<std::uint64_t> SamplesOf(const stream::BatchName& name) const;
  Status SeeOnce(std::span<const std::uint64_t> samples);

  const std::shared_ptr<ServedModel> served_;
  const std::unique_ptr<stream::CollectingSink> sink_;
  const std::shared_ptr<stream::StreamSession> session_;
  EpochId epoch_;
  std::uint64_t next_step_ = 0;
  std::size_t errors_seen_ = 0;
  std::set<std::uint64_t> seen_;  // samples of this epoch, delivered or refused
  std::uint64_t delivered_ = 0;
};

}  // namespace forebay::model
