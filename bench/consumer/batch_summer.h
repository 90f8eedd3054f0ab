// BatchSummer: what the benchmark's trainer does with a minibatch: it reads every byte.
#pragma once

#include "bench/peers/delivery_digest.h"
#include "forebay/batch.h"
#include "proto/contract/result.h"

namespace forebay::bench {

// Adds every sample of `field` of `batch` to `digest`, padding left out.
Status AddBatch(const Batch& batch, FieldId field, bool with_content, DeliveryDigest& digest);

// The first field that is not a constant of the catalog; kNotFound where there is none.
Result<FieldId> PayloadField(std::span<const FieldSpec> fields);

}  // namespace forebay::bench
