// CaseRun: runs one fault case with real processes and says what was wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fault/epoch_reader.h"
#include "tests/fault/fault_case.h"
#include "tests/fault/fault_rig.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::fault {

struct CaseReport {
  std::string skipped;                // why it cannot be run on this machine
  std::vector<std::string> problems;  // none: it passed
  std::uint64_t faults = 0;           // injected by gfs_emu, or damage done to the SSD
  double seconds = 0;
  std::string log;                    // the daemon's, where there are problems

  // Everything that a failing test should print.
  std::string Text() const;
};

// The course of a case (README.md): bring the daemon to the phase, inject, read the epoch that
// meets the faults, hold it against the expectation; then the faults end, and status and two
// more epochs must be as they should.
class CaseRun {
 public:
  explicit CaseRun(const FaultCase& fault_case);
  CaseReport Run();

 private:
  void MeetFaults();
  // After the faults.
  void Recover();

  // The phases; each returns what the reader that meets the faults got.
  EpochResult Catalogue();
  EpochResult Stage();
  EpochResult StreamFirstEpoch();
  EpochResult StreamStaged();
  EpochResult Evict();

  void LoseSsd();
  void HoldReads();
  void AwaitHeldReads();
  // Injects the faults; reads that are held go on.
  void Inject();
  std::uint64_t InjectIntoSsd(FaultKind kind);
  // What is to be seen while a request hangs; it is answered afterwards. No effect without one.
  void LookAtHang();
  void EndDaemonWhileItHangs();
  // Counts what gfs_emu injected since Inject, and lets all be well.
  void EndFaults();

  std::unique_ptr<EpochReader> StartReader(std::uint64_t pause_after = ~std::uint64_t{0});
  EpochResult ReadEpoch() { return StartReader()->Join(); }
  // Without `wait` the daemon begins, and this returns.
  void AskToStage(bool wait);
  v1::StatusReply AwaitIdle();
  v1::StatusReply StatusNow();

  void CheckFaultyEpoch(const EpochResult& result);
  void CheckWholeEpoch(const EpochResult& result, const std::string& which);
  // An epoch now, and whether status told the truth about it before. With `may_hide`, what is
  // staged may have been damaged since.
  void CheckStatusAndEpoch(const v1::StatusReply& status, const std::string& which,
                           bool may_hide);
  void Expect(bool holds, const std::string& what);

  const FaultCase case_;
  const std::chrono::seconds patience_;
  FaultRig rig_;
  CaseReport report_;
  bool was_interrupted_ = false;  // the daemon was ended under the reader
};

}  // namespace forebay::fault
