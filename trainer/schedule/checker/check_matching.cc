// Points 4 and 5 of CheckPlan. A channel between two ranks keeps the order of its messages, so the
// k-th send must be the k-th receive. Members of several collectives must begin those that they
// share in one order, because a transport matches them by their order, too.
#include "trainer/schedule/checker/plan_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace forebay::train {
namespace {

// Both ends of one channel between two ranks, as indices into their lists.
struct ChannelEnds {
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

}  // namespace

// First collects the sends and receives of each channel in the order of the lists. Then pairs the
// k-th send with the k-th receive, and compares what they say about the message.
Result<MessagePartners> MatchMessages(const StepPlan& plan) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, Channel>, ChannelEnds> channels;
  // For each instruction of each rank the index of its other end.
  MessagePartners partners(plan.programs.size());
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    const std::vector<Instruction>& list = plan.programs[rank].instructions;
    partners[rank].assign(list.size(), kNoPartner);
    for (std::uint32_t at = 0; at < list.size(); ++at) {
      if (list[at].op == Op::kSend) {
        // Both ends file their instruction under (sender, receiver, channel).
        channels[{rank, list[at].peer, list[at].channel}].sends.push_back(at);
      } else if (list[at].op == Op::kReceive) {
        channels[{list[at].peer, rank, list[at].channel}].receives.push_back(at);
      }
    }
  }
  for (const auto& [key, ends] : channels) {
    const auto [from, to, channel] = key;
    // Differences in order are reported first: they say more than a wrong count.
    const std::size_t common = std::min(ends.sends.size(), ends.receives.size());
    for (std::size_t at = 0; at < common; ++at) {
      const Instruction& send = plan.programs[from].instructions[ends.sends[at]];
      const Instruction& receive = plan.programs[to].instructions[ends.receives[at]];
      if (send.edge != receive.edge || send.micro_batch != receive.micro_batch) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("{} meets {}: the order of messages differs",
                                 InstructionName(plan, from, ends.sends[at]),
                                 InstructionName(plan, to, ends.receives[at])));
      }
      partners[from][ends.sends[at]] = ends.receives[at];
      partners[to][ends.receives[at]] = ends.sends[at];
    }
    if (ends.sends.size() > common) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: nobody receives it",
                               InstructionName(plan, from, ends.sends[common])));
    }
    if (ends.receives.size() > common) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: nobody sends it",
                               InstructionName(plan, to, ends.receives[common])));
    }
  }
  return partners;
}

// First each rank by itself: a collective is begun once, ended after that, and ended before the
// update. Then every two ranks: they begin the collectives that they share in one order.
Status CheckCollectiveOrder(const StepPlan& plan) {
  std::vector<std::vector<std::uint32_t>> begun(plan.programs.size());
  for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
    std::vector<std::uint32_t> open;
    const std::vector<Instruction>& list = plan.programs[rank].instructions;
    for (std::size_t at = 0; at < list.size(); ++at) {
      const std::uint32_t id = list[at].collective;
      if (list[at].op == Op::kCollectiveBegin) {
        if (std::ranges::find(begun[rank], id) != begun[rank].end()) {
          return RankView{plan, rank}.Fault(at, "it begins for the second time");
        }
        // `begun` keeps the order for the comparison below, `open` what has not ended.
        begun[rank].push_back(id);
        open.push_back(id);
      } else if (list[at].op == Op::kCollectiveEnd && std::erase(open, id) == 0) {
        return RankView{plan, rank}.Fault(at, "it has not begun");
      } else if (list[at].op == Op::kUpdate && !open.empty()) {
        return RankView{plan, rank}.Fault(at, "a collective is still under way");
      }
    }
    if (!open.empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("rank {} does not end collective {}", rank, open.front()));
    }
  }
  // For every two members: the collectives that they share, in the order of each.
  for (std::uint32_t rank = 0; rank < begun.size(); ++rank) {
    for (std::uint32_t other = 0; other < begun.size(); ++other) {
      const auto shared = [&](std::uint32_t of) {
        std::vector<std::uint32_t> ids;
        for (const std::uint32_t id : begun[of]) {
          const std::vector<std::uint32_t>& members = plan.collectives[id].members;
          if (std::ranges::binary_search(members, rank) &&
              std::ranges::binary_search(members, other)) {
            ids.push_back(id);
          }
        }
        return ids;
      };
      if (rank < other && shared(rank) != shared(other)) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("ranks {} and {} do not begin the collectives they share in the "
                                 "same order",
                                 rank, other));
      }
    }
  }
  return {};
}

}  // namespace forebay::train
