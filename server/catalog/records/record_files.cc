// The drivers of formats idx, npy and raw: every file is a part of fixed-size records and supplies
// one field of every sample. Only headers are read. All files must have the same number of records,
// because record i of each file belongs to sample i.
#include <algorithm>
#include <array>
#include <optional>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/input_error.h"
#include "server/catalog/records/record_header.h"
#include "server/catalog/storage/catalog_writer.h"

namespace forebay::catalog {
namespace {

// Returns the position of "-idx" or ".idx" followed by a digit, as in "labels-idx1-ubyte". MNIST
// files have no extension, so this tag is what they are detected by.
std::optional<std::size_t> FindIdxTag(std::string_view name) {
  // From 1, because a tag at the start would leave no name before it.
  for (std::size_t at = 1; at + 4 < name.size(); ++at) {
    const char digit = name[at + 4];
    if ((name[at] == '-' || name[at] == '.') && name.substr(at + 1, 3) == "idx" &&
        digit >= '0' && digit <= '9') {
      return at;
    }
  }
  return std::nullopt;
}

bool IsIdxName(std::string_view name) {
  // A compressed file is left out, because its bytes are no records. If it is named in the key
  // `files`, ParseIdxHeader refuses it and says why.
  return name.ends_with(".idx") || (FindIdxTag(name).has_value() && !name.ends_with(".gz"));
}

bool IsNpyName(std::string_view name) { return name.ends_with(".npy"); }

// Returns the name of the field that a file supplies if the configuration does not name it: the
// file name without its extension, or the word before "-idx" in names like
// "train-images-idx3-ubyte".
std::string DefaultFieldName(std::string_view path, Format format) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (format == Format::kIdx) {
    const std::optional<std::size_t> tag = FindIdxTag(name);
    if (tag.has_value()) {
      name = name.substr(0, *tag);
      return std::string(name.substr(name.rfind('-') + 1));
    }
  }
  // A hidden name such as ".npy" has its only dot at the start; the name is the whole of it then,
  // because a field needs one.
  const std::size_t dot = name.rfind('.');
  return std::string(dot == 0 ? name : name.substr(0, dot));
}

// --- settings --------------------------------------------------------------------------------

// A file that configuration names, and the field that it supplies.
struct FieldFile {
  std::string field;  // empty: the file was found by its name; DefaultFieldName gives the field
  std::string path;   // beneath the data set's root
};

Result<std::vector<FieldFile>> ParseFieldFiles(const SettingValue& value) {
  FOREBAY_ASSIGN(const std::vector<std::string> texts, value.Texts());
  std::vector<FieldFile> files;
  for (const std::string& text : texts) {
    // The first '=' separates: a path may contain others, the name of a field may not.
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return Error(ErrorCode::kInvalidArgument, "'" + text + "' is not field=path");
    }
    files.push_back({.field = text.substr(0, equals), .path = text.substr(equals + 1)});
  }
  return files;
}

Result<Dtype> ParseRawDtype(const SettingValue& value) {
  FOREBAY_ASSIGN(const std::string name, value.Text());
  return ParseDtype(name);
}

Result<std::vector<std::uint64_t>> ParseRawShape(const SettingValue& value) {
  FOREBAY_ASSIGN(std::vector<std::uint64_t> shape, value.Dimensions());
  // The limit is checked here too, so that a wrong configuration is an error at the daemon's start
  // and not when the data set is catalogued.
  if (shape.size() <= limits::kDimensionCountMax) return shape;
  return Error(ErrorCode::kInvalidArgument, "too many dimensions");
}

Result<std::uint64_t> ParseRawHeader(const SettingValue& value) { return value.Bytes(); }

// The layout of raw files, as their data set's configuration gives it.
struct RawRecords {
  Dtype dtype = Dtype::kU8;
  std::vector<std::uint64_t> shape;
  std::uint64_t header_bytes = 0;  // of each file, before its first record
};

Result<RawRecords> RawRecordsOf(const DatasetSource& source) {
  RawRecords records;
  FOREBAY_ASSIGN(records.dtype, SettingOf<&ParseRawDtype>(source, "dtype", records.dtype));
  FOREBAY_ASSIGN(records.shape, SettingOf<&ParseRawShape>(source, "shape", records.shape));
  FOREBAY_ASSIGN(records.header_bytes,
                 SettingOf<&ParseRawHeader>(source, "header", records.header_bytes));
  return records;
}

// --- files -----------------------------------------------------------------------------------

struct RecordFile {
  std::string field;
  std::string path;
  io::FileInfo info;
  RecordHeader header;
};

// Reads the start of a file and parses its header.
Result<RecordHeader> ReadHeader(const BuildContext& context, io::IoQueue& queue, Format format,
                                const RecordFile& file) {
  FOREBAY_ASSIGN(const std::unique_ptr<io::File> opened,
                 context.root.Open(file.path, io::OpenMode::kRead));
  // Enough for every header that the parsers accept; one read, because the file is on the GFS.
  std::vector<std::byte> start(std::min(file.info.bytes, limits::kRecordHeaderBytesMax));
  const Status read = io::ReadFully(queue, *opened, 0, start);
  if (!read.has_value()) return read.error().WithContext(Quoted(file.path));
  const HeaderInput input{.path = file.path, .file_bytes = file.info.bytes, .start = start};
  return format == Format::kIdx ? ParseIdxHeader(input) : ParseNpyHeader(input);
}

// Makes the header of a raw file, which has none: the configuration gives element type and shape,
// and the file's size gives the number of records.
Result<RecordHeader> RawHeader(const DatasetSource& source, const RecordFile& file) {
  // Parsed once per file, of which there are at most kFieldCountMax.
  FOREBAY_ASSIGN(const RawRecords records, RawRecordsOf(source));
  RecordHeader header;
  header.dtype = records.dtype;
  header.shape = records.shape;
  header.data_offset = records.header_bytes;
  FieldSpec spec;
  spec.dtype = header.dtype;
  spec.shape = header.shape;
  // dtype "bytes" without a shape means samples of any length, which raw files cannot have.
  if (!spec.is_fixed()) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(source.name) +
                     ": raw records of type bytes need a shape; set the key 'shape'");
  }
  // If one of these conditions fails, the number of samples stays 0, and FitRecords below refuses
  // the file.
  const Result<std::uint64_t> bytes = spec.BytesPerSample();
  if (bytes.has_value() && *bytes > 0 && file.info.bytes > header.data_offset) {
    const std::uint64_t data_bytes = file.info.bytes - header.data_offset;
    header.sample_count = data_bytes / *bytes;
    if (data_bytes % *bytes != 0) {
      // The last record is incomplete: the shape is wrong, or the file is truncated.
      return InputError(ErrorCode::kDataLoss, file.path,
                        header.data_offset + header.sample_count * *bytes,
                        "the file ends within a record of " + std::to_string(*bytes) +
                            " bytes");
    }
  }
  FOREBAY_TRY(FitRecords({.path = file.path, .file_bytes = file.info.bytes, .start = {}}, header));
  return header;
}

Result<std::vector<RecordFile>> ListFiles(const BuildContext& context, Format format) {
  FOREBAY_ASSIGN(std::vector<FieldFile> named,
                 SettingOf<&ParseFieldFiles>(context.source, "files", std::vector<FieldFile>()));
  // Raw files must be named: neither their names nor their bytes tell that they are data.
  if (named.empty() && format != Format::kRaw) {
    FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> top, context.root.List(""));
    FOREBAY_ASSIGN(const std::vector<std::string> paths,
                   FilesNamedLike(top, format == Format::kIdx ? IsIdxName : IsNpyName));
    // Sorted by name, so part and field numbers do not depend on the directory's order.
    for (const std::string& path : paths) named.push_back({.field = "", .path = path});
  }
  if (named.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(context.source.name) + " has no " +
                     std::string(FormatName(format)) + " files; name them in its key 'files'");
  }
  // Checked before the files are opened: a folder of a million .npy files is another format, or not
  // one data set.
  if (named.size() > limits::kFieldCountMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "data set " + Quoted(context.source.name) + " has " +
                     std::to_string(named.size()) + " files, of which each supplies a field; " +
                     "at most " + std::to_string(limits::kFieldCountMax) +
                     " fields are allowed (kFieldCountMax)");
  }
  std::vector<RecordFile> files;
  for (FieldFile& entry : named) {
    RecordFile file;
    file.field = entry.field.empty() ? DefaultFieldName(entry.path, format) : entry.field;
    file.path = std::move(entry.path);
    // Two files can get the same default name, such as the train and test files of MNIST.
    for (const RecordFile& other : files) {
      if (other.field != file.field) continue;
      return Error(ErrorCode::kInvalidArgument,
                   "field " + Quoted(file.field) + " is supplied by " + Quoted(other.path) +
                       " and by " + Quoted(file.path) + "; name the files in the key 'files'");
    }
    files.push_back(std::move(file));
  }
  return files;
}

// Fills size and header of each file, and checks that all have the same number of records.
Status ReadHeaders(const BuildContext& context, Format format, std::vector<RecordFile>& files) {
  // One header at a time, because there are few files and each is read once.
  FOREBAY_ASSIGN(const std::unique_ptr<io::IoQueue> queue,
                 context.backend.CreateQueue({.depth = 1}));
  std::uint64_t seen = 0;
  for (RecordFile& file : files) {
    // Size and time are taken before the header is read. If the file changes in between, the header
    // does not fit its size, or reading the extent finds the other time.
    FOREBAY_ASSIGN(file.info, context.root.Stat(file.path));
    if (!file.info.is_regular) return NotAFile(file.path);
    if (format == Format::kRaw) {
      FOREBAY_ASSIGN(file.header, RawHeader(context.source, file));
    } else {
      FOREBAY_ASSIGN(file.header, ReadHeader(context, *queue, format, file));
    }
    // A pair of files from two different data sets is noticed here at the latest.
    if (file.header.sample_count != files.front().header.sample_count) {
      return Error(ErrorCode::kInvalidArgument,
                   Quoted(file.path) + " has " + std::to_string(file.header.sample_count) +
                       " records, " + Quoted(files.front().path) + " has " +
                       std::to_string(files.front().header.sample_count));
    }
    if (context.progress) context.progress(++seen);
  }
  return {};
}

Result<std::shared_ptr<const Catalog>> BuildRecordFiles(const BuildContext& context,
                                                        Format format) {
  FOREBAY_ASSIGN(std::vector<RecordFile> files, ListFiles(context, format));
  FOREBAY_TRY(ReadHeaders(context, format, files));
  // Without bytes per sample, the image is at most a few MB, so it is built in memory.
  MemorySink sink;
  CatalogWriter writer(sink, context.source.name, format);
  std::vector<FieldPlan> fields;
  const std::uint64_t sample_count = files.front().header.sample_count;
  for (const RecordFile& file : files) {
    // Object i, part i and field i belong to one file: a fixed part reads the object that was added
    // last, and the image's checker demands that it supplies the field of its number.
    FOREBAY_TRY(writer.AddObject(file.path, file.info.bytes, file.info.mtime_ns));
    FieldPlan field;
    FOREBAY_ASSIGN(field.part,
                   writer.AddFixedPart(sample_count, file.header.data_offset,
                                       file.header.record_bytes, context.source.extent_bytes));
    field.spec.name = file.field;
    field.spec.dtype = file.header.dtype;
    // Bytes are delivered as they lie in the file, so the reader is told their order.
    field.spec.big_endian = file.header.big_endian;
    field.spec.shape = file.header.shape;
    fields.push_back(std::move(field));
  }
  FOREBAY_TRY(writer.Finish(sample_count, fields));
  return Catalog::FromBytes(sink.Release());
}

// --- keys ------------------------------------------------------------------------------------

// The functions below append what tells two settings apart (FormatKey::identify). Saved catalogs
// are found by these bytes, so their form must not change. FormatKey::check has refused values that
// cannot be parsed; here they count as the default.
void IdentifyFieldFiles(const SettingValue* value, ByteWriter& writer) {
  std::vector<FieldFile> files;
  if (value != nullptr) files = ParseFieldFiles(*value).value_or(files);
  writer.Varint(files.size());
  for (const FieldFile& file : files) {
    writer.String(file.field);
    writer.String(file.path);
  }
}

void IdentifyDtype(const SettingValue* value, ByteWriter& writer) {
  Dtype dtype = RawRecords().dtype;
  if (value != nullptr) dtype = ParseRawDtype(*value).value_or(dtype);
  writer.Le<std::uint8_t>(static_cast<std::uint8_t>(dtype));
}

void IdentifyShape(const SettingValue* value, ByteWriter& writer) {
  std::vector<std::uint64_t> shape;
  if (value != nullptr) shape = ParseRawShape(*value).value_or(shape);
  writer.Varint(shape.size());
  for (const std::uint64_t dimension : shape) writer.Varint(dimension);
}

void IdentifyHeader(const SettingValue* value, ByteWriter& writer) {
  std::uint64_t bytes = 0;
  if (value != nullptr) bytes = ParseRawHeader(*value).value_or(bytes);
  writer.Varint(bytes);
}

constexpr FormatKey kFilesKey = {.name = "files",
                                 .default_text = "(found)",
                                 .help = "list of \"field=path\"; path: a file beneath the root",
                                 .check = CheckBy<&ParseFieldFiles>,
                                 .identify = IdentifyFieldFiles};
constexpr std::array kHeadedKeys = {kFilesKey};
constexpr auto kRawKeys = std::to_array<FormatKey>({
    kFilesKey,
    {.name = "dtype",
     .default_text = "u8",
     .help = "element type of a record",
     .check = CheckBy<&ParseRawDtype>,
     .identify = IdentifyDtype},
    {.name = "shape",
     .default_text = "(required for raw)",
     .help = "elements of a record, for example [28, 28]",
     .check = CheckBy<&ParseRawShape>,
     .identify = IdentifyShape},
    {.name = "header",
     .default_text = "0",
     .help = "bytes before the first record of each file",
     .check = CheckBy<&ParseRawHeader>,
     .identify = IdentifyHeader},
});

// Only raw needs a check of all keys together: its records have no header that could give the
// shape.
Status CheckRaw(const DatasetSource& source) {
  if (source.settings.Find("shape") != nullptr) return {};
  return KeyError("shape", "data set '" + source.name + "' has format raw, which requires it");
}

template <bool (*kIsNamedLike)(std::string_view)>
Result<bool> HasFile(std::span<const io::DirectoryEntry> top) {
  FOREBAY_ASSIGN(const std::vector<std::string> names, FilesNamedLike(top, kIsNamedLike));
  return !names.empty();
}

template <Format kFormat>
Result<std::shared_ptr<const Catalog>> Build(const BuildContext& context) {
  return BuildRecordFiles(context, kFormat);
}

}  // namespace

constinit const FormatDriver kIdxDriver = {
    .format = Format::kIdx,
    .name = "idx",
    .detected_by = "IDX files",
    .keys = kHeadedKeys,
    .detect = HasFile<IsIdxName>,
    .build = Build<Format::kIdx>,
};

constinit const FormatDriver kNpyDriver = {
    .format = Format::kNpy,
    .name = "npy",
    .detected_by = "*.npy",
    .keys = kHeadedKeys,
    .detect = HasFile<IsNpyName>,
    .build = Build<Format::kNpy>,
};

constinit const FormatDriver kRawDriver = {
    .format = Format::kRaw,
    .name = "raw",
    .keys = kRawKeys,
    .check = CheckRaw,
    .build = Build<Format::kRaw>,
};

}  // namespace forebay::catalog
