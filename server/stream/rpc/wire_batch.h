// Between assembled batches and wire messages.
#pragma once

#include "forebay/v1/data.pb.h"
#include "server/catalog/catalog.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

void FillBatch(std::uint64_t id, const AssembledBatch& batch, v1::Batch& message);
void FillError(const BatchName& name, const Error& error, v1::BatchError& message);
void FillField(const catalog::Catalog& catalog, FieldId field, v1::Field& message);
StreamRequestSpec FromWire(const v1::OpenStream& open, ClientIdentity client);
BatchName FromWire(const v1::Pull& pull);

}  // namespace forebay::stream
