// DeliveryHistory: what delivery logs prove (docs/delivery_log.md).
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "client/cli/stream/epoch_judge.h"
#include "client/cli/stream/sure_loss.h"
#include "client/cli/stream/taken_back.h"
#include "client/cli/stream/token_reach.h"
#include "proto/contract/ids.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// One opening of one rank's stream, as its header says.
struct LoggedOpening {
  std::string dataset;
  std::string stream;
  std::string selection;
  OrderSpec order;
  std::uint64_t catalog_fingerprint = 0;
  std::uint64_t global_batch = 0;
  std::uint64_t ranks = 0;
  std::uint64_t rank = 0;
  std::uint64_t epochs = 0;  // the stream ends before the epoch of this number
  std::uint64_t first_epoch = 0;
  std::uint64_t first_step = 0;
  std::uint64_t opened_unix_ns = 0;
};

enum class Outcome {
  kWhole,       // every sample of every epoch exactly once, from the first opening to the end
  kUnfinished,  // as far as steps are complete, every sample exactly once
  kUndecided,   // samples are missing or repeated only if the clocks are right; or only if no log
                // is missing, but the clocks suggest that one is; or the logs hold nothing of the
                // stream
  kViolation,   // samples are missing, repeated, or not those of the order
};

struct StreamVerdict {
  LoggedOpening stream;           // the first opening
  std::uint64_t openings = 0;
  std::uint64_t superseded = 0;   // batches that a restore took back
  std::uint64_t wrong_ids = 0;    // samples that are not what the order says
  std::uint64_t end_epoch = 0;    // the stream ends before the epoch of this number
  std::vector<EpochVerdict> epochs;  // without gaps; later ones have not begun
  StepKey open_from = {};         // what is not there from here on is unfinished work
  std::uint64_t unjudged = 0;     // further epochs, beyond limits::kEpochsJudgedMax
  std::vector<std::string> findings;
  Outcome outcome = Outcome::kViolation;
  // Never true for kViolation. A finding explains each.
  bool rests_on_clocks = false;    // the outcome holds if the clocks of the nodes are right
  bool rests_on_all_logs = false;  // it holds if no log is missing; the clocks suggest that one is
};

// Collects logs, then judges. Not thread-safe. Memory grows with the number of batches, not of
// samples, except for selections other than "all": about 12 bytes per sample that was seen.
class DeliveryHistory {
 public:
  // Reads one log. kInvalidArgument names the line that is no part of a log. Half a line at the end
  // or in front of a header is left out: a process was killed while it wrote, or the disk was full.
  Status Read(const std::string& name, std::istream& log);

  // One verdict per stream. `require_complete`: the last epoch must be whole, too.
  std::vector<StreamVerdict> Judge(bool require_complete) const;

  // Logs that end within a header, because a process was killed while it wrote it. Nobody knows
  // which stream that was, and where the process would have begun.
  const std::vector<std::string>& logs_ending_in_header() const { return logs_ending_in_header_; }

 private:
  struct Opening {
    LoggedOpening header;
    std::string place;    // of its header: file and line
    std::size_t log = 0;  // the number of the file that it is in
    std::vector<LoggedBatch> batches;
    std::uint64_t wrong_ids = 0;
    std::string first_wrong;
  };
  // Openings of one order.
  using Group = std::vector<const Opening*>;
  // Openings of one order, in an order of time.
  struct Timeline {
    Group openings;
    std::vector<OpeningPlace> places;   // theirs
    std::vector<TakenBack> taken_back;  // of each
  };

  Status ReadLine(const std::string& place, const nlohmann::json& object, Opening*& current);
  Status AddBatch(const std::string& place, Opening& opening, const LoggedBatch& batch,
                  const std::vector<std::uint64_t>& ids);
  void CheckIds(const std::string& place, Opening& opening, const LoggedBatch& batch,
                const std::vector<std::uint64_t>& ids);
  static OpeningPlace PlaceOf(const Opening& opening);
  static Timeline Arrange(const Group& group, const std::vector<OpeningPlace>& places,
                          const std::vector<std::size_t>& order);
  static StreamVerdict JudgeGroup(const Group& group, bool require_complete);
  static std::uint64_t EndEpochOf(const Timeline& timeline, StepKey TakenBack::* taken_back_from);
  // Batches count that lie before `taken_back_from` of their opening. Without `open_from`, the last
  // epoch that was begun may be unfinished.
  static StreamVerdict JudgeEpochs(const Timeline& timeline, StepKey TakenBack::* taken_back_from,
                                   std::optional<StepKey> open_from);
  static void WeighClocks(const Timeline& timeline, std::optional<StepKey> open_from,
                          StreamVerdict& verdict);
  static std::optional<LosingRank> FindLosingRank(const Timeline& timeline,
                                                  const StreamVerdict& smallest);
  static void WeighMissingLogs(const StreamVerdict& by_clocks, StreamVerdict& verdict);
  static void NameUnexplained(const Group& group, const std::vector<std::size_t>& unexplained,
                              StreamVerdict& verdict);

  std::vector<std::unique_ptr<Opening>> openings_;
  std::size_t logs_ = 0;  // that were read
  std::map<std::string, std::string> headers_;  // all members in one text; the place of each
  std::vector<std::string> logs_ending_in_header_;
  // What each index of a selection has been seen to be, in blocks, so that memory follows what a
  // log holds and not what its header claims.
  static constexpr std::uint64_t kBlockIds = 16;
  using SeenIds = std::unordered_map<std::uint64_t, std::array<std::uint64_t, kBlockIds>>;
  static std::uint64_t& SeenAt(SeenIds& seen, std::uint64_t index);

  std::map<std::uint64_t, SeenIds> seen_ids_;  // per order
};

}  // namespace forebay::cli
