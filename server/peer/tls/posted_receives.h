// PostedReceives: the receives that wait for payloads of other nodes. Each belongs to one
// connection and ends with it, so a payload that was lost with its connection is not awaited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/peer/payload_carrier.h"

namespace forebay::peer {

struct PostedReceive;

// `ended` of a payload is called without a lock. Any thread may call Post. All the other functions
// are for one thread, which also writes to the memory of messages.
class PostedReceives {
 public:
  // Posts a receive on the connection from `node`, if there is one. Returns its tag and the number
  // of the connection, or 0 for that.
  PayloadPlace Post(NodeRank node, const Payload& payload, PayloadCarrier::Ended ended);

  // A connection from `node` has begun. The number is that of TlsSession.
  void SetConnection(NodeRank node, std::uint32_t connection);
  // Ends the connection, if no receive waits for it, so that no request names it from now on.
  // Returns whether it has ended; if so, no answer is on its way.
  bool EndIfUnused(NodeRank node, std::uint32_t connection);
  // It has ended, and with it all its receives: kUnavailable.
  void EndConnection(NodeRank node, std::uint32_t connection, const std::string& why);

  // A message that arrives. It must be given to End if it is still awaited in the end.
  struct Arriving {
    std::shared_ptr<PostedReceive> receive = nullptr;
    std::size_t message = 0;
    std::span<const std::span<std::byte>> pieces = {};
  };
  // Returns where a message of `bytes` belongs that comes by `connection`. No receive: nobody waits
  // for it, or another length is awaited, and its bytes are to be thrown away.
  Arriving Begin(std::uint32_t connection, std::uint32_t tag, std::uint32_t message,
                 std::uint64_t bytes);
  // Whether its memory may still be written.
  static bool IsAwaited(const Arriving& arriving);
  // Returns whether the whole payload has come with this message.
  bool End(const Arriving& arriving, const Status& status);

  // Ends all messages of a receive with kCancelled. No effect if it has ended.
  void Cancel(std::uint32_t tag);

 private:
  // A connection that requests name now.
  struct Named {
    std::uint32_t number = 0;
    std::size_t receives = 0;  // that wait for it
  };
  static void EndAll(PostedReceive& receive, const Error& error);
  void ForgetLocked(const PostedReceive& receive) FOREBAY_REQUIRES(mutex_);

  Mutex mutex_;
  std::uint32_t last_tag_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::map<std::uint32_t, std::shared_ptr<PostedReceive>> by_tag_ FOREBAY_GUARDED_BY(mutex_);
  std::map<NodeRank, Named> connections_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::peer
