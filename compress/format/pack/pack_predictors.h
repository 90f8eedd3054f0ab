// The sections of a pack's schema that hold or name learned predictors (docs/pack.md). Used by
// pack_format.cc only.
#pragma once

#include "compress/format/pack/pack_format.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {

// Checks a schema's predictors. Errors: kInvalidArgument for too many, for a null pointer, and for
// two with the same short id.
Status CheckPredictors(const PackSchema& schema);

// Writes the number of sections and then each section.
void WriteSections(const PackSchema& schema, ByteWriter& writer);

// Reads sections, skipping those of unknown types. Errors: kDataLoss, those of Predictor::Parse.
Status ReadSections(const PredictorBudget& budget, ByteReader& reader, PackSchema& schema);

}  // namespace forebay::compress
