// Bad plans: ways in which a sound step plan is spoilt, for holding the checker against them.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "trainer/schedule/checker/plan_checker.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Spoils a plan at a random place and returns the options under which it is bad; nothing where
// the plan has no such place: it may have been changed all the same.
using Damage = std::function<std::optional<CheckOptions>(StepPlan&, std::mt19937_64&)>;

struct DamageKind {
  std::string_view name;
  Damage spoil;
};

// Every kind of fault that the checker names, one way each.
std::vector<DamageKind> DamageKinds();

}  // namespace forebay::train
