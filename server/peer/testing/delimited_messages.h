// Splits the input of a fuzz target into messages, for targets of an answer that is a stream of
// messages. Each message stands behind its length (protobuf's delimited form), which is how
// tests/fuzz/write_seeds.cc writes the seeds. In a header, so that a fuzz target needs nothing of
// the test support but this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/io/coded_stream.h>

namespace forebay::peer {

// Returns the messages that are complete. What follows the last one is left out.
inline std::vector<std::string> DelimitedMessages(const std::uint8_t* data, std::size_t size) {
  google::protobuf::io::CodedInputStream input(data, static_cast<int>(size));
  std::vector<std::string> messages;
  std::uint32_t length = 0;
  while (input.ReadVarint32(&length)) {
    std::string message;
    if (length > size || !input.ReadString(&message, static_cast<int>(length))) break;
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace forebay::peer
