// FirstAnswers: waits until each node of a list of hosts has answered once, at the start of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/peer/node_report.h"

namespace forebay::daemon {

struct FirstAnswersParts {
  io::Clock& clock;             // borrowed
  std::vector<NodeRank> nodes;  // the other nodes
  std::size_t at_a_time = 1;    // nodes that are asked
  // Asks a node; `heard` is called once, at the deadline at the latest, perhaps within this call,
  // or when this object is gone.
  using Heard = std::function<void(const Result<peer::NodeReport>&)>;
  std::function<void(NodeRank, std::int64_t deadline_ns, Heard heard)> ping;
};

// Used by one thread.
class FirstAnswers {
 public:
  explicit FirstAnswers(FirstAnswersParts parts);

  // Asks nodes that have not answered and are not being asked: as many as may be asked at a time,
  // in turn, so that those that do not run yet do not keep the others from being asked. Returns the
  // nodes that have not answered. Call it again and again.
  std::vector<NodeRank> Ask();
  // Returns the last error of a node that did not answer. It is empty if there was none.
  std::string last_error() const;

 private:
  struct Answers;

  const FirstAnswersParts parts_;
  const std::shared_ptr<Answers> answers_;  // shared with the callbacks
  std::size_t turn_ = 0;                    // index of the node that is asked next
};

}  // namespace forebay::daemon
