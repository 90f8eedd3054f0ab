// StreamSpec: what a reader asked for when it opened its stream, checked and resolved.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "proto/contract/ids.h"
#include "proto/contract/order.h"
#include "proto/contract/order_steps.h"
#include "proto/contract/result.h"
#include "proto/contract/wire_layout.h"
#include "server/catalog/catalog.h"
#include "server/catalog/selection.h"
#include "server/stage/dataset.h"

namespace forebay::stream {

// Who reads: for status and logs. Of these, only `pid` decides something: while that process lives,
// the batches of a reader that was cut off are kept.
struct ClientIdentity {
  std::string name;       // its own words in Hello; empty where it said none
  std::int64_t pid = 0;   // 0: in another pid namespace, or on another node
  std::uint32_t uid = 0;
  bool is_remote = false;  // it runs on another node, whose daemon is gone
};

// The reader's words, as they came over the wire.
struct StreamRequestSpec {
  std::string dataset;
  std::string stream_name;
  std::string selection;
  std::vector<std::byte> order_spec;
  std::uint32_t global_batch = 0;
  std::uint32_t ranks = 0;
  std::uint32_t rank = 0;
  std::uint32_t delivery = 0;
  std::uint32_t credits = 0;
  std::uint64_t catalog_fingerprint = 0;
  bool inline_payload = false;
  std::uint64_t reader = 0;
  std::uint64_t call = 0;
  std::uint32_t end_epoch = 0;
  ClientIdentity client;
};

// Resolved and consistent. Immutable.
struct StreamSpec {
  stage::Dataset* dataset = nullptr;
  std::shared_ptr<const catalog::Catalog> catalog;
  // Set: the data set was compressed at staging.
  std::shared_ptr<const stage::PackedForm> form;
  std::shared_ptr<const catalog::Selection> selection;
  OrderSpec order;
  StepPlan plan;
  std::string stream_name;
  ClientIdentity client;
  std::uint32_t rank = 0;
  Delivery delivery = Delivery::kContiguous;
  std::uint32_t credits = 0;
  bool inline_payload = false;
  // Names the reader over all its calls, so that it finds again what it has. 0: it has no name.
  std::uint64_t reader = 0;
  std::uint64_t call = 0;  // of that reader; its later calls have larger numbers
  // The reader has said that it will read the epochs before this one; 0: it has said nothing. A
  // hint for reading ahead: batches of other epochs are served as well.
  std::uint32_t end_epoch = 0;
  // Bytes of the largest batch; 0 where fields are of variable size.
  std::uint64_t batch_bytes_max = 0;

  // Whether the order of the epoch takes runs of samples. A global or partial order takes a sample
  // here and a sample there.
  bool ReadsRuns(EpochId epoch) const {
    return !NeedsWholeSet(order.ShapeOf(epoch).mode);
  }
  // Whether the reader has said that it will read the epoch after this one.
  bool WillReadOn(EpochId epoch) const { return std::uint64_t{epoch.value()} + 1 < end_epoch; }
  // Whether samples are decoded on their way to a slot.
  bool is_packed() const { return form != nullptr || catalog->packs() != nullptr; }
};

// Checks everything that can be said without looking at other streams. The catalog of `dataset`
// must be known. Errors name both sides of a mismatch.
Result<StreamSpec> ResolveStream(stage::Dataset& dataset, const StreamRequestSpec& request);

// Whether ResolveSelection, and so ResolveStream, takes long for such a selection: it reads a split
// file, and waits for as long as the GFS does not answer, or computes something for each sample.
bool TakesLong(const std::string& selection);

// The selection of that text over the data set, split files read beneath its root.
Result<std::shared_ptr<const catalog::Selection>> ResolveSelection(
    stage::Dataset& dataset, const catalog::Catalog& catalog, const std::string& text);

// A batch's name: steps of this rank, or a micro-batch of the global batch.
struct BatchName {
  EpochId epoch{};
  StepId step{};
  std::uint32_t micro_size = 0;
  std::uint32_t micro_index = 0;
};
Result<StepSlice> SliceOf(const StreamSpec& spec, const BatchName& name);

}  // namespace forebay::stream
