// The driver of format image-folder: directories at the top of the root are classes, the files
// beneath them are samples. One walk in the order of names gives objects, samples and extents at
// once, because sample i is object i. The walk collects paths in batches, and asks ObjectStats for
// the sizes of a few batches at a time while it goes on; files are added in the order of the walk.
// Consecutive files fill an extent (a run); a file that is larger than an extent gets a chain of
// its own.
#include <algorithm>
#include <array>
#include <deque>
#include <future>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/input_error.h"
#include "server/catalog/object_stats.h"
#include "server/catalog/storage/catalog_image.h"
#include "server/catalog/storage/catalog_writer.h"

namespace forebay::catalog {
namespace {

Result<std::vector<std::string>> ParseSuffixes(const SettingValue& value) { return value.Texts(); }

// Saved catalogs are found by these bytes, so their form must not change (FormatKey::identify).
void IdentifySuffixes(const SettingValue* value, ByteWriter& writer) {
  std::vector<std::string> suffixes;
  if (value != nullptr) suffixes = value->Texts().value_or(suffixes);
  writer.Varint(suffixes.size());
  for (const std::string& suffix : suffixes) writer.String(suffix);
}

constexpr auto kFolderKeys = std::to_array<FormatKey>({
    {.name = "suffixes",
     .default_text = "[]",
     .help = "file suffixes that are samples; empty: all",
     .check = CheckBy<&ParseSuffixes>,
     .identify = IdentifySuffixes},
});

void AppendWord(std::vector<std::byte>& bytes, std::uint32_t word) {
  const auto raw = std::as_bytes(std::span(&word, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// Walks the class directories and writes objects and extents while it walks. Used once.
class ImageFolderBuilder {
 public:
  ImageFolderBuilder(const BuildContext& context, std::vector<std::string> suffixes)
      : context_(context),
        suffixes_(std::move(suffixes)),
        sink_(context.scratch),
        writer_(sink_, context.source.name, Format::kImageFolder, context.scratch) {}

  Result<std::shared_ptr<const Catalog>> Build();

 private:
  // Files of the walk, whose sizes are asked for together. A batch may span directories, so trees
  // of small directories take no more batches than a large directory.
  struct Batch {
    std::vector<std::string> paths;
    std::vector<std::uint32_t> labels;  // one per path
    std::size_t path_bytes = 0;
    std::future<StatOutcome> outcome;
  };

  Status AddClasses(std::span<const io::DirectoryEntry> top);
  Status AddTree(const std::string& directory, std::size_t depth);
  Status Collect(std::string path);
  Status AskForBatch();
  Status AddOldestBatch();
  Status AddBatches();
  Status AddFile(const std::string& path, std::uint32_t label, const io::FileInfo& info);
  Status AddLargeFile(std::uint64_t bytes);
  Status CutRun();
  void AnnounceRun(const ExtentRow& row);
  bool IsSample(std::string_view name) const;

  const BuildContext& context_;
  const std::vector<std::string> suffixes_;  // of files that are samples; empty: every file
  TableSpool sink_;
  CatalogWriter writer_;
  std::vector<std::string> classes_;
  Batch collected_;  // not asked for yet
  bool has_failed_ = false;  // a file could not be added
  std::uint64_t sample_count_ = 0;
  // The run: whole files that the next extent will hold.
  std::uint64_t run_bytes_ = 0;
  std::uint32_t run_count_ = 0;
  std::vector<std::byte> entries_;      // the sample page of the next extent
  std::vector<std::string> run_paths_;  // filled only if the caller wants to know of runs
  std::vector<ObjectInfo> run_objects_;
  std::uint32_t extent_count_ = 0;
  // Last: its threads use the paths, and its destructor waits for them.
  std::deque<Batch> asked_for_;
};

// Suffixes are compared byte by byte: ".jpg" does not match "A.JPG".
bool ImageFolderBuilder::IsSample(std::string_view name) const {
  return suffixes_.empty() ||
         std::ranges::any_of(suffixes_,
                             [&](const std::string& suffix) { return name.ends_with(suffix); });
}

// Makes an extent of the run.
Status ImageFolderBuilder::CutRun() {
  if (run_count_ == 0) return {};
  ExtentRow row;
  row.first_sample = sample_count_ - run_count_;
  row.first_object = static_cast<std::uint32_t>(row.first_sample);
  row.object_count = run_count_;
  row.sample_count = run_count_;
  row.starting_count = run_count_;
  row.bytes = static_cast<std::uint32_t>(run_bytes_);
  // The row goes to the writer before it is announced: if the writer refuses it, nobody has begun
  // to stage an extent that no catalog will have.
  FOREBAY_TRY(writer_.AddExtent(row, entries_, {}));
  AnnounceRun(row);
  ++extent_count_;
  entries_.clear();
  run_bytes_ = 0;
  run_count_ = 0;
  return {};
}

// Tells the caller about an extent while the walk goes on. A walk over 10^6 files takes minutes,
// and staging need not wait for it.
void ImageFolderBuilder::AnnounceRun(const ExtentRow& row) {
  if (!context_.runs) return;
  // Set here and not when a path is added: growing run_paths_ would move the strings.
  for (std::size_t i = 0; i < run_paths_.size(); ++i) run_objects_[i].path = run_paths_[i];
  ExtentInfo info;
  info.first_object = ObjectId(row.first_object);
  info.object_count = row.object_count;
  info.bytes = row.bytes;
  info.first_sample = SampleId(row.first_sample);
  info.sample_count = row.sample_count;
  context_.runs(ExtentId(extent_count_), info, run_objects_);
  run_paths_.clear();
  run_objects_.clear();
}

// Gives the file that was added last a chain of extents. Only the first has a page, which lists the
// sample; the others continue it.
Status ImageFolderBuilder::AddLargeFile(std::uint64_t bytes) {
  const std::uint64_t extent_bytes = context_.source.extent_bytes;
  for (std::uint64_t offset = 0; offset < bytes; offset += extent_bytes) {
    ExtentRow row;
    row.first_sample = sample_count_ - 1;
    row.first_object = static_cast<std::uint32_t>(row.first_sample);
    row.object_offset = offset;
    row.sample_count = 1;
    row.starting_count = offset == 0 ? 1 : 0;
    row.bytes = static_cast<std::uint32_t>(std::min(extent_bytes, bytes - offset));
    FOREBAY_TRY(writer_.AddExtent(row, offset == 0 ? entries_ : std::vector<std::byte>(), {}));
    ++extent_count_;
  }
  entries_.clear();
  return {};
}

// Takes the next file of the walk. The bounds of a batch also bound the memory of a directory with
// millions of files.
Status ImageFolderBuilder::Collect(std::string path) {
  const bool is_full = collected_.paths.size() >= context_.stats.paths_in_batch() ||
                       collected_.path_bytes + path.size() > limits::kStatPathBytesMax;
  if (is_full) FOREBAY_TRY(AskForBatch());
  collected_.path_bytes += path.size();
  collected_.paths.push_back(std::move(path));
  collected_.labels.push_back(static_cast<std::uint32_t>(classes_.size() - 1));
  return {};
}

// Asks for the collected batch. If as many batches are under way as ObjectStats wants, waits for
// the oldest one and adds its files.
Status ImageFolderBuilder::AskForBatch() {
  if (collected_.paths.empty()) return {};
  Batch& batch = asked_for_.emplace_back(std::exchange(collected_, Batch()));
  const std::size_t at_once = context_.stats.batches_at_once();
  // A single batch is waited for at once, so it needs no thread.
  // Where the process may have no more threads, `async` alone would throw.
  const std::launch launch =
      at_once > 1 ? std::launch::async | std::launch::deferred : std::launch::deferred;
  // An element of a deque stays where it is while others come and go at the ends.
  batch.outcome =
      std::async(launch, [this, &paths = batch.paths] { return context_.stats.Stat(paths); });
  while (asked_for_.size() >= at_once) FOREBAY_TRY(AddOldestBatch());
  return {};
}

Status ImageFolderBuilder::AddOldestBatch() {
  // True until the last file was added, so that every way out of this function sets it.
  has_failed_ = true;
  const StatOutcome outcome = asked_for_.front().outcome.get();
  const Batch batch = std::move(asked_for_.front());
  asked_for_.pop_front();
  for (std::size_t i = 0; i < outcome.infos.size(); ++i) {
    FOREBAY_TRY(AddFile(batch.paths[i], batch.labels[i], outcome.infos[i]));
  }
  if (outcome.error) return *outcome.error;
  has_failed_ = false;
  return {};
}

// Adds the files of all batches that are left.
Status ImageFolderBuilder::AddBatches() {
  FOREBAY_TRY(AskForBatch());
  while (!asked_for_.empty()) FOREBAY_TRY(AddOldestBatch());
  return {};
}

// Adds one file as the next object and sample. It joins the run if it fits, and begins a new one
// else.
Status ImageFolderBuilder::AddFile(const std::string& path, std::uint32_t label,
                                   const io::FileInfo& info) {
  if (!info.is_regular) return NotAFile(path);
  if (info.bytes == 0) {
    return InputError(ErrorCode::kInvalidArgument, path, 0,
                      "the file is empty (an interrupted copy?); remove it, or exclude it with the "
                      "data set's key 'suffixes'");
  }
  if (info.bytes > limits::kSampleBytesMax) {
    return InputError(ErrorCode::kResourceExhausted, path, limits::kSampleBytesMax,
                      "the file has " + std::to_string(info.bytes) + " bytes, a sample at most " +
                          std::to_string(limits::kSampleBytesMax) + " (kSampleBytesMax)");
  }
  const std::uint64_t extent_bytes = context_.source.extent_bytes;
  const bool is_large = info.bytes > extent_bytes;
  // run_bytes_ never exceeds extent_bytes, so the difference cannot wrap.
  if (is_large || info.bytes > extent_bytes - run_bytes_ ||
      run_count_ == limits::kSamplesPerExtentMax) {
    FOREBAY_TRY(CutRun());
  }
  FOREBAY_TRY(writer_.AddObject(path, info.bytes, info.mtime_ns));
  ++sample_count_;
  // The run is empty where the file is large, so its offset in the extent is 0 then.
  AppendWord(entries_, static_cast<std::uint32_t>(run_bytes_));
  AppendWord(entries_, label);
  if (context_.progress) context_.progress(sample_count_);
  if (is_large) return AddLargeFile(info.bytes);
  run_bytes_ += info.bytes;
  ++run_count_;
  if (context_.runs) {
    run_paths_.push_back(path);
    run_objects_.push_back({.path = {}, .bytes = info.bytes, .mtime_ns = info.mtime_ns});
  }
  return {};
}

Status ImageFolderBuilder::AddTree(const std::string& directory, std::size_t depth) {
  // Bounds the recursion: a directory tree comes from outside and may be as deep as its writer
  // liked.
  if (depth > limits::kDirectoryDepthMax) {
    return Error(ErrorCode::kResourceExhausted,
                 Quoted(directory) + " lies more than " +
                     std::to_string(limits::kDirectoryDepthMax) +
                     " directories deep (kDirectoryDepthMax)");
  }
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> entries, context_.root.List(directory));
  for (const io::DirectoryEntry& entry : entries) {
    if (entry.name.starts_with('.')) continue;
    std::string path = directory + "/" + entry.name;
    if (entry.is_directory) {
      FOREBAY_TRY(AddTree(path, depth + 1));
    } else if (IsSample(entry.name)) {
      if (!entry.is_regular) return NotAFile(path);
      FOREBAY_TRY(Collect(std::move(path)));
    }
  }
  return {};
}

// Files at the top of the root belong to no class and are ignored; only directories are walked.
Status ImageFolderBuilder::AddClasses(std::span<const io::DirectoryEntry> top) {
  for (const io::DirectoryEntry& entry : top) {
    if (!entry.is_directory || entry.name.starts_with('.')) continue;
    // A class without files keeps its number, so that labels do not change when the first file is
    // added.
    classes_.push_back(entry.name);
    FOREBAY_TRY(AddTree(entry.name, 0));
  }
  return {};
}

Result<std::shared_ptr<const Catalog>> ImageFolderBuilder::Build() {
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> entries, context_.root.List(""));
  FOREBAY_TRY(writer_.BeginPart(PartKind::kFiles, kFileEntryBytes));
  const Status walked = AddClasses(entries);
  // Also after an error of the walk, which is ahead of the files that were added: the first error
  // in the order of names is reported, however many batches are under way.
  if (!has_failed_) FOREBAY_TRY(AddBatches());
  FOREBAY_TRY(walked);
  FOREBAY_TRY(CutRun());
  FieldPlan image;
  image.spec.name = "image";
  FieldPlan label;
  label.spec.name = "label";
  label.spec.dtype = Dtype::kI64;
  label.spec.source = FieldSource::kConstant;
  label.constant_names = classes_;
  const std::vector<FieldPlan> fields = {image, label};
  // A root without files is refused here.
  FOREBAY_TRY(writer_.Finish(sample_count_, fields));
  FOREBAY_ASSIGN(ImageBytes bytes, sink_.Release());
  return OpenImage(std::move(bytes));
}

Result<std::shared_ptr<const Catalog>> BuildImageFolder(const BuildContext& context) {
  FOREBAY_ASSIGN(
      std::vector<std::string> suffixes,
      SettingOf<&ParseSuffixes>(context.source, "suffixes", std::vector<std::string>()));
  return ImageFolderBuilder(context, std::move(suffixes)).Build();
}

// Any directory at the top counts. So a root that also holds *.tar files fits two formats, and
// DetectFormat asks the user.
Result<bool> HasClasses(std::span<const io::DirectoryEntry> top) {
  return std::ranges::any_of(top, [](const io::DirectoryEntry& entry) {
    return entry.is_directory && !entry.name.starts_with('.');
  });
}

}  // namespace

constinit const FormatDriver kImageFolderDriver = {
    .format = Format::kImageFolder,
    .name = "image-folder",
    .detected_by = "class directories",
    .keys = kFolderKeys,
    .detect = HasClasses,
    .build = BuildImageFolder,
};

}  // namespace forebay::catalog
