// Encodes and decodes node files. Decode compares the checksum first, which finds damage; the
// checks after it are for files that somebody else wrote with a right checksum.
#include "server/rendezvous/node_file.h"

#include <utility>

#include <fmt/format.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/rendezvous/launch_environment.h"

namespace forebay::rendezvous {
namespace {

constexpr std::uint64_t kMagic = 0x3153'4544'4F4E'4246;  // "FBNODES1"
constexpr std::size_t kSumBytes = sizeof(std::uint64_t);
constexpr std::size_t kRefusalBytesMax = 4096;
// An entry has at least its four numbers and a length for each of its six texts, besides the port.
constexpr std::size_t kEntryBytesMin = 4 + 8 + 8 + 6 + 4 + 2;

Error Damaged(std::string_view what) {
  return Error(ErrorCode::kDataLoss, fmt::format("a node file is damaged: {}", what));
}

// Numbers come before texts, so that a reader knows the first part without parsing lengths.
void EncodePlace(ByteWriter& writer, const NodeEntry& entry) {
  writer.Le<std::uint32_t>(entry.rank.value());
  writer.Le<std::uint64_t>(entry.nonce);
  writer.Le<std::uint64_t>(entry.capacity_bytes);
  writer.String(entry.place.job);
  writer.String(entry.place.host);
  writer.String(entry.place.ssd_directory);
  writer.Le<std::uint32_t>(static_cast<std::uint32_t>(entry.agreed.size()));
  for (const AgreedValue& agreed : entry.agreed) {
    writer.String(agreed.name);
    writer.String(agreed.value);
  }
}

void EncodeEntry(ByteWriter& writer, const NodeEntry& entry) {
  EncodePlace(writer, entry);
  writer.String(entry.identity.host);
  writer.String(entry.identity.ssd_directory);
  writer.String(entry.address.host);
  writer.Le<std::uint16_t>(entry.address.port);
}

// Returns the string, and sets `is_good` to false if it is empty.
std::string ReadName(ByteReader& reader, std::size_t bytes_max, bool& is_good) {
  const std::string_view text = reader.ReadString(bytes_max);
  is_good = is_good && !text.empty();
  return std::string(text);
}

// The name of a node of `job`.
NodeIdentity ReadIdentity(ByteReader& reader, std::string job, bool& is_good) {
  NodeIdentity identity{.job = std::move(job), .host = {}};
  // A list of hosts names a node "[address]:port", which is longer than a host's name.
  identity.host = ReadName(reader, limits::kHostNameBytesMax + 8, is_good);
  identity.ssd_directory = std::string(reader.ReadString(limits::kPathBytesMax));
  return identity;
}

Result<NodeEntry> DecodeEntry(ByteReader& reader) {
  NodeEntry entry;
  bool has_names = true;
  // A reader that has failed returns zeros and empty texts, so it is asked once, after the fields
  // that decide how much follows.
  entry.rank = NodeRank(reader.ReadLe<std::uint32_t>());
  entry.nonce = reader.ReadLe<std::uint64_t>();
  entry.capacity_bytes = reader.ReadLe<std::uint64_t>();
  const std::string job = ReadName(reader, limits::kJobIdBytesMax, has_names);
  entry.place = ReadIdentity(reader, job, has_names);
  const auto agreed_count = reader.ReadLe<std::uint32_t>();
  if (!reader.ok() || !has_names || agreed_count > limits::kAgreedValuesMax) {
    return Damaged("an entry is cut, or a text or list in it is empty or too long");
  }
  // The number was compared with its limit, and a cut file ends the reading at once.
  for (std::uint32_t i = 0; i < agreed_count; ++i) {
    AgreedValue agreed;
    agreed.name = ReadName(reader, limits::kNameBytesMax, has_names);
    agreed.value = std::string(reader.ReadString(limits::kNameBytesMax));
    entry.agreed.push_back(std::move(agreed));
  }
  entry.identity = ReadIdentity(reader, job, has_names);
  entry.address.host = ReadName(reader, limits::kHostNameBytesMax, has_names);
  entry.address.port = reader.ReadLe<std::uint16_t>();
  if (!reader.ok() || !has_names) {
    return Damaged("an agreed value, a node or its address is cut, or a name in it is empty");
  }
  // The job's id becomes part of a path, and the address is given to a resolver.
  const Status is_job = CheckJobId(job, "an entry");
  if (!is_job.has_value()) return Damaged(is_job.error().message());
  if (!IsHostName(entry.address.host) || entry.rank.value() >= limits::kNodeCountMax) {
    return Damaged("an address is not a host's name, or a rank is too large");
  }
  return entry;
}

bool IsKind(std::uint32_t kind) {
  return kind >= static_cast<std::uint32_t>(NodeFileKind::kAnswer) &&
         kind <= static_cast<std::uint32_t>(NodeFileKind::kRefused);
}

}  // namespace

std::vector<std::byte> Encode(const NodeFile& file) {
  ByteWriter writer;
  writer.Le<std::uint64_t>(kMagic);
  writer.Le<std::uint32_t>(kNodeFileVersion);
  writer.Le<std::uint32_t>(static_cast<std::uint32_t>(file.kind));
  writer.Le<std::uint64_t>(file.leader_nonce);
  writer.Le<std::uint32_t>(file.node_count);
  // A reason may quote texts of other nodes, so it is cut to what Decode accepts.
  writer.String(std::string_view(file.refusal).substr(0, kRefusalBytesMax));
  writer.Le<std::uint32_t>(static_cast<std::uint32_t>(file.nodes.size()));
  for (const NodeEntry& entry : file.nodes) EncodeEntry(writer, entry);
  writer.Le<std::uint64_t>(Checksum(writer.bytes()));
  return writer.Release();
}

Result<NodeFile> Decode(std::span<const std::byte> bytes) {
  if (bytes.size() > limits::kNodeFileBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("a node file has {} bytes, more than kNodeFileBytesMax ({})",
                             bytes.size(), limits::kNodeFileBytesMax));
  }
  ByteReader reader(bytes);
  const auto magic = reader.ReadLe<std::uint64_t>();
  const auto version = reader.ReadLe<std::uint32_t>();
  if (!reader.ok() || magic != kMagic) return Damaged("it does not begin with FBNODES1");
  // Before the checksum, whose place and kind another version may change.
  if (version != kNodeFileVersion) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("a node file has version {}, and this forebayd reads version {}: "
                             "start the same forebayd on all nodes",
                             version, kNodeFileVersion));
  }
  if (bytes.size() - reader.offset() < kSumBytes) return Damaged("it is cut");
  // Torn and rotten files end here. What follows is for files that were made wrong on purpose.
  const auto body = bytes.first(bytes.size() - kSumBytes);
  ByteReader sum(bytes.last(kSumBytes));
  if (sum.ReadLe<std::uint64_t>() != Checksum(body)) return Damaged("the checksum is wrong");

  NodeFile file;
  reader = ByteReader(body.subspan(reader.offset()));
  const auto kind = reader.ReadLe<std::uint32_t>();
  file.leader_nonce = reader.ReadLe<std::uint64_t>();
  file.node_count = reader.ReadLe<std::uint32_t>();
  file.refusal = std::string(reader.ReadString(kRefusalBytesMax));
  const auto count = reader.ReadLe<std::uint32_t>();
  // The memory for the entries is allocated only if the file is long enough for them.
  if (!reader.ok() || !IsKind(kind) || count > reader.remaining() / kEntryBytesMin) {
    return Damaged("its header is cut, or names a kind or a number of entries that cannot be");
  }
  file.kind = static_cast<NodeFileKind>(kind);
  file.nodes.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    FOREBAY_ASSIGN(NodeEntry entry, DecodeEntry(reader));
    file.nodes.push_back(std::move(entry));
  }
  // Otherwise two different files could mean the same list, and have different digests.
  if (reader.remaining() != 0) return Damaged("bytes follow its last entry");
  return file;
}

Status WriteNodeFile(io::Directory& directory, io::IoQueue& queue, const NodeFile& file,
                     const std::string& path, const std::string& temporary) {
  const std::vector<std::byte> bytes = Encode(file);
  if (bytes.size() > limits::kNodeFileBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("a list of {} bytes is larger than kNodeFileBytesMax ({})",
                             bytes.size(), limits::kNodeFileBytesMax));
  }
  // An attempt that failed may have left the file. If it cannot be removed, Open below fails and
  // says why.
  static_cast<void>(directory.Unlink(temporary));
  {
    FOREBAY_ASSIGN(const auto created, directory.Open(temporary, io::OpenMode::kCreate));
    FOREBAY_TRY(io::WriteFully(queue, *created, 0, bytes));
    // Before the rename, so that nobody finds a file without its bytes.
    FOREBAY_TRY(io::DataSync(queue, *created));
  }
  FOREBAY_TRY(directory.Rename(temporary, path));
  const std::size_t slash = path.rfind('/');
  return directory.Sync(slash == path.npos ? "" : path.substr(0, slash));
}

Result<std::optional<NodeFile>> ReadNodeFile(io::Directory& directory, io::IoQueue& queue,
                                             const std::string& path) {
  const auto file = directory.Open(path, io::OpenMode::kRead);
  if (!file.has_value()) {
    if (file.error().code() == ErrorCode::kNotFound) return std::nullopt;
    return file.error();
  }
  FOREBAY_ASSIGN(const io::FileInfo info, (*file)->Info());
  if (info.bytes > limits::kNodeFileBytesMax) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("{} bytes are more than kNodeFileBytesMax ({})", info.bytes,
                             limits::kNodeFileBytesMax));
  }
  // The file is not written after its rename, so it is as long as it says.
  std::vector<std::byte> bytes(info.bytes);
  FOREBAY_TRY(io::ReadFully(queue, **file, 0, bytes));
  FOREBAY_ASSIGN(NodeFile decoded, Decode(bytes));
  return std::optional(std::move(decoded));
}

std::uint64_t NodeListDigest(std::span<const NodeEntry> nodes) {
  ByteWriter writer;
  writer.Le<std::uint32_t>(static_cast<std::uint32_t>(nodes.size()));
  for (const NodeEntry& entry : nodes) EncodePlace(writer, entry);
  return Checksum(writer.bytes());
}

}  // namespace forebay::rendezvous
