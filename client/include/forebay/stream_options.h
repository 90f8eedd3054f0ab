// StreamOptions: what a reader asks of a data set.
//
//   // Rank `rank` of `ranks` reads 90 epochs, 256 samples a step over all ranks, and goes on where
//   // the run ended that kept `resume`. A hook on the library's threads doubles every byte.
//   forebay::StreamOptions OptionsOfRank(std::uint32_t rank, std::uint32_t ranks,
//                                        std::optional<forebay::PositionToken> resume) {
//     forebay::StreamOptions options;
//     options.dataset = "fashion-mnist";
//     options.global_batch = 256;
//     options.ranks = ranks;
//     options.rank = rank;
//     options.epochs = 90;
//     options.seed = 7;   // another seed, another order
//     options.resume = resume;
//     options.transform_bytes = 28 * 28;
//     options.transform = [](const forebay::TransformInput& input) -> forebay::Status {
//       FOREBAY_ASSIGN(const forebay::TensorView images, input.batch.Tensor("images"));
//       const std::byte* image = images.data + input.index * input.output.size();
//       for (std::size_t i = 0; i < input.output.size(); ++i) input.output[i] = image[i] << 1;
//       return {};
//     };
//     return options;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "forebay/batch.h"
#include "proto/contract/delivery.h"
#include "proto/contract/ids.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_token.h"
#include "proto/contract/result.h"

namespace forebay {

// Runs on the client's worker threads, once per sample, before the batch is handed over. `seed`
// is TransformSeed(stream seed, epoch, sample id): the same on every rank count and after every
// restart. Must be thread-safe. An error ends the stream with that error.
struct TransformInput {
  const Batch& batch;
  std::uint32_t index = 0;       // of the sample within the batch
  SampleId sample = {};
  std::uint64_t seed = 0;
  std::span<std::byte> output = {};  // this sample's `transform_bytes` bytes of the result
};
using Transform = std::function<Status(const TransformInput&)>;

struct StreamOptions {
  std::string dataset = {};
  std::string stream_name = "train";  // ranks of one stream share it; another name, another order
  std::string selection = "all";      // docs/order.md
  std::uint32_t global_batch = 1;     // samples per step over all ranks
  std::uint32_t ranks = 1;            // must divide global_batch
  std::uint32_t rank = 0;
  std::uint32_t first_epoch = 0;
  std::uint32_t epochs = 1;  // Next() ends after epoch first_epoch + epochs - 1, resumed or not

  std::uint64_t seed = 0;
  OrderMode mode = OrderMode::kGlobal;
  std::uint64_t block_samples = 1024;  // mode kBlock: b
  std::uint64_t window_runs = 16;      // mode kBlock: w
  // A mode of its own for epoch 0, to stream in at GFS speed.
  std::optional<OrderMode> epoch0_mode = {};
  TailPolicy tail = TailPolicy::kDrop;

  Delivery delivery = Delivery::kContiguous;
  std::uint32_t prefetch_depth = 4;   // batches pulled ahead; at most limits::kCreditsMax - 1
  bool wait_for_catalog = true;       // block in Open while the catalog is being built
  // How long one Next or Pull goes on asking for its batch while the daemon cannot bring it: the
  // GFS is away for longer than the daemon waits (stage.retry_for), or memory is short. Pauses grow
  // to half a second. 0: the first such error is returned. A batch that is merely slow is waited
  // for as long, and never less than limits::kPullDeadlineMs.
  std::int64_t retry_for_ms = 600'000;  // at most limits::kStreamRetryMsMax

  // Resume: continue at this token, whatever the rank count it was made with. The options
  // above are those of the run that made it; Open names the first one that is not.
  std::optional<PositionToken> resume = {};

  // Transform hook; its results are Batch::transformed(), sample_count x transform_bytes.
  Transform transform = {};
  std::uint64_t transform_bytes = 0;
  std::uint32_t transform_threads = 1;

  // Appends one line per batch handed over, for `forebay audit` (docs/delivery_log.md). Empty:
  // none. One file per rank.
  std::string delivery_log = {};
};

}  // namespace forebay
