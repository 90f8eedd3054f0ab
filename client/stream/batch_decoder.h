// Decodes a wire batch into a Batch::State. Everything in the message is untrusted: each count
// and each span is checked before it is used.
#pragma once

#include <memory>

#include "client/connection/page_populator.h"
#include "client/connection/region_map.h"
#include "client/stream/batch_state.h"
#include "client/stream/stream_schema.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/result.h"

namespace forebay::internal {

// Where a batch's bytes may lie.
struct DecodeSources {
  const StreamSchema& schema;
  const RegionMap& regions;
  PagePopulator* populator = nullptr;  // of the same regions; told of every span found there
};

// Fills `state`, which was Clear()ed and whose inline_payload already holds the batch's inline
// bytes. Sets everything but token, call_number, schema and regions. kDataLoss names the batch
// and what is wrong with it; `state` is then unspecified but may be Clear()ed and used again.
Status DecodeBatch(const v1::Batch& batch, const DecodeSources& sources, Batch::State& state);

}  // namespace forebay::internal
