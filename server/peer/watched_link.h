// WatchedLink: the connection to one node, as LinkWatch sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace forebay::peer {

// How the requests to one node fare.
struct LinkState {
  std::int64_t silent_ns = 0;  // the longest time for which nothing has come of a request
  bool has_excused = false;    // the node has said of one of them that it waits itself
  std::int64_t usual_ns = 0;   // AnswerTimes::usual_ns
  // As in LinkFigures.
  std::uint64_t received_bytes = 0;
  std::uint64_t busy_ns = 0;
  std::uint64_t wrong = 0;  // without those of a node that had this place before
};

// PeerLink is one, and tests have others. Thread-safe.
class WatchedLink {
 public:
  virtual ~WatchedLink() = default;
  // Adds `elapsed_ns` to the time for which nothing has come, of each request that is watched and
  // was looked at before. If `is_suspected` returns true, this is done also for requests of which
  // the node has said that it waits itself. `is_suspected` is called only if there are such
  // requests.
  virtual LinkState AddSilence(std::int64_t elapsed_ns,
                               const std::function<bool()>& is_suspected) = 0;
  // Ends the requests for which nothing has come for `after_ns`, and those that wait for their
  // turn, as if the node had not answered. The error says `why`.
  virtual void EndLate(std::int64_t after_ns, const std::string& why) = 0;
};

}  // namespace forebay::peer
