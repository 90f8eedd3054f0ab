// One batch on its way through a session.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/stream/stream_session.h"

namespace forebay::stream {

struct StreamSession::Job {
  std::shared_ptr<StreamSession> session;  // keeps it alive until the batch is settled
  BatchName name;
  std::vector<tier::ExtentRef> refs;       // pinned by a wait for the GFS
  std::int64_t started_ns = 0;
  int refetches = 0;
  bool waited = false;                     // for the GFS
};

}  // namespace forebay::stream
