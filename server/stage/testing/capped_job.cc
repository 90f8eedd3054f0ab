#include "server/stage/testing/capped_job.h"

namespace forebay::stage {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace

CappedJob::CappedJob(std::uint32_t nodes, std::uint64_t seed, std::uint64_t requests)
    : requests_(requests), random_(seed), nodes_(nodes) {
  for (std::uint32_t i = 0; i < nodes; ++i) Start(i, false);
  for (std::uint32_t i = 0; i < nodes; ++i) nodes_[i].tick_at = Draw(0, 100) * kStep;
}

void CappedJob::Start(std::uint32_t i, bool has_returned) {
  nodes_[i].share = std::make_unique<CapShare>(
      CapShareOptions{.caps = {kBytes, 100},
                      .requests = requests_,
                      .node_requests_max = kNodeRequests,
                      .node_count = static_cast<std::uint32_t>(nodes_.size()),
                      .self = NodeRank(i),
                      .has_returned = has_returned},
      now_);
  nodes_[i].wants = 0;
  ++nodes_[i].life;
}

void CappedJob::Send(std::uint32_t from, std::uint32_t to, std::function<void()> deliver) {
  if (Chance(loss) || !reaches(from, to)) return;
  messages_.push({.at = now_ + Draw(0, delay_max_steps) * kStep,
                  .number = next_message_++,
                  .deliver = std::move(deliver)});
}

void CappedJob::Tick(std::uint32_t i) {
  const std::int64_t asked = now_;
  const auto lives = [&](NodeRank node) { return believes_alive(i, node.value()); };
  for (const CapShare::Ask& sent : nodes_[i].share->Tick(now_, lives)) {
    const std::uint32_t to = sent.node.value();
    Send(i, to, [this, i, to, asked, life = nodes_[i].life, ask = sent.ask] {
      if (!Hears(to)) return;
      const ShareAnswer answer = nodes_[to].share->Answer(NodeRank(i), ask, now_);
      loans_ += answer.lent[0] > 0 ? 1 : 0;
      request_loans_ += answer.requests + ask.requests.held > 0 ? 1 : 0;
      if (Chance(answer_loss)) return;
      Send(to, i, [this, i, to, asked, life, ask, answer] {
        // An answer to a killed daemon does not reach the one in its place.
        if (!Hears(i) || nodes_[i].life != life) return;
        nodes_[i].share->Answered(NodeRank(to), ask, answer, asked, now_);
      });
    });
  }
  const bool has_ward = nodes_[i].share->held(now_).ward;
  takes_ += has_ward && !nodes_[i].had_ward ? 1 : 0;
  nodes_[i].had_ward = has_ward;
}

void CappedJob::MakeRequests(std::uint32_t i) {
  Node& node = nodes_[i];
  RequestShare& requests = node.share->requests();
  const auto ended =
      std::erase_if(node.in_flight, [&](std::int64_t end) { return end <= now_; });
  for (std::size_t k = 0; k < ended; ++k) requests.End();
  const std::uint64_t wanted = std::min(demand_requests(i), kNodeRequests);
  while (node.in_flight.size() < wanted && requests.TryBegin(0, now_)) {
    node.in_flight.push_back(now_ + Draw(1, request_max_steps) * kStep);
  }
}

void CappedJob::Step() {
  now_ += kStep;
  while (!messages_.empty() && messages_.top().at <= now_) {
    const Message message = messages_.top();
    messages_.pop();
    message.deliver();
  }
  double used = 0;
  double rates = 0;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!Hears(i)) continue;
    node.wants = std::min(node.wants + demand(i, now_), kBytes);
    while (node.wants >= kAmount && node.share->CanTake(Cap::kBytes, kAmount, now_)) {
      node.share->Take(Cap::kBytes, kAmount, now_);
      node.wants -= kAmount;
      node.used += kAmount;
      used += kAmount;
    }
    if (node.wants >= kAmount) node.share->AddWait(Cap::kBytes, kStep);
    if (requests_ > 0) MakeRequests(i);
    if (now_ >= node.tick_at) {
      Tick(i);
      node.tick_at = now_ + kSecond;
      if (late_max_steps > 0 && Draw(0, 9) == 0) {
        node.tick_at += Draw(0, late_max_steps) * kStep;
      }
    }
  }
  // A node that stands still has its rate all the same.
  std::uint64_t requests = 0;
  for (const Node& node : nodes_) {
    if (node.share) rates += node.share->figures(Cap::kBytes, now_).rate;
    requests += InFlight(node);
  }
  highest_rate_ = std::max(highest_rate_, rates);
  most_requests_ = std::max(most_requests_, requests);
  last_second_.push_back(used);
  in_last_second_ += used;
  if (last_second_.size() > kSecond / kStep) {
    in_last_second_ -= last_second_.front();
    last_second_.pop_front();
  }
  most_in_a_second_ = std::max(most_in_a_second_, in_last_second_);
}

}  // namespace forebay::stage
