// Frozen parameters of a part stay as they are under every optimiser, in both arithmetics.
#include "trainer/exec/stage/held_part.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace forebay::train {
namespace {

// A matrix that is trained between two that are not.
class HalfFrozen final : public Part {
 public:
  HalfFrozen() {
    register_parameter("before", torch::ones({2, 3}), false);
    register_parameter("trained", torch::ones({2, 2}));
    register_parameter("after", torch::ones({4, 1}), false);
  }
  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    return inputs[0];
  }
};

class HeldPartTest : public ::testing::TestWithParam<Optimiser> {
 protected:
  void SetUp() override {
    options_.optimiser = FindOptimiser(GetParam().name).value();
    part_ = HeldPart::Make({.name = "p", .make = [] { return std::make_shared<HalfFrozen>(); }}, 1,
                           *options_.optimiser)
                .value();
  }
  // Weights first, then states; each parameter's in turn.
  void ExpectFrozen() {
    for (const HeldTensor& held : part_->Tensors()) {
      const bool weight = held.kind == HeldTensor::Kind::kWeight;
      const bool trained = held.name.find("trained") != std::string::npos;
      const float first = weight ? 1.0F : 0.0F;
      const auto same = std::ranges::count(held.values, first);
      if (trained) {
        EXPECT_EQ(same, 0) << held.name;
      } else {
        EXPECT_EQ(same, static_cast<std::ptrdiff_t>(held.values.size())) << held.name;
      }
    }
  }

  std::unique_ptr<HeldPart> part_;
  OptimiserOptions options_;
  UpdateStep step_{.learning_rate = 0.1, .weight_decay = 0.5};
};

TEST_P(HeldPartTest, FrozenWeightsDoNotDecay) {
  const std::vector<float> gradient(part_->floats(), 0.25F);
  part_->Update(options_, step_, gradient);
  ExpectFrozen();
}

TEST_P(HeldPartTest, FrozenWeightsDoNotDecayByLibTorch) {
  TensorsToUpdate decaying;
  TensorsToUpdate constant;
  part_->AddTrained(torch::full({static_cast<std::int64_t>(part_->floats())}, 0.25F), decaying,
                    constant);
  UpdateTensors(options_, step_, decaying);
  UpdateTensors(options_, step_, constant);
  ExpectFrozen();
}

INSTANTIATE_TEST_SUITE_P(All, HeldPartTest, ::testing::ValuesIn(Optimisers()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace forebay::train
