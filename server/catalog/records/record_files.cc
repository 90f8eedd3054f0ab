// Catalogs of IDX, .npy and raw record files (dataset_builder.h).
#include <algorithm>

#include "proto/contract/limits.h"
#include "server/catalog/dataset_builder.h"
#include "server/catalog/input_error.h"
#include "server/catalog/records/record_header.h"
#include "server/catalog/storage/catalog_writer.h"

namespace forebay::catalog {
namespace {

struct RecordFile {
  std::string field;
  std::string path;
  io::FileInfo info;
  RecordHeader header;
};

Result<RecordHeader> ReadHeader(const BuildContext& context, io::IoQueue& queue, Format format,
                                const RecordFile& file) {
  FOREBAY_ASSIGN(const std::unique_ptr<io::File> opened,
                 context.root.Open(file.path, io::OpenMode::kRead));
  std::vector<std::byte> start(std::min(file.info.bytes, limits::kRecordHeaderBytesMax));
  const Status read = io::ReadFully(queue, *opened, 0, start);
  if (!read.has_value()) return read.error().WithContext(Quoted(file.path));
  const HeaderInput input{.path = file.path, .file_bytes = file.info.bytes, .start = start};
  return format == Format::kIdx ? ParseIdxHeader(input) : ParseNpyHeader(input);
}

// Raw files have no header of their own: configuration gives type and shape, the size n.
Result<RecordHeader> RawHeader(const DatasetSource& source, const RecordFile& file) {
  RecordHeader header;
  header.dtype = source.raw_dtype;
  header.shape = source.raw_shape;
  header.data_offset = source.raw_header_bytes;
  FieldSpec spec;
  spec.dtype = header.dtype;
  spec.shape = header.shape;
  if (!spec.is_fixed()) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(source.name) + ": raw records of type bytes need a shape");
  }
  const Result<std::uint64_t> bytes = spec.BytesPerSample();
  if (bytes.has_value() && *bytes > 0 && file.info.bytes > header.data_offset) {
    const std::uint64_t data_bytes = file.info.bytes - header.data_offset;
    header.sample_count = data_bytes / *bytes;
    if (data_bytes % *bytes != 0) {
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
  std::vector<FieldFile> named = context.source.files;
  if (named.empty()) {
    FOREBAY_ASSIGN(const std::vector<std::string> paths, FilesNamedLike(context.root, format));
    for (const std::string& path : paths) named.push_back({.field = "", .path = path});
  }
  if (named.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(context.source.name) + " has no " +
                     std::string(FormatName(format)) + " files; name them in its files");
  }
  if (named.size() > limits::kFieldCountMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "data set " + Quoted(context.source.name) + " has " +
                     std::to_string(named.size()) + " files, at most " +
                     std::to_string(limits::kFieldCountMax) +
                     " supply a field each (kFieldCountMax)");
  }
  std::vector<RecordFile> files;
  for (FieldFile& entry : named) {
    RecordFile file;
    file.field = entry.field.empty() ? DefaultFieldName(entry.path, format) : entry.field;
    file.path = std::move(entry.path);
    for (const RecordFile& other : files) {
      if (other.field != file.field) continue;
      return Error(ErrorCode::kInvalidArgument,
                   "field " + Quoted(file.field) + " is supplied by " + Quoted(other.path) +
                       " and by " + Quoted(file.path) + "; name the files in the configuration");
    }
    files.push_back(std::move(file));
  }
  return files;
}

Status ReadHeaders(const BuildContext& context, Format format, std::vector<RecordFile>& files) {
  FOREBAY_ASSIGN(const std::unique_ptr<io::IoQueue> queue,
                 context.backend.CreateQueue({.depth = 1}));
  std::uint64_t seen = 0;
  for (RecordFile& file : files) {
    FOREBAY_ASSIGN(file.info, context.root.Stat(file.path));
    if (!file.info.is_regular) return NotAFile(file.path);
    if (format == Format::kRaw) {
      FOREBAY_ASSIGN(file.header, RawHeader(context.source, file));
    } else {
      FOREBAY_ASSIGN(file.header, ReadHeader(context, *queue, format, file));
    }
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

}  // namespace

Result<std::shared_ptr<const Catalog>> BuildRecordFiles(const BuildContext& context,
                                                        Format format) {
  FOREBAY_ASSIGN(std::vector<RecordFile> files, ListFiles(context, format));
  FOREBAY_TRY(ReadHeaders(context, format, files));
  MemorySink sink;
  CatalogWriter writer(sink, context.source.name, format);
  std::vector<FieldPlan> fields;
  const std::uint64_t sample_count = files.front().header.sample_count;
  for (const RecordFile& file : files) {
    FOREBAY_TRY(writer.AddObject(file.path, file.info.bytes, file.info.mtime_ns));
    FieldPlan field;
    FOREBAY_ASSIGN(field.part,
                   writer.AddFixedPart(sample_count, file.header.data_offset,
                                       file.header.record_bytes, context.source.extent_bytes));
    field.spec.name = file.field;
    field.spec.dtype = file.header.dtype;
    field.spec.big_endian = file.header.big_endian;
    field.spec.shape = file.header.shape;
    fields.push_back(std::move(field));
  }
  FOREBAY_TRY(writer.Finish(sample_count, fields));
  return Catalog::FromBytes(sink.Release());
}

}  // namespace forebay::catalog
