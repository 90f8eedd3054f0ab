// PayloadFrame: what stands before each message on a connection for bytes of rows. A connection
// begins with the rank of the node that sends, in 4 bytes; then frames follow, each with its bytes.
// A frame with the tag 0 asks the other node to close the connection, unless it awaits something by
// it. The other node sends one byte (kCarried) when the first whole payload has come, and nothing
// else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/byte_cursor.h"

namespace forebay::peer {

struct PayloadFrame {
  std::uint32_t tag = 0;      // of the receive
  std::uint32_t message = 0;  // its index in the payload
  std::uint64_t bytes = 0;    // of the message

  static constexpr std::size_t kBytes = 16;
  static constexpr std::size_t kRankBytes = 4;  // at the beginning of a connection
  static constexpr std::byte kCarried{1};

  void Write(ByteWriter& writer) const {
    writer.Le<std::uint32_t>(tag);
    writer.Le<std::uint32_t>(message);
    writer.Le<std::uint64_t>(bytes);
  }
  static PayloadFrame Read(std::span<const std::byte, kBytes> raw) {
    ByteReader reader(raw);
    PayloadFrame frame;
    frame.tag = reader.ReadLe<std::uint32_t>();
    frame.message = reader.ReadLe<std::uint32_t>();
    frame.bytes = reader.ReadLe<std::uint64_t>();
    return frame;
  }
};

}  // namespace forebay::peer
