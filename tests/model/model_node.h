// ModelNode: one node in memory: a GFS, an SSD and a state directory that fail apart, and the
// daemon's rooms over them, which live and die.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/io/testing/fault_injector.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/split_backend.h"
#include "server/stream/testing/serve_fixture.h"
#include "tests/model/sequence_plan.h"

namespace forebay::model {

// Not thread-safe, apart from the rooms.
class ModelNode {
 public:
  // `folder` is a directory of the machine that is this node's alone: saved catalogs are mapped
  // from there.
  ModelNode(const SequencePlan& plan, std::string folder);
  ~ModelNode() { Stop(); }

  // Begins a life. The rooms are there until Stop.
  Status Start();
  void Stop();
  // Between two lives: what was not synced is lost.
  void LosePower(const io::CrashOptions& options) { memory_.Crash(options); }
  // Between two lives.
  void RemoveState();
  // Inverts a bit of a file of the node's; false where there is no such file, or it is empty.
  bool FlipBit(const std::string& path, std::uint64_t draw);
  // What the state directory holds; for the next cataloguing to find.
  void BringStateToFolder();
  std::string state_path(std::string_view suffix) const;  // of the data set's saved files

  stream::ServeFixture& rooms() { return *rooms_; }
  io::IoBackend& backend() { return backend_; }  // through which the rooms work
  io::FaultInjector& faults(FaultPlace place);
  std::size_t open_file_count() const { return memory_.open_file_count(); }

  // --- the GFS, by another hand ---------------------------------------------------------------
  std::int64_t PutObject(const std::string& path, std::string_view bytes);  // its time
  void FlipObject(const std::string& path, std::uint64_t bit);
  void HideObject(const std::string& path);
  void ShowObject(const std::string& path);

  // --- the SSD, by another hand ---------------------------------------------------------------
  std::uint64_t FileBytes(const std::string& path) const;
  void TruncateFile(const std::string& path, std::uint64_t bytes);
  void RemoveFile(const std::string& path);
  void FillDisk(std::uint64_t spare_bytes);  // so much may still be written
  void FreeDisk();

 private:
  const SequencePlan& plan_;
  const std::string folder_;
  const std::string catalog_name_;
  io::MemoryBackend memory_;
  io::FaultInjector gfs_faults_, ssd_faults_, state_faults_, calm_;
  // One inside the other, because each knows two parts.
  stage::SplitBackend ssd_{memory_, "/ssd", ssd_faults_, calm_};
  stage::SplitBackend state_{ssd_, "/state", state_faults_, calm_};
  stage::SplitBackend backend_{state_, "/gfs", gfs_faults_, calm_};
  std::unique_ptr<io::Directory> catalogs_;
  std::unique_ptr<stream::ServeFixture> rooms_;
  std::vector<std::byte> brought_;  // the catalog in folder_
};

}  // namespace forebay::model
