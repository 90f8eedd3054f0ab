// The only file of the trainer that uses the client library. It turns the trainer's configuration
// into stream options, a batch of the client into a FeedBatch that points into the same memory, and
// the augmentation into the client's transform hook. Nothing is copied here: a batch holds the
// client's memory until it is released.
#include "trainer/core/feed/forebay_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "forebay/batch.h"
#include "forebay/batch_stream.h"
#include "forebay/stream_options.h"
#include "proto/contract/align_up.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_token.h"

namespace forebay::train {
namespace {

// Finds a field by name; the error lists those that there are.
Result<const FieldInfo*> FindField(const DatasetInfo& info, const char* key,
                                   const std::string& name) {
  // For the message: the user most likely misspelt the field's name.
  std::string names;
  for (const FieldInfo& field : info.fields) {
    if (field.spec.name == name) return &field;
    names += (names.empty() ? "" : ", ") + field.spec.name;
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} = \"{}\": data set {} has the fields {}", key, name, info.name,
                           names));
}

// A batch that a lost connection delayed is asked for again by the client; beyond that, tries
// are bounded.
constexpr int kNextAttemptsMax = 3;

// Points into the batch's memory, and names the mapping that it lies in, so that a GPU can register
// it.
Result<FeedTensor> ToFeedTensor(const Batch& batch, const std::string& field) {
  FOREBAY_ASSIGN(TensorView view, batch.Tensor(field));
  if (view.big_endian && DtypeBytes(view.dtype) > 1) {
    return Error(ErrorCode::kUnimplemented,
                 fmt::format("field {}: big-endian {} elements", field, DtypeName(view.dtype)));
  }
  SharedMapping mapping = batch.MappingOf(view.data);
  return FeedTensor{.data = view.data,
                    .bytes = view.bytes,
                    .dtype = view.dtype,
                    .shape = std::move(view.shape),
                    .mapping = {.bytes = mapping.bytes, .hold = std::move(mapping.hold)}};
}

// The part of the transform hook's results that is `augmentation`'s.
FeedTensor TransformedTensor(const Batch& batch, const FeedTransform& transform,
                             const Augmentation& augmentation, std::uint64_t offset) {
  FeedTensor tensor;
  tensor.data = batch.transformed().data() + offset;
  tensor.bytes = batch.sample_count() * augmentation.output_bytes();
  tensor.dtype = augmentation.dtype();
  // Inputs and targets of a sample lie one behind the other in the hook's output, so that inputs
  // are not contiguous.
  if (augmentation.output_bytes() != transform.sample_bytes) {
    tensor.sample_stride = transform.sample_bytes;
  }
  tensor.shape = augmentation.shape();
  tensor.shape.insert(tensor.shape.begin(), batch.sample_count());
  return tensor;
}

// One field of a sample, in one piece, through `augmentation`.
Status Transformed(const TransformInput& sample, const std::string& field,
                   const Augmentation& augmentation, std::span<std::byte> output) {
  FOREBAY_ASSIGN(const TensorView view, sample.batch.Tensor(field));
  // The augmentation was made for the shape that the data set's catalogue states.
  const std::uint64_t bytes = augmentation.input_bytes();
  if (view.bytes != bytes * sample.batch.sample_count()) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("field {}: a sample of another size came than the data set says",
                             field));
  }
  augmentation.Apply(std::span(view.data + sample.index * bytes, bytes), sample.seed, output);
  return {};
}

// Called on the client's threads, for one sample at a time.
Transform HookOf(FeedTransform transform) {
  return [transform = std::move(transform)](const TransformInput& sample) -> Status {
    if (transform.input) {
      FOREBAY_TRY(Transformed(sample, transform.input_field, *transform.input,
                              sample.output.first(transform.input->output_bytes())));
    }
    if (transform.target) {
      FOREBAY_TRY(Transformed(
          sample, transform.target_field, *transform.target,
          sample.output.subspan(transform.target_offset, transform.target->output_bytes())));
    }
    return {};
  };
}

class ForebayFeed final : public Feed {
 public:
  // A field without a name is not asked for.
  ForebayFeed(std::shared_ptr<Client> client, std::unique_ptr<BatchStream> stream,
              std::uint64_t global_batch, FeedTransform transform)
      : client_(std::move(client)),
        stream_(std::move(stream)),
        global_batch_(global_batch),
        transform_(std::move(transform)) {}

  // Transient failures are repeated a few times; the client resumes at the same step.
  Result<std::unique_ptr<FeedBatch>> Next() override {
    Result<std::optional<Batch>> next = stream_->Next();
    // The client asks again for the same step, so that nothing is skipped.
    for (int attempt = 1; attempt < kNextAttemptsMax && IsTransient(next); ++attempt) {
      next = stream_->Next();
    }
    if (!next.has_value()) return next.error().WithContext("next minibatch");
    if (!next->has_value()) return std::unique_ptr<FeedBatch>();
    // The stream's end is an empty optional, the feed's end a null pointer.
    const Batch& batch = **next;
    auto delivered = std::make_unique<FeedBatch>();
    delivered->epoch = batch.epoch().value();
    delivered->step = batch.step().value();
    delivered->sample_count = batch.sample_count();
    if (delivered->sample_count > 0) FOREBAY_TRY(Fill(batch, *delivered));
    delivered->token = batch.token();
    // The memory stays until the loop drops the batch, also when the stream is closed before.
    delivered->hold = batch.hold();
    return delivered;
  }

  std::uint64_t steps_per_epoch() const override { return stream_->steps_per_epoch(); }
  std::uint64_t sample_count() const override { return stream_->selected_count(); }
  std::uint64_t global_batch() const override { return global_batch_; }
  Status Finish() override { return stream_->Finish(); }
  void Cancel() override { stream_->Cancel(); }

 private:
  // Each field comes from the batch itself or, if it is augmented, from the transform's results.
  Status Fill(const Batch& batch, FeedBatch& delivered) const {
    const FeedTransform& plan = transform_;
    if (plan.input) {
      delivered.input = TransformedTensor(batch, plan, *plan.input, 0);
    } else if (!plan.input_field.empty()) {
      FOREBAY_ASSIGN(delivered.input, ToFeedTensor(batch, plan.input_field));
    }
    if (plan.target) {
      delivered.target = TransformedTensor(batch, plan, *plan.target, plan.target_offset);
    } else if (!plan.target_field.empty()) {
      FOREBAY_ASSIGN(delivered.target, ToFeedTensor(batch, plan.target_field));
    }
    return {};
  }

  // Errors after which another call may succeed: the daemon restarts, or is slow.
  static bool IsTransient(const Result<std::optional<Batch>>& next) {
    return !next.has_value() && (next.error().code() == ErrorCode::kUnavailable ||
                                 next.error().code() == ErrorCode::kDeadlineExceeded);
  }

  std::shared_ptr<Client> client_;
  std::unique_ptr<BatchStream> stream_;
  std::uint64_t global_batch_;
  FeedTransform transform_;
};

// By name; a wrong name was refused when the data set was described.
Result<FieldSpec> FieldOf(std::span<const FieldSpec> fields, const std::string& name) {
  for (const FieldSpec& field : fields) {
    if (field.name == name) return field;
  }
  return Error(ErrorCode::kNotFound, fmt::format("no field {}", name));
}

}  // namespace

// Decides which fields are augmented, and where the results of a sample lie.
Result<FeedTransform> MakeFeedTransform(const TrainConfig& config, const FeedShare& share,
                                        std::span<const FieldSpec> fields,
                                        Augmentation::Use use) {
  constexpr std::uint64_t kAlignment = 8;  // of any element
  FeedTransform transform;
  // A stage asks for the fields that it uses. A field without a name is not asked for.
  if (share.input) transform.input_field = config.data.input_field;
  if (share.target) transform.target_field = config.data.target_field;
  if (!Augmentation::IsAskedFor(config.augmentation)) return transform;
  FOREBAY_ASSIGN(const FieldSpec input, FieldOf(fields, config.data.input_field));
  if (share.input) {
    FOREBAY_ASSIGN(transform.input, Augmentation::OfInput(config.augmentation, input, use));
  }
  if (share.target) {
    FOREBAY_ASSIGN(const FieldSpec target, FieldOf(fields, config.data.target_field));
    FOREBAY_ASSIGN(transform.target,
                   Augmentation::OfTarget(config.augmentation, input, target, use));
  }
  if (transform.input) transform.sample_bytes = transform.input->output_bytes();
  if (transform.target) {
    // Targets begin at an address that suits any type of element.
    transform.target_offset = AlignUp(transform.sample_bytes, kAlignment);
    transform.sample_bytes = transform.target_offset + transform.target->output_bytes();
    // So that the input of the next sample begins at such an address as well.
    if (transform.input) transform.sample_bytes = AlignUp(transform.sample_bytes, kAlignment);
  }
  return transform;
}

// Inputs must have one size, because a batch of them is one tensor.
Result<SampleFacts> FactsOf(const TrainConfig& config, const DatasetInfo& info) {
  const DataConfig& data = config.data;
  FOREBAY_ASSIGN(const FieldInfo* input, FindField(info, "data.input_field", data.input_field));
  FOREBAY_ASSIGN(const FieldInfo* target, FindField(info, "data.target_field", data.target_field));
  if (!input->spec.is_fixed()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("data.input_field = \"{}\": its samples are bytes of any length (an "
                             "encoded image, say); decode them to one shape first, for example "
                             "with forebay pack",
                             data.input_field));
  }
  // The model sees what the augmentation leaves, so its shape counts.
  SampleFacts facts{.input_shape = input->spec.shape, .classes = target->constant_names.size()};
  if (Augmentation::IsAskedFor(config.augmentation)) {
    FOREBAY_ASSIGN(const std::optional<Augmentation> augmentation,
                   Augmentation::OfInput(config.augmentation, input->spec,
                                         Augmentation::Use::kTraining));
    if (augmentation) facts.input_shape = augmentation->shape();
  }
  return facts;
}

// The token says where the stream resumes. It must agree with the position in the checkpoint.
Result<StreamOptions> TrainingStreamOptions(const TrainConfig& config, const FeedPosition& from) {
  StreamOptions options;
  options.dataset = config.data.train_dataset;
  options.stream_name = "train";
  options.selection = config.data.train_selection;
  options.global_batch = static_cast<std::uint32_t>(config.train.global_batch);
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.prefetch_depth = static_cast<std::uint32_t>(config.data.prefetch_depth);
  // All steps have the same number of samples, so that every replica's share is whole.
  options.tail = TailPolicy::kDrop;
  options.delivery = Delivery::kContiguous;
  FOREBAY_ASSIGN(options.mode, ParseOrderMode(config.data.order_mode));
  options.block_samples = static_cast<std::uint64_t>(config.data.block_samples);
  options.window_runs = static_cast<std::uint64_t>(config.data.window_runs);
  options.canonical_nodes = static_cast<std::uint32_t>(config.data.canonical_nodes);
  FOREBAY_ASSIGN(options.exchange_millionths, ExchangeMillionths(config.data.exchange_fraction));
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
  const std::int64_t given = config.evaluation.evaluation_batch;
  const auto wanted = static_cast<std::uint32_t>(given == 0 ? config.train.global_batch : given);
  options.global_batch = (wanted + replicas - 1) / replicas * replicas;
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  // Sums do not depend on the order, and sequential reads are the cheapest.
  options.mode = OrderMode::kSequential;
  // Every sample is evaluated; the last step has fewer.
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

Result<SampleFacts> ForebaySource::Describe() const {
  const std::string& name = config_.data.train_dataset;
  const Result<DatasetInfo> info =
      client_->DescribeWhenCatalogued(name, config_.data.train_selection);
  if (!info.has_value()) return info.error().WithContext(fmt::format("data set {}", name));
  return FactsOf(config_, *info);
}

std::uint32_t ForebaySource::ReadAhead() const {
  // How many batches are taken ahead of the step. One of the client's credits is for the batch
  // that is being trained on.
  return static_cast<std::uint32_t>(std::max<std::int64_t>(0, config_.data.prefetch_depth - 1));
}

Result<std::unique_ptr<Feed>> ForebaySource::OpenTraining(const FeedShare& share,
                                                          const FeedPosition& from,
                                                          std::uint32_t epochs) {
  FOREBAY_ASSIGN(StreamOptions options, TrainingStreamOptions(config_, from));
  options.epochs = from.epoch + epochs;  // the stream counts from the run's first epoch
  // A sample counts as consumed where its input is: targets go with it.
  if (!share.input) options.delivery_log.clear();
  if (!options.delivery_log.empty()) options.delivery_log += fmt::format(".{}", rank_);
  return Open(share, std::move(options), Augmentation::Use::kTraining);
}

Result<std::unique_ptr<Feed>> ForebaySource::OpenValidation(const FeedShare& share,
                                                            std::uint32_t epochs) {
  FOREBAY_ASSIGN(StreamOptions options, ValidationStreamOptions(config_, share.replicas));
  options.epochs = epochs;
  return Open(share, std::move(options), Augmentation::Use::kEvaluation);
}

// The fields of a data set, with their shapes. The transform hook is made of them, and must be
// there before its stream is opened.
Result<std::vector<FieldSpec>> ForebaySource::FieldsOf(const StreamOptions& of) const {
  const Result<DatasetInfo> info = client_->DescribeWhenCatalogued(of.dataset, of.selection);
  if (!info.has_value()) return info.error().WithContext(fmt::format("data set {}", of.dataset));
  std::vector<FieldSpec> fields;
  for (const FieldInfo& field : info->fields) fields.push_back(field.spec);
  return fields;
}

Result<std::unique_ptr<Feed>> ForebaySource::Open(const FeedShare& share, StreamOptions options,
                                                  Augmentation::Use use) {
  // To the daemon a replica is a rank: all stages of a replica work on the same samples.
  options.ranks = share.replicas;
  options.rank = share.replica;
  std::vector<FieldSpec> fields;
  if (Augmentation::IsAskedFor(config_.augmentation)) {
    FOREBAY_ASSIGN(fields, FieldsOf(options));
  }
  FOREBAY_ASSIGN(FeedTransform transform, MakeFeedTransform(config_, share, fields, use));
  // The client runs the hook on threads of its own, ahead of Next.
  if (transform.any()) {
    options.transform = HookOf(transform);
    options.transform_bytes = transform.sample_bytes;
    options.transform_threads = static_cast<std::uint32_t>(config_.augmentation.threads);
  }
  Result<std::unique_ptr<BatchStream>> stream = client_->Open(options);
  if (!stream.has_value()) {
    return stream.error().WithContext(fmt::format("data set {}", options.dataset));
  }
  return std::unique_ptr<Feed>(std::make_unique<ForebayFeed>(
      client_, *std::move(stream), options.global_batch, std::move(transform)));
}

}  // namespace forebay::train
