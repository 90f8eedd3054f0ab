// Verdicts about BLAS from names and rates that the test gives, and the threads that a rank takes
// of a machine's cores.
#include "trainer/core/machine/blas_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/core/machine/thread_plan.h"

namespace forebay::train {
namespace {

using ::testing::HasSubstr;

class FixedProbe final : public BlasProbe {
 public:
  explicit FixedProbe(Result<BlasFacts> facts) : facts_(std::move(facts)) {}
  Result<BlasFacts> Measure() override { return facts_; }

 private:
  Result<BlasFacts> facts_;
};

const BlasFacts kReference{"/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0", 5.5};
const BlasFacts kOpenBlas{"/usr/lib/x86_64-linux-gnu/openblas-openmp/libblas.so.3", 98.0};

TEST(BlasCheck, OpenBlasPasses) {
  FixedProbe probe(kOpenBlas);
  const auto verdict = CheckBlas(probe, false);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->name, "openblas");
  EXPECT_TRUE(verdict->fast);
}

TEST(BlasCheck, ReferenceBlasIsRefusedWithTheRemedy) {
  FixedProbe probe(kReference);
  const auto verdict = CheckBlas(probe, false);
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(verdict.error().message(), HasSubstr("apt-get install libopenblas0-openmp"));
  EXPECT_THAT(verdict.error().message(), HasSubstr("update-alternatives"));
  EXPECT_THAT(verdict.error().message(), HasSubstr("--force-slow-blas"));
  EXPECT_THAT(verdict.error().message(), HasSubstr(kReference.library));
}

TEST(BlasCheck, ForceTrainsOnReferenceBlasAndSaysSo) {
  FixedProbe probe(kReference);
  const auto verdict = CheckBlas(probe, true);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_FALSE(verdict->fast);
  EXPECT_EQ(verdict->name, "reference");
}

TEST(BlasCheck, BusyMachineDoesNotCondemnOpenBlas) {
  EXPECT_TRUE(JudgeBlas({kOpenBlas.library, 1.0}).fast);
}

TEST(BlasCheck, UnknownNameIsJudgedByMeasurement) {
  EXPECT_TRUE(JudgeBlas({"", 60.0}).fast);
  EXPECT_FALSE(JudgeBlas({"", 5.0}).fast);
  EXPECT_FALSE(JudgeBlas({"/opt/libsomething.so", 5.0}).fast);
  EXPECT_TRUE(JudgeBlas({"/opt/libsomething.so", kBlasGflopsMin}).fast);
}

TEST(BlasCheck, KnownLibrariesAreNamed) {
  EXPECT_EQ(JudgeBlas({"/opt/intel/libmkl_rt.so.2", 1.0}).name, "mkl");
  EXPECT_EQ(JudgeBlas({"/usr/lib/blis-openmp/libblas.so.3", 1.0}).name, "blis");
}

TEST(BlasCheck, ALibraryWithinLibTorchIsNamedAndFast) {
  const BlasVerdict verdict = JudgeBlas({"/opt/torch/lib/libtorch_cpu.so", 5.0, "mkl"});
  EXPECT_EQ(verdict.name, "mkl");
  EXPECT_TRUE(verdict.fast);
}

TEST(BlasCheck, FailedProbeIsAnErrorEvenWhenForced) {
  FixedProbe probe(Error(ErrorCode::kInternal, "no GEMM"));
  EXPECT_FALSE(CheckBlas(probe, true).has_value());
}

TEST(ThreadPlan, RequestWins) {
  EXPECT_EQ(PlanThreads({.requested = 7, .online_cores = 2, .allowed_cores = 2,
                         .local_ranks = 2}), 7U);
}

TEST(ThreadPlan, RanksOfANodeShareItsCores) {
  EXPECT_EQ(PlanThreads({.requested = 0, .online_cores = 16, .allowed_cores = 16,
                         .local_ranks = 4}), 4U);
  EXPECT_EQ(PlanThreads({.requested = 0, .online_cores = 16, .allowed_cores = 16,
                         .local_ranks = 1}), 16U);
}

TEST(ThreadPlan, CoresBoundByTheLauncherAreNotDividedAgain) {
  EXPECT_EQ(PlanThreads({.requested = 0, .online_cores = 16, .allowed_cores = 4,
                         .local_ranks = 4}), 4U);
}

TEST(ThreadPlan, OversubscribedRanksGetOneThread) {
  EXPECT_EQ(PlanThreads({.requested = 0, .online_cores = 2, .allowed_cores = 2,
                         .local_ranks = 8}), 1U);
}

}  // namespace
}  // namespace forebay::train
