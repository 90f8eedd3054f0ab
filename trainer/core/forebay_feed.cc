#include "trainer/core/forebay_feed.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "client/batch.h"
#include "client/batch_stream.h"
#include "client/stream_options.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_token.h"

namespace forebay::train {
namespace {

// A batch that a lost connection delayed is asked for again by the client; beyond that, tries
// are bounded.
constexpr int kNextAttemptsMax = 3;

Result<FeedTensor> ToFeedTensor(const Batch& batch, const std::string& field) {
  FOREBAY_ASSIGN(TensorView view, batch.Tensor(field));
  if (view.big_endian && DtypeBytes(view.dtype) > 1) {
    return Error(ErrorCode::kUnimplemented,
                 fmt::format("field {}: big-endian {} elements", field, DtypeName(view.dtype)));
  }
  return FeedTensor{.data = view.data, .bytes = view.bytes, .dtype = view.dtype,
                    .shape = std::move(view.shape)};
}

class ForebayFeed final : public Feed {
 public:
  // An empty field is not asked for.
  ForebayFeed(std::shared_ptr<Client> client, std::unique_ptr<BatchStream> stream,
              std::uint64_t global_batch, std::string input_field, std::string target_field)
      : client_(std::move(client)),
        stream_(std::move(stream)),
        global_batch_(global_batch),
        input_field_(std::move(input_field)),
        target_field_(std::move(target_field)) {}

  Result<std::optional<FeedBatch>> Next() override {
    Result<std::optional<Batch>> next = stream_->Next();
    for (int attempt = 1; attempt < kNextAttemptsMax && IsTransient(next); ++attempt) {
      next = stream_->Next();
    }
    if (!next.has_value()) return next.error().WithContext("next minibatch");
    if (!next->has_value()) return std::optional<FeedBatch>();
    const Batch& batch = **next;
    FeedBatch delivered;
    delivered.epoch = batch.epoch().value();
    delivered.step = batch.step().value();
    delivered.sample_count = batch.sample_count();
    if (delivered.sample_count > 0 && !input_field_.empty()) {
      FOREBAY_ASSIGN(delivered.input, ToFeedTensor(batch, input_field_));
    }
    if (delivered.sample_count > 0 && !target_field_.empty()) {
      FOREBAY_ASSIGN(delivered.target, ToFeedTensor(batch, target_field_));
    }
    const auto token = batch.token().Encode();
    delivered.token.assign(token.begin(), token.end());
    delivered.hold = batch.hold();
    return std::optional<FeedBatch>(std::move(delivered));
  }

  std::uint64_t steps_per_epoch() const override { return stream_->steps_per_epoch(); }
  std::uint64_t sample_count() const override { return stream_->selected_count(); }
  std::uint64_t global_batch() const override { return global_batch_; }
  Status Finish() override { return stream_->Finish(); }

 private:
  static bool IsTransient(const Result<std::optional<Batch>>& next) {
    return !next.has_value() && (next.error().code() == ErrorCode::kUnavailable ||
                                 next.error().code() == ErrorCode::kDeadlineExceeded);
  }

  std::shared_ptr<Client> client_;
  std::unique_ptr<BatchStream> stream_;
  std::uint64_t global_batch_;
  std::string input_field_;
  std::string target_field_;
};

}  // namespace

Result<StreamOptions> TrainingStreamOptions(const TrainConfig& config, const FeedPosition& from) {
  StreamOptions options;
  options.dataset = config.data.train_dataset;
  options.stream_name = "train";
  options.selection = config.data.train_selection;
  options.global_batch = static_cast<std::uint32_t>(config.train.global_batch);
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.prefetch_depth = static_cast<std::uint32_t>(config.data.prefetch_depth);
  options.tail = TailPolicy::kDrop;
  options.delivery = Delivery::kContiguous;
  FOREBAY_ASSIGN(options.mode, ParseOrderMode(config.data.order_mode));
  options.block_samples = static_cast<std::uint64_t>(config.data.block_samples);
  options.window_runs = static_cast<std::uint64_t>(config.data.window_runs);
  options.delivery_log = config.data.delivery_log;
  if (from.token.empty()) return options;

  FOREBAY_ASSIGN(PositionToken token, PositionToken::Parse(from.token));
  // Behind an epoch's last step a token may still name that epoch; the stream is to begin with
  // the next one.
  if (from.step == 0 && token.next_epoch.value() + 1 == from.epoch) {
    token.next_epoch = EpochId(from.epoch);
    token.next_step = StepId(0);
  }
  if (token.next_epoch.value() != from.epoch || token.next_step.value() != from.step) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the checkpoint stands at epoch {} step {}, its position token at "
                             "epoch {} step {}",
                             from.epoch, from.step, token.next_epoch.value(),
                             token.next_step.value()));
  }
  options.resume = token;
  return options;
}

Result<StreamOptions> ValidationStreamOptions(const TrainConfig& config,
                                              std::uint32_t replicas) {
  StreamOptions options;
  options.dataset = config.data.validation_dataset;
  options.stream_name = "validation";
  options.selection = config.data.validation_selection;
  // Evaluation is a sum, so its step size is free: the next multiple of the replicas will do.
  const auto wanted = static_cast<std::uint32_t>(config.evaluation.evaluation_batch);
  options.global_batch = (wanted + replicas - 1) / replicas * replicas;
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.mode = OrderMode::kSequential;
  options.tail = TailPolicy::kShort;
  options.delivery = Delivery::kContiguous;
  options.prefetch_depth = static_cast<std::uint32_t>(config.data.prefetch_depth);
  return options;
}

Result<std::unique_ptr<ForebaySource>> ForebaySource::Connect(const TrainConfig& config,
                                                              std::uint32_t rank) {
  ClientOptions options;
  options.address = config.data.address;
  options.client_name = fmt::format("forebay-train rank {}", rank);
  options.embedded_config = config.data.embedded_config;
  std::unique_ptr<ForebaySource> source(new ForebaySource(config, rank));
  FOREBAY_ASSIGN(source->client_, Client::Connect(options));
  return source;
}

Result<std::unique_ptr<Feed>> ForebaySource::OpenTraining(const FeedShare& share,
                                                          const FeedPosition& from,
                                                          std::uint32_t epochs) {
  FOREBAY_ASSIGN(StreamOptions options, TrainingStreamOptions(config_, from));
  options.epochs = from.epoch + epochs;  // the stream counts from the run's first epoch
  // A sample counts as consumed where its input is: targets go with it.
  if (!share.input) options.delivery_log.clear();
  if (!options.delivery_log.empty()) options.delivery_log += fmt::format(".{}", rank_);
  return Open(share, std::move(options));
}

Result<std::unique_ptr<Feed>> ForebaySource::OpenValidation(const FeedShare& share,
                                                            std::uint32_t epochs) {
  FOREBAY_ASSIGN(StreamOptions options, ValidationStreamOptions(config_, share.replicas));
  options.epochs = epochs;
  return Open(share, std::move(options));
}

Result<std::unique_ptr<Feed>> ForebaySource::Open(const FeedShare& share,
                                                  StreamOptions options) {
  options.ranks = share.replicas;
  options.rank = share.replica;
  Result<std::unique_ptr<BatchStream>> stream = client_->Open(options);
  if (!stream.has_value()) {
    return stream.error().WithContext(fmt::format("data set {}", options.dataset));
  }
  return std::unique_ptr<Feed>(std::make_unique<ForebayFeed>(
      client_, *std::move(stream), options.global_batch,
      share.input ? config_.data.input_field : "", share.target ? config_.data.target_field : ""));
}

}  // namespace forebay::train
