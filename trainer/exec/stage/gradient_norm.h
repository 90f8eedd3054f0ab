// GradientNorm: the norm of the gradient of the whole model, whose parts lie on several stages. It
// decides how far the gradient is scaled down (clipped), and whether it is finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/exec/stage/stage_gradient.h"

namespace forebay::train {

// Every stage computes the squared norms of its parts, the stages gather them, and each sums all of
// them in a tree over the parts. So all stages have the same bits, whatever the cut into stages.
// Not thread-safe. Exceptions of LibTorch pass through.
class GradientNorm {
 public:
  // The stage has parts `first_part` to `first_part + stage_parts` - 1 of the model's
  // `model_parts`. `gradient` is borrowed.
  GradientNorm(StageGradient& gradient, std::size_t first_part, std::size_t stage_parts,
               std::size_t model_parts)
      : gradient_(gradient),
        first_part_(first_part),
        stage_parts_(stage_parts),
        model_parts_(model_parts) {}

  // The collective that gathers the squared norms of all stages. Call it when the gradients are
  // reduced. It uses memory of this object.
  std::unique_ptr<PendingCollective> Gather(Members members, const CollectiveTag& tag);
  // The squared norm; of this stage's parts where nothing was gathered, because there are no other
  // stages. Ends what Gather began.
  double TakeSquared();

 private:
  // Squared norms by part of the model; 0 for those of other stages.
  std::vector<double> Own();

  StageGradient& gradient_;
  const std::size_t first_part_;
  const std::size_t stage_parts_;
  const std::size_t model_parts_;
  std::vector<double> own_;
  std::vector<double> gathered_;  // by member, then by part
};

}  // namespace forebay::train
