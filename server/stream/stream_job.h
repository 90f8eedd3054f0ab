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
  bool wants_all_extents = false;          // what was decoded has gone while it waited
  // What the registry knows of its attempts to get slot memory.
  bool is_starved = false;                 // an attempt has failed: the next ones are alone
  bool is_denied = false;                  // parked for scratch, without an attempt
  bool takes_unasked = false;              // slot memory that the ledger knows nothing of
  bool has_scratch = false;
  std::uint64_t scratch_bytes = 0;         // where has_scratch
  std::uint64_t releases_seen = 0;         // when the attempt began
  bool slots_were_empty = false;           // likewise
};

}  // namespace forebay::stream
