// The sections of a pack's schema that hold or name learned predictors (docs/pack.md). What
// pack_format.cc reads and writes them with.
#pragma once

#include "compress/format/pack/pack_format.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {

// kInvalidArgument for too many, for none at a place, for one twice.
Status CheckPredictors(const PackSchema& schema);

// The number of sections, then each.
void WriteSections(const PackSchema& schema, ByteWriter& writer);

// The same; sections of other types are passed over. Errors of Predictor::Parse; kDataLoss.
Status ReadSections(const PredictorBudget& budget, ByteReader& reader, PackSchema& schema);

}  // namespace forebay::compress
