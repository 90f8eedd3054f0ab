// StreamLedger: what arrived on one call, to be compared with the daemon's trailer.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/v1/data.pb.h"
#include "proto/contract/result.h"

namespace forebay::internal {

struct StreamLedger {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t padded = 0;
  std::uint64_t checksum = 0;  // sum of BatchDigest mod 2^64

  // kDataLoss names the first figure that differs, both sides'.
  Status Compare(const v1::Trailer& trailer) const {
    FOREBAY_TRY(CompareOne("batches", batches, trailer.batches()));
    FOREBAY_TRY(CompareOne("samples", samples, trailer.samples()));
    FOREBAY_TRY(CompareOne("padded samples", padded, trailer.padded()));
    return CompareOne("checksum", checksum, trailer.checksum());
  }

 private:
  static Status CompareOne(const char* name, std::uint64_t here, std::uint64_t there) {
    if (here == there) return {};
    return Error(ErrorCode::kDataLoss, "the stream's trailer differs from what arrived: " +
                                           std::string(name) + " " + std::to_string(here) +
                                           " here, " + std::to_string(there) +
                                           " at the daemon");
  }
};

}  // namespace forebay::internal
