// DaemonRig: a folder with a data set that plays the GFS, and forebayd processes over it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/daemon_process.h"
#include "tests/integration/raw_client.h"

namespace forebay::integration {

inline constexpr std::uint64_t kRecordBytes = 4096;
inline constexpr const char* kDataset = "records";

// How the records lie on the GFS.
enum class RecordFiles : std::uint8_t {
  kOneFile,   // one after another
  kArchives,  // as members of kScannedFiles tar archives
  kLines,     // in hexadecimal, as lines of kScannedFiles files
  kPack,      // in one pack
  kFolder,    // a file each, in kFolderClasses class folders
};
inline constexpr std::uint64_t kScannedFiles = 32;
inline constexpr std::uint64_t kFolderClasses = 4;

struct RigOptions {
  std::uint64_t records = 4096;   // 16 MiB
  RecordFiles files = RecordFiles::kOneFile;
  std::string extent = "1MiB";
  std::string ram = "64MiB";
  bool ssd = true;                // with persist: every extent is written to SSD too
  std::string copies = "0";       // of a job of several nodes
  std::string compress = "off";   // at staging
  // The folder, beside the data's own "gfs", that the daemon is told of: where a test mounts that.
  std::string served = "gfs";
};

// A node of a job. `machine` chooses its socket, its log, its state directory and its SSD.
struct NodeStart {
  std::uint32_t machine = 0;
  std::optional<std::uint32_t> rank = 0;  // none: it is not told, nor how many nodes there are
  std::uint32_t node_count = 1;
};

// What an epoch brought.
struct EpochCounts {
  std::uint64_t samples = 0;
  std::uint64_t distinct = 0;
  std::uint64_t wrong = 0;   // records whose bytes are not those of their id, in neither version
  std::uint64_t rewritten = 0;  // records in their second version (DaemonRig::ObjectText)
  bool trailer = false;      // and its counts agree
  std::uint64_t trailer_checksum = 0;
  std::uint64_t content_digest = 0;  // of ids and bytes, whatever their order
  std::map<std::uint64_t, std::uint64_t> by_position;  // such a digest of each sample
  std::string error;                     // the last one
  std::vector<v1::BatchError> errors;    // of batches
};

class DaemonRig {
 public:
  explicit DaemonRig(const RigOptions& options = {});
  ~DaemonRig();

  // Starts a daemon; waits for its READY line unless told not to.
  std::unique_ptr<DaemonProcess> Start(const std::vector<std::string>& more = {},
                                       bool wait = true) const;
  // Starts the daemon of one node of a job of `node_count` nodes, which find each other in a
  // directory. Each has a machine of its own with the number of its rank, and all listen on the
  // loopback interface unless `more` says otherwise. `network` as for DaemonProcess.
  std::unique_ptr<DaemonProcess> StartNode(std::uint32_t rank, std::uint32_t node_count,
                                           const std::vector<std::string>& more = {},
                                           const std::string& config = "f.toml",
                                           int network = -1) const;
  // Starts the daemon on the machine `node.machine`, whose folders another daemon may have used
  // before under another rank.
  std::unique_ptr<DaemonProcess> StartNode(const NodeStart& node,
                                           const std::vector<std::string>& more = {},
                                           const std::string& config = "f.toml",
                                           int network = -1) const;
  // What a node has beside its SSD lies here, in memory where the machine has /dev/shm: a disk that
  // stalls for seconds in a sync must not make one node take another one for dead.
  std::string nodes_folder() const { return fast_folder_; }
  std::string node_socket(std::uint32_t rank) const;
  std::string node_log(std::uint32_t rank) const;
  std::string rendezvous_path() const { return fast_folder_ + "/rendezvous"; }
  std::string node_state(std::uint32_t rank) const {
    return fast_folder_ + "/state" + std::to_string(rank);
  }
  std::string folder() const { return folder_; }
  std::string socket_path() const { return folder_ + "/run/s"; }
  std::string ssd_path() const { return folder_ + "/ssd"; }
  std::string log() const { return ReadText(log_path()); }
  std::string log_path() const { return folder_ + "/log"; }
  std::uint64_t dataset_bytes() const { return options_.records * kRecordBytes; }
  // Of all files of the data set on the GFS, or of one that was added.
  std::uint64_t file_bytes(const std::string& added = "") const;
  std::string gfs_path() const { return folder_ + "/gfs"; }
  // Of kArchives and kLines: the name of a file, and its text, with the second versions of its
  // records if `is_rewritten`, and `more_bytes` (whole blocks of 512) in which no sample is.
  std::string ObjectName(std::uint64_t file) const;
  std::string ObjectText(std::uint64_t file, bool is_rewritten = false,
                         std::uint64_t more_bytes = 0) const;
  std::uint64_t RecordsOfObject() const { return options_.records / kScannedFiles; }
  // Adds another data set to the configuration. It has as many records as the first one; its sample
  // 0 is record `first_record`.
  void AddDataset(const std::string& name, RecordFiles files, std::uint64_t first_record) const;

  // Published segments on the SSD now.
  std::uint64_t SegmentCount() const;
  // Files that only exist while something is being written, and what a daemon holds.
  std::vector<std::string> Leftovers() const;
  // Empties the SSD directory, between daemons.
  void WipeSsd() const;

 private:
  // Writes the files to `folder`, and returns what the configuration says about their format.
  std::string WriteFiles(const std::string& folder, RecordFiles files,
                         std::uint64_t first_record) const;
  void WriteFolder() const;
  void WritePack() const;
  std::string PathOfAdded(const std::string& dataset) const { return folder_ + "/gfs-" + dataset; }

  RigOptions options_;
  std::string folder_;
  std::string fast_folder_;
};

// True where `bytes` are those of record `id`, in any of the forms of RecordFiles.
bool IsRecord(std::uint64_t id, std::span<const std::byte> bytes);
// Which part of which epoch: one rank's share of some steps.
struct EpochPart {
  std::uint32_t epoch = 0;
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  std::uint32_t global_batch = 64;
  std::uint64_t first_step = 0;
  std::uint64_t end_step = std::numeric_limits<std::uint64_t>::max();  // or the epoch's end
  // Called after every batch, with the number of batches so far.
  std::function<void(std::uint64_t)> after_batch = {};
  std::string dataset = kDataset;
  std::uint64_t first_record = 0;  // that is sample 0 of the data set
};
// Reads it in batches over a stream of its own and checks every byte.
EpochCounts ReadEpoch(RawClient& client, const std::string& stream_name = "train",
                      const OrderShape& shape = {}, const EpochPart& part = {});
// Stages, or rebuilds, and waits until that has ended; the data set's status then.
v1::DatasetStatus AwaitStaged(RawClient& client, bool rebuild = false);

}  // namespace forebay::integration
