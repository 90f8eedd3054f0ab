// Each member sends a square for every part of the model, zero for the parts of other stages.
// Adding the members' numbers part by part therefore adds zeros to one number, which changes no
// bit; only the tree over the parts rounds, and it is the same on every rank.
#include "trainer/exec/stage/gradient_norm.h"

#include <span>
#include <utility>

#include "trainer/numerics/gradient_sum.h"

namespace forebay::train {

// One number for each part of the model, at the same place on every rank.
std::vector<double> GradientNorm::Own() {
  std::vector<double> norms(model_parts_);
  for (std::size_t at = 0; at < stage_parts_; ++at) {
    norms[first_part_ + at] = gradient_.SquaredNormOf(at);
  }
  return norms;
}

std::unique_ptr<PendingCollective> GradientNorm::Gather(Members members,
                                                        const CollectiveTag& tag) {
  own_ = Own();
  gathered_.assign(model_parts_ * members.count(), 0.0);
  return std::make_unique<AllGather>(std::move(members), tag, std::as_bytes(std::span(own_)),
                                     std::as_writable_bytes(std::span(gathered_)));
}

double GradientNorm::TakeSquared() {
  // A model in one stage gathers nothing.
  std::vector<double> norms = gathered_.empty() ? Own() : std::vector<double>(model_parts_);
  for (std::size_t at = 0; at < gathered_.size(); ++at) norms[at % model_parts_] += gathered_[at];
  gathered_.clear();
  std::vector<double*> leaves;
  for (double& norm : norms) leaves.push_back(&norm);
  SumTree<double>(leaves, 1);
  return norms[0];
}

}  // namespace forebay::train
