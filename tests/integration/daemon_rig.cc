// The records of the data set follow from their ids, so a reader can check each byte without the
// file. All files of a rig lie in one folder, which goes with it; the nodes of a job share the
// configuration and the GFS, and differ in socket, state directory and SSD directory.
#include "tests/integration/daemon_rig.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "compress/encode/pack/pack_writer.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::integration {
namespace {

// The multiplier is 2^64 divided by the golden ratio: records of neighbouring ids differ
// everywhere.
std::uint64_t WordOf(std::uint64_t id, std::uint64_t index) {
  return (id + 1) * 0x9E3779B97F4A7C15ULL + index;
}

std::string BinaryRecord(std::uint64_t id) {
  std::string record(kRecordBytes, '\0');
  for (std::uint64_t i = 0; i < kRecordBytes / sizeof(std::uint64_t); ++i) {
    const std::uint64_t word = WordOf(id, i);
    std::memcpy(record.data() + i * sizeof(word), &word, sizeof(word));
  }
  return record;
}

// A word as 16 hexadecimal digits. Tests make millions of them, without optimisation: the C library
// needs a fraction of the time of fmt::format.
std::string HexWord(std::uint64_t word) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64, word);
  return digits;
}

// A record as text: as many bytes, which no line end is among. The file stays a text of lines, and
// records of all forms have one size.
std::string HexRecord(std::uint64_t id) {
  std::string record;
  for (std::uint64_t i = 0; record.size() < kRecordBytes; ++i) record += HexWord(WordOf(id, i));
  return record;
}

// The second version of a record is the first version of a record that no data set has.
constexpr std::uint64_t kSecondVersion = 1ULL << 40;

// Numbers of one length, so that the order of names is that of the records.
std::string NameOf(std::uint64_t file, RecordFiles files) {
  return std::to_string(100 + file) + (files == RecordFiles::kArchives ? ".tar" : ".jsonl");
}

// Records `first` to `end` - 1 in an archive, or as lines. Both versions of a record have
// one name.
std::string TextOf(RecordFiles files, std::uint64_t first, std::uint64_t end) {
  std::string text;
  for (std::uint64_t id = first; id < end; ++id) {
    if (files == RecordFiles::kArchives) {
      const std::string name = std::to_string(id % kSecondVersion) + ".bin";
      text += catalog::TarFileText(name, BinaryRecord(id));
    } else {
      text += HexRecord(id) + "\n";
    }
  }
  return files == RecordFiles::kArchives ? text + catalog::TarEndText() : text;
}

// Returns no names if there is no such folder: some tests look before the daemon has made it.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// Counts the samples of a batch, wherever its bytes lie: as spans of shared memory, one for each
// sample, or as one tensor. False if the batch cannot be read; a row with wrong bytes is counted,
// so that the test says how many there are.
bool Count(RawClient& client, const v1::Batch& batch, std::uint64_t first_record,
           std::set<std::uint64_t>& seen, EpochCounts& counts) {
  if (batch.fields_size() != 1) return false;
  const v1::FieldData& field = batch.fields(0);
  std::vector<std::span<const std::byte>> rows(batch.sample_count());
  if (field.spans().size() == rows.size() * sizeof(WireSpan)) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      WireSpan span;
      std::memcpy(&span, field.spans().data() + i * sizeof(span), sizeof(span));
      rows[i] = client.Bytes(span);
    }
  } else {
    WireSpan tensor;
    if (field.tensor().size() != sizeof(tensor)) return false;
    std::memcpy(&tensor, field.tensor().data(), sizeof(tensor));
    const std::span<const std::byte> bytes = client.Bytes(tensor);
    if (bytes.size() != rows.size() * kRecordBytes) return false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = bytes.subspan(i * kRecordBytes, kRecordBytes);
    }
  }
  for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
    std::uint64_t id = 0;
    std::memcpy(&id, batch.sample_ids().data() + i * sizeof(id), sizeof(id));
    seen.insert(id);
    ++counts.samples;
    const std::span<const std::byte> row = rows[i];
    if (IsRecord(first_record + id + kSecondVersion, row)) {
      ++counts.rewritten;
    } else if (!IsRecord(first_record + id, row)) {
      ++counts.wrong;
    }
    // Multiplied by an odd number that belongs to the id, so that two swapped rows change the sum.
    const std::uint64_t digest = Checksum(row) * (2 * id + 1);
    counts.content_digest += digest;
    counts.by_position[batch.first_position() + i] = digest;
  }
  return true;
}

}  // namespace

DaemonRig::DaemonRig(const RigOptions& options) : options_(options) {
  std::string pattern = "/tmp/fbiXXXXXX";  // short: a socket's path has 107 bytes
  folder_ = mkdtemp(pattern.data());
  pattern = "/dev/shm/fbiXXXXXX";
  const char* fast_folder = mkdtemp(pattern.data());
  fast_folder_ = fast_folder == nullptr ? folder_ : fast_folder;
  std::filesystem::create_directory(folder_ + "/gfs");
  std::filesystem::create_directory(folder_ + "/" + options.served);
  const std::string format = WriteFiles(gfs_path(), options.files, 0);
  // One file for all daemons of the rig: what differs between nodes is said on their command lines
  // (StartNode), as a launcher does it.
  std::ofstream config(folder_ + "/f.toml");
  config << "[daemon]\nsocket = \"" << socket_path() << "\"\nstate_dir = \"" << folder_
         << "/state\"\njob_id = \"job-1\"\n[tier.ram]\ncapacity = \"" << options.ram << "\"\n";
  if (options.ssd) {
    config << "[tier.ssd]\ndirectory = \"" << ssd_path() << "\"\ncapacity = \"256MiB\"\n";
  }
  config << "[slots]\ncapacity = \"32MiB\"\n[[dataset]]\nname = \"" << kDataset
         << "\"\npath = \"" << folder_ << "/" << options.served
         << "\"\n" << format << "extent = \"" << options.extent
         << "\"\npersist = true\ncopies = \"" << options.copies << "\"\ncompress = \""
         << options.compress << "\"\n";
  FOREBAY_CHECK(config.good());
}

// Writes the data set, and returns the lines of the configuration that describe it. A format
// without an index has several files, so that nodes can share the scan.
std::string DaemonRig::WriteFiles(const std::string& folder, RecordFiles files,
                                  std::uint64_t first_record) const {
  if (files == RecordFiles::kPack) {
    WritePack();
    return "format = \"pack\"\n";
  }
  if (files == RecordFiles::kFolder) {
    WriteFolder();
    return "format = \"image-folder\"\n";
  }
  if (files == RecordFiles::kOneFile) {
    std::ofstream data(folder + "/x.bin", std::ios::binary);
    for (std::uint64_t id = 0; id < options_.records; ++id) data << BinaryRecord(first_record + id);
    FOREBAY_CHECK(data.good());
    return "format = \"raw\"\nfiles = [\"x=x.bin\"]\nshape = [" + std::to_string(kRecordBytes) +
           "]\n";
  }
  FOREBAY_CHECK(options_.records % kScannedFiles == 0);
  for (std::uint64_t file = 0; file < kScannedFiles; ++file) {
    const std::uint64_t first = first_record + file * RecordsOfObject();
    std::ofstream data(folder + "/" + NameOf(file, files), std::ios::binary);
    data << TextOf(files, first, first + RecordsOfObject());
    FOREBAY_CHECK(data.good());
  }
  return files == RecordFiles::kArchives ? "format = \"tar\"\n" : "format = \"jsonl\"\n";
}

std::string DaemonRig::ObjectName(std::uint64_t file) const { return NameOf(file, options_.files); }

// Behind the records: zeros follow the end marker of an archive, and lines of spaces are no
// samples.
std::string DaemonRig::ObjectText(std::uint64_t file, bool is_rewritten,
                                  std::uint64_t more_bytes) const {
  const std::uint64_t first = file * RecordsOfObject() + (is_rewritten ? kSecondVersion : 0);
  std::string text = TextOf(options_.files, first, first + RecordsOfObject());
  return text.append(more_bytes, options_.files == RecordFiles::kArchives ? '\0' : ' ');
}

void DaemonRig::AddDataset(const std::string& name, RecordFiles files,
                           std::uint64_t first_record) const {
  const std::string folder = PathOfAdded(name);
  std::filesystem::create_directory(folder);
  const std::string format = WriteFiles(folder, files, first_record);
  std::ofstream config(folder_ + "/f.toml", std::ios::app);
  config << "[[dataset]]\nname = \"" << name << "\"\npath = \"" << folder << "\"\n" << format
         << "extent = \"" << options_.extent << "\"\npersist = true\n";
  FOREBAY_CHECK(config.good());
}

// Numbers of one length, so that the order of names is that of the records.
void DaemonRig::WriteFolder() const {
  const std::uint64_t records = (options_.records + kFolderClasses - 1) / kFolderClasses;
  for (std::uint64_t id = 0; id < options_.records; ++id) {
    const std::string folder = fmt::format("{}/gfs/class{}", folder_, id / records);
    std::filesystem::create_directory(folder);
    std::ofstream data(fmt::format("{}/{}", folder, 1'000'000 + id), std::ios::binary);
    data << BinaryRecord(id);
    FOREBAY_CHECK(data.good());
  }
}

// Writes the records as images in one pack. The rows of an image are the words of a record.
void DaemonRig::WritePack() const {
  compress::PackField field;
  // The same name and bytes as in the other forms, so that readers need not know the form.
  field.name = "x";
  field.kind = compress::FieldKind::kImage;
  field.dtype = Dtype::kU8;
  field.rank = 2;
  field.extent = field.tile = {kRecordBytes / sizeof(std::uint64_t), sizeof(std::uint64_t), 1, 1};
  compress::PackSchema schema;
  schema.fields = {field};
  auto writer = compress::PackWriter::Create(folder_ + "/gfs/x.fbp", schema,
                                             {.profile = compress::Profile::kFast});
  FOREBAY_CHECK(writer.has_value());
  for (std::uint64_t id = 0; id < options_.records; ++id) {
    const std::string record = BinaryRecord(id);
    const auto added = (*writer)->Add(std::array{std::as_bytes(std::span(record))}, /*key=*/"");
    FOREBAY_CHECK(added.has_value());
  }
  FOREBAY_CHECK((*writer)->Finish().has_value());
}

std::uint64_t DaemonRig::file_bytes(const std::string& added) const {
  std::uint64_t bytes = 0;
  const std::string folder = added.empty() ? gfs_path() : PathOfAdded(added);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += entry.file_size();
  }
  return bytes;
}

DaemonRig::~DaemonRig() {
  // A daemon that a test has killed may have left anything here.
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  std::filesystem::remove_all(fast_folder_, ignored);
}

std::unique_ptr<DaemonProcess> DaemonRig::Start(const std::vector<std::string>& more,
                                                bool wait) const {
  std::vector<std::string> arguments = {"--config", folder_ + "/f.toml"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  auto daemon = std::make_unique<DaemonProcess>(arguments, log_path());
  if (wait) FOREBAY_CHECK(!daemon->ready_line().empty());
  return daemon;
}

std::string DaemonRig::node_socket(std::uint32_t rank) const {
  return fast_folder_ + "/run" + std::to_string(rank) + "/s";
}

std::string DaemonRig::node_log(std::uint32_t rank) const {
  return fast_folder_ + "/log" + std::to_string(rank);
}

std::unique_ptr<DaemonProcess> DaemonRig::StartNode(std::uint32_t rank, std::uint32_t node_count,
                                                    const std::vector<std::string>& more,
                                                    const std::string& config,
                                                    int network) const {
  return StartNode({.machine = rank, .rank = rank, .node_count = node_count}, more, config,
                   network);
}

std::unique_ptr<DaemonProcess> DaemonRig::StartNode(const NodeStart& node,
                                                    const std::vector<std::string>& more,
                                                    const std::string& config,
                                                    int network) const {
  std::filesystem::create_directory(rendezvous_path());
  // Each node has what would lie on its own machine: a socket, a state directory and an SSD. A test
  // may override these words, because `more` comes behind them.
  std::vector<std::string> arguments = {
      "--config", folder_ + "/" + config, "--socket", node_socket(node.machine), "--set",
      "nodes.rendezvous=directory:" + rendezvous_path(), "--set", "peer.interface=lo", "--set",
      "daemon.state_dir=" + node_state(node.machine),
      // Tests count what is read from the GFS, and machines that build stand still for seconds.
      "--set", "nodes.late_ms=30000"};
  if (node.rank) {
    arguments.insert(arguments.end(), {"--node-rank", std::to_string(*node.rank), "--node-count",
                                       std::to_string(node.node_count)});
  }
  if (options_.ssd) {
    arguments.insert(arguments.end(), {"--set", "tier.ssd.directory=" + folder_ + "/ssd" +
                                                    std::to_string(node.machine)});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return std::make_unique<DaemonProcess>(arguments, node_log(node.machine), network);
}

std::uint64_t DaemonRig::SegmentCount() const {
  std::uint64_t count = 0;
  for (const std::string& name : NamesIn(ssd_path())) count += name.ends_with(".seg") ? 1 : 0;
  return count;
}

std::vector<std::string> DaemonRig::Leftovers() const {
  std::vector<std::string> left;
  for (const char* folder : {"/run", "/state", "/ssd"}) {
    // Segments, their manifest and saved catalogs are meant to stay.
    for (const std::string& name : NamesIn(folder_ + folder)) {
      const bool kept = name.ends_with(".seg") || name == "manifest" ||
                        (std::string_view(folder) == "/state" && name != "forebayd.lock" &&
                         name.find("tmp") == std::string::npos);
      if (!kept) left.push_back(std::string(folder) + "/" + name);
    }
  }
  return left;
}

void DaemonRig::WipeSsd() const {
  for (const std::string& name : NamesIn(ssd_path())) {
    std::filesystem::remove(ssd_path() + "/" + name);
  }
}

bool IsRecord(std::uint64_t id, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // Each record is looked at in all forms and versions. Of the others already the first word
  // differs, so that they need not be made.
  const std::uint64_t word = WordOf(id, 0);
  const std::string_view binary(reinterpret_cast<const char*>(&word), sizeof(word));
  return (text.starts_with(binary) && text == BinaryRecord(id)) ||
         (text.starts_with(HexWord(word)) && text == HexRecord(id));
}

EpochCounts ReadEpoch(RawClient& client, const std::string& stream_name, const OrderShape& shape,
                      const EpochPart& part) {
  EpochCounts counts;
  RawStream stream(client);
  v1::StreamRequest open = GoodOpen(client.Describe(part.dataset), part.global_batch, shape);
  open.mutable_open()->set_stream_name(stream_name);
  open.mutable_open()->set_ranks(part.ranks);
  open.mutable_open()->set_rank(part.rank);
  stream.Write(open);
  // A set of ids beside the count finds a sample that came twice in place of another one.
  std::set<std::uint64_t> seen;
  std::uint64_t next = part.first_step;
  std::uint64_t end = 0;
  std::uint64_t batches = 0;
  while (const auto reply = stream.Read()) {
    v1::StreamRequest request;
    auto wanted = static_cast<std::uint32_t>(reply->batches_size() + reply->errors_size());
    if (reply->has_opened()) {
      // The first pulls fill the credits. From then on each answer makes room for one more pull.
      end = std::min(reply->opened().steps_per_epoch(), part.end_step);
      wanted = open.open().credits();
    }
    for (const v1::Batch& batch : reply->batches()) {
      if (!Count(client, batch, part.first_record, seen, counts)) {
        counts.error = "a batch that cannot be read";
      }
      request.add_release(batch.id());
      if (part.after_batch) part.after_batch(++batches);
    }
    for (const v1::BatchError& error : reply->errors()) {
      counts.error = error.message();
      counts.errors.push_back(error);
    }
    if (reply->has_trailer()) {
      // The trailer is the last message: this end closes, and the call ends with its status.
      counts.trailer = reply->trailer().samples() == counts.samples;
      counts.trailer_checksum = reply->trailer().checksum();
      stream.HalfClose();
      continue;
    }
    for (; wanted > 0 && next < end; --wanted) {
      v1::Pull& pull = *request.add_pulls();
      pull.set_epoch(part.epoch);
      pull.set_first_step(next++);
      pull.set_step_count(1);
    }
    // `finish` comes once, with the last pull: a pull after it would be an error of the reader.
    request.set_finish(next == end && end > 0 && request.pulls_size() > 0);
    if (request.ByteSizeLong() > 0) stream.Write(request);
  }
  const grpc::Status status = stream.End();
  if (!status.ok()) counts.error = status.error_message();
  counts.distinct = seen.size();
  return counts;
}

v1::DatasetStatus AwaitStaged(RawClient& client, bool rebuild) {
  v1::StageRequest request;
  request.set_wait(true);
  request.set_rebuild(rebuild);
  const auto context = NewContext();
  const auto reader = client.admin().Stage(context.get(), request);
  v1::StageProgress progress;
  v1::DatasetStatus last;
  while (reader->Read(&progress)) last = progress.dataset();
  // The state of the data set says whether staging has failed, so the status of the call is not
  // needed.
  (void)reader->Finish().ok();
  return last;
}

}  // namespace forebay::integration
