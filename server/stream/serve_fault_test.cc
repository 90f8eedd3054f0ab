// The Nth operation of a stage-and-serve script fails, for every N (here: a sample of them; all
// of them in the slow build) and every kind of fault, once or from then on. Whatever happens,
// a delivered sample has the right bytes, every other one has a typed error, nothing leaks, and
// the next run without a fault serves everything.
//
// Silent faults (flipped bits, torn writes) strike the SSD only. Checksums are taken from what
// first comes off the GFS, so nobody could notice a bit that flips in that very read; that is
// the edge of promise P1, not a gap in it.
#include <algorithm>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "server/io/testing/fault_injector.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/split_backend.h"
#include "server/stream/testing/serve_fixture.h"

#ifndef FOREBAY_SWEEP_POINTS
#define FOREBAY_SWEEP_POINTS 10
#endif

namespace forebay::stream::serve_fault_test {

using io::Fault;
using io::FaultKind;
using io::IoCall;

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 192;  // six extents of 32 records
constexpr std::uint32_t kBatch = 8;
constexpr std::uint64_t kSteps = kSamples / kBatch;
constexpr std::uint64_t kSeed = 20'261'121;

// Returns the file that every run serves and compares with. It is made once, because thousands of
// runs need it.
const std::vector<std::byte>& DataFile() {
  static const std::vector<std::byte> file = ServeFixture::RecordFile(kSamples, kRecordBytes);
  return file;
}

std::string_view ExpectedRecord(std::uint64_t sample) {
  const auto record = std::span(DataFile()).subspan(sample * kRecordBytes, kRecordBytes);
  return {reinterpret_cast<const char*>(record.data()), record.size()};
}

// Two lives of a daemon over the same files: each stages, opens a stream and pulls an epoch.
class ServeScript {
 public:
  ServeScript() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", DataFile()).has_value());
  }

  // `is_ssd_only`: the GFS stays sound.
  void Run(const std::optional<Fault>& fault, bool is_ssd_only) {
    io::FaultInjector calm;
    stage::SplitBackend backend(memory_, "/gfs", is_ssd_only ? calm : injector_, injector_);
    if (fault) injector_.Arm(*fault);
    delivered_ = 0;
    errors_.clear();
    for (int life = 0; life < 2; ++life) Live(backend);
    injector_.Disarm();
    EXPECT_EQ(memory_.open_file_count(), 0u) << "files leaked";
  }

  std::uint64_t delivered() const { return delivered_; }
  const std::vector<Error>& errors() const { return errors_; }
  io::FaultInjector& injector() { return injector_; }

 private:
  void Live(io::IoBackend& backend) {
    // Four extents belong in RAM and two on SSD; RAM can take all should the SSD fail.
    auto made = ServeFixture::Create(backend, kRecordBytes,
                                     {.ram_bytes = 232 << 10,
                                      .slot_bytes = 1 << 20,
                                      .ssd_bytes = 4 << 20,
                                      .extent_bytes = 32 << 10,
                                      .readers = 1,
                                      .workers = 1,
                                      .persist = true});
    if (!made.has_value()) return Fail(made.error());
    ServeFixture& serve = **made;
    if (const Status staged = serve.StageAll(); !staged.has_value()) Fail(staged.error());
    // What failed to be staged is tried again by who needs it, if it is known what there is.
    if (serve.dataset().catalog() == nullptr) return;
    const auto sink = serve.MakeSink();
    for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
      PullEpoch(serve, delivery, *sink);
    }
    EXPECT_EQ(serve.slots().used_bytes(), 0u) << "slot memory leaked";
    EXPECT_EQ(serve.registry().open_count(), 0u);
  }

  void PullEpoch(ServeFixture& serve, Delivery delivery, CollectingSink& sink) {
    const auto session =
        serve.Open({.batch = kBatch, .delivery = delivery, .name = "sweep"}, sink);
    if (!session.has_value()) return Fail(session.error());
    const std::size_t errors_before = sink.errors().size();
    std::size_t errors = errors_before;
    std::size_t batches = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      ASSERT_TRUE((*session)->Pull({.first = {.step = StepId(step)}}).has_value());
      ASSERT_TRUE(sink.WaitFor(errors + 1)) << "a pull hangs";
      // Batches are taken out of the sink, because copies of them all for every step took half of
      // this test's time.
      const auto taken = sink.TakeBatches();
      ASSERT_LE(taken.size(), 1u);
      if (taken.empty()) {
        ++errors;
        continue;
      }
      ++batches;
      Judge(taken.front());
      ASSERT_TRUE((*session)->Release({&taken.front().id, 1}).has_value());
    }
    const auto all_errors = sink.errors();
    ASSERT_EQ(all_errors.size(), errors);
    for (std::size_t i = errors_before; i < errors; ++i) Fail(all_errors[i]);
    EXPECT_EQ(batches + errors - errors_before, kSteps);
    (*session)->Close();
  }

  void Judge(const CollectingSink::Taken& batch) {
    ASSERT_EQ(batch.payload.size(), kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) {
      ASSERT_EQ(batch.payload[i], ExpectedRecord(batch.sample_ids[i]))
          << "WRONG BYTES of sample " << batch.sample_ids[i];
    }
    delivered_ += kBatch;
  }

  void Fail(const Error& error) {
    EXPECT_NE(ErrorCodeName(error.code()), "") << "typed";
    EXPECT_FALSE(error.message().empty());
    errors_.push_back(error);
  }

  io::MemoryBackend memory_;
  io::FaultInjector injector_;
  std::uint64_t delivered_ = 0;
  std::vector<Error> errors_;
};

constexpr std::uint64_t kSamplesOfARun = 2 * 2 * kSamples;  // two lives, two deliveries

struct SweepCase {
  const char* name;
  FaultKind kind;
  std::optional<IoCall> call;
  bool is_ssd_only;
};

// Else a test is listed with the bytes of its parameter, addresses among them.
void PrintTo(const SweepCase& sweep, std::ostream* out) { *out << sweep.name; }

class ServeFaultTest : public ::testing::TestWithParam<SweepCase> {
 protected:
  // A fault that costs a warning a batch would hide the failure of a test in its log.
  ServeFaultTest() { spdlog::set_level(spdlog::level::off); }
  ~ServeFaultTest() override { spdlog::set_level(spdlog::level::info); }

  static std::uint64_t Candidates(Fault fault, bool is_ssd_only) {
    fault.nth = ~std::uint64_t{0};
    ServeScript script;
    script.Run(fault, is_ssd_only);
    EXPECT_EQ(script.delivered(), kSamplesOfARun);
    return script.injector().candidates_seen();
  }

  void Sweep(bool is_persistent) {
    const SweepCase& sweep = GetParam();
    Fault fault{.kind = sweep.kind, .call = sweep.call, .nth = 1,
                .is_persistent = is_persistent, .seed = kSeed};
    const std::uint64_t candidates = Candidates(fault, sweep.is_ssd_only);
    ASSERT_GE(candidates, 5u) << "the script does nothing that could fail";
    const std::uint64_t stride = std::max<std::uint64_t>(1, candidates / FOREBAY_SWEEP_POINTS);
    std::uint64_t runs = 0;
    std::uint64_t runs_with_fault = 0;
    for (fault.nth = 1 + kSeed % stride; fault.nth <= candidates; fault.nth += stride) {
      SCOPED_TRACE("operation " + std::to_string(fault.nth) + " of " +
                   std::to_string(candidates) + ", seed " + std::to_string(kSeed));
      ServeScript script;
      script.Run(fault, sweep.is_ssd_only);
      ++runs;
      const bool had_fault = script.injector().faults_injected() > 0;
      // Threads decide how often an extent is read again, so the last operations of one run may not
      // exist in another one.
      EXPECT_TRUE(had_fault || script.injector().candidates_seen() < fault.nth)
          << "the operation came, and its fault did not";
      runs_with_fault += had_fault ? 1 : 0;
      const bool is_whole = script.errors().empty();
      EXPECT_TRUE(!is_whole || script.delivered() == kSamplesOfARun);
      const bool is_silent = sweep.kind == FaultKind::kBitFlip ||
                             sweep.kind == FaultKind::kTornWrite;
      EXPECT_TRUE(is_whole || !is_silent) << "the GFS could have mended it: "
                                          << script.errors().front().ToString();
      script.Run(std::nullopt, false);
      EXPECT_TRUE(script.errors().empty()) << script.errors().front().ToString();
      EXPECT_EQ(script.delivered(), kSamplesOfARun) << "the next run is whole again";
      if (HasFatalFailure() || HasNonfatalFailure()) break;
    }
    // So the last point of a sweep of ten points may miss its fault, and more in a sweep of all.
    const std::uint64_t may_miss = std::max<std::uint64_t>(1, runs / 20);
    EXPECT_GE(runs_with_fault + may_miss, runs) << "runs without their fault prove nothing";
    EXPECT_GE(runs, std::min<std::uint64_t>(candidates, FOREBAY_SWEEP_POINTS));
  }
};

TEST_P(ServeFaultTest, OneFaultAtEachOperation) { Sweep(/*is_persistent=*/false); }

TEST_P(ServeFaultTest, EveryOperationFailsFromEachOnwards) { Sweep(/*is_persistent=*/true); }

INSTANTIATE_TEST_SUITE_P(
    Faults, ServeFaultTest,
    ::testing::Values(SweepCase{"Eio", FaultKind::kEio, std::nullopt, false},
                      SweepCase{"Enospc", FaultKind::kEnospc, std::nullopt, false},
                      SweepCase{"Eintr", FaultKind::kInterrupted, std::nullopt, false},
                      SweepCase{"Short", FaultKind::kShort, std::nullopt, false},
                      SweepCase{"FlippedRead", FaultKind::kBitFlip, IoCall::kRead, true},
                      SweepCase{"FlippedWrite", FaultKind::kBitFlip, IoCall::kWrite, true},
                      SweepCase{"TornWrite", FaultKind::kTornWrite, IoCall::kWrite, true},
                      SweepCase{"SsdEio", FaultKind::kEio, std::nullopt, true},
                      SweepCase{"SsdFull", FaultKind::kEnospc, std::nullopt, true},
                      SweepCase{"SsdReadOnly", FaultKind::kErofs, std::nullopt, true}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace forebay::stream::serve_fault_test
