// RowReceiver: reads the chunks of an answer to a request for rows, straight into the memory that
// the request names, and verifies each row when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/result.h"
#include "server/fetch/row_source.h"

namespace forebay::peer {

// Whatever a chunk contains, nothing is written but to the memory of the rows. Not thread-safe.
class RowReceiver {
 public:
  // `dataset` is the hash of the data set's name; `rows` are borrowed. `may_be_carried`: the answer
  // may say that the bytes were sent by a PayloadCarrier, and have only the checksums.
  RowReceiver(std::uint64_t dataset, std::span<const fetch::Row> rows, bool may_be_carried = false)
      : dataset_(dataset), rows_(rows), may_be_carried_(may_be_carried) {}

  // Reads the next chunk. After an error no further chunk may be read. kInternal: the chunk is
  // malformed or does not fit the request. kDataLoss: a row does not match its checksum.
  Status Take(grpc::ByteBuffer& chunk);
  // Whether the answer has come and said that the rows' bytes were sent by a carrier.
  bool is_carried() const { return !carried_.empty(); }
  // Compares rows that a carrier has brought with their checksums. kDataLoss as in Take.
  Status VerifyCarried(std::size_t first_row, std::size_t end_row) const;
  // To be called after the last chunk: the error of the first row that the node could not give;
  // kInternal if rows are missing.
  Status Finish() const;

 private:
  struct End {
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;
    std::uint32_t code = 0;
    std::string message;
  };
  static Result<End> ReadEnd(google::protobuf::io::CodedInputStream& in);
  Status TakeCarried(google::protobuf::io::CodedInputStream& in, std::size_t message_bytes);
  Status CheckLength(const fetch::Row& row, const End& end) const;
  Status CheckSum(const fetch::Row& row, std::uint64_t checksum) const;
  Status EndRow(const End& end, google::protobuf::io::CodedInputStream& in,
                std::uint64_t& payload);
  Status Fill(google::protobuf::io::CodedInputStream& in, std::uint64_t bytes);
  std::string NameOf(const fetch::Row& row) const;

  const std::uint64_t dataset_;
  const std::span<const fetch::Row> rows_;
  const bool may_be_carried_;
  std::size_t next_ = 0;        // the first row that is not complete
  std::uint64_t filled_ = 0;    // bytes of this row
  std::vector<End> ends_;       // of one chunk
  std::vector<std::uint64_t> carried_;  // checksums of all rows, if a carrier brings them
  std::optional<Error> error_;  // of the first row that has one
};

}  // namespace forebay::peer
