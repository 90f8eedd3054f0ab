// A folder of images as samples of a pack. The names of all images are listed first, folder by
// folder in byte order, so that the order of samples does not depend on the file system; each image
// is decoded when its turn comes. The first image decides on the shape of the field.
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "client/cli/source/image_file.h"
#include "client/cli/source/pack_source.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;

// Walk calls itself for each level, so depth is stack.
constexpr int kDepthMax = 32;                       // of folders in folders
constexpr std::size_t kImagesMax = 100'000'000;     // names are held in memory

struct ImageFile {
  std::string name;  // beneath the folder, '/' between folders
  std::int32_t label = 0;
  bool begins_sequence = false;
};

// Lists a folder's images in byte order of their names, folder by folder.
class FolderWalk {
 public:
  explicit FolderWalk(std::string root) : root_(std::move(root)) {}

  Status Walk(const std::string& below, int depth) {
    if (depth > kDepthMax) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("{}/{}: more than {} folders deep", root_, below, kDepthMax));
    }
    std::vector<std::string> files;
    std::vector<std::string> folders;
    FOREBAY_TRY(List(below, files, folders));
    // Images at the top would have no class, while those in folders have one.
    if (depth == 0 && !folders.empty() && !files.empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: has images ({}) beside class folders ({}); move them into a "
                               "folder of their own", root_, files.front(), folders.front()));
    }
    // A folder's own images come before those of its folders, so a sequence is never interrupted by
    // another folder.
    for (std::size_t i = 0; i < files.size(); ++i) {
      images.push_back({.name = below + files[i], .label = label_, .begins_sequence = i == 0});
    }
    if (images.size() > kImagesMax) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("{}: has more than {} images; pack it in parts", root_,
                               kImagesMax));
    }
    for (const std::string& folder : folders) {
      // A class is a folder at the top; folders within it are parts of the class.
      if (depth == 0) {
        label_ = static_cast<std::int32_t>(classes.size());
        classes.push_back(folder);
      }
      FOREBAY_TRY(Walk(below + folder + "/", depth + 1));
    }
    return {};
  }

  std::vector<ImageFile> images;
  std::vector<std::string> classes;
  std::uint64_t passed_over = 0;

 private:
  Status List(const std::string& below, std::vector<std::string>& files,
              std::vector<std::string>& folders) {
    const std::string path = root_ + "/" + below;
    std::error_code failed;
    fs::directory_iterator entry(path, failed);
    for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
      const std::string name = entry->path().filename().string();
      std::error_code unreadable;
      // Links to folders are not followed: they could lead round in a circle or out of the data
      // set. A link to an image is an image. A link that leads nowhere is passed over, or, where
      // its name is an image's, it fails when its turn comes.
      const bool link = entry->is_symlink(unreadable);
      const bool folder = entry->is_directory(unreadable);
      // Without its kind, an entry might be a class whose images the pack would lack.
      if (unreadable && !link) return Error::FromErrno(unreadable.value(), path + name);
      if (folder && !link && !name.starts_with('.')) {
        folders.push_back(name);
      } else if (!folder && IsImageName(name)) {
        files.push_back(name);
      } else {
        ++passed_over;
      }
    }
    // A folder that could not be listed to its end must not become a pack that lacks images.
    if (failed) return Error::FromErrno(failed.value(), path + ": listing");
    // By bytes, whatever the locale: the same folder gives the same pack on every machine.
    std::ranges::sort(files);
    std::ranges::sort(folders);
    return {};
  }

  const std::string root_;
  std::int32_t label_ = 0;
};

class ImageFolder : public PackSource {
 public:
  ImageFolder(std::string folder, FolderWalk walk)
      : folder_(std::move(folder)), images_(std::move(walk.images)) {
    if (walk.passed_over > 0) {
      notes_.push_back(fmt::format("{}: passed over {} files and folders that are not images",
                                   folder_, walk.passed_over));
    }
    // The paths are the keys, so `unpack` can make the folder again.
    schema_.keyed = true;
    schema_.provenance = {{"source", "images"}};
    labelled_ = !walk.classes.empty();
    // Left out as a whole and not cut: a list that ends early would look complete.
    if (walk.classes.size() > kNamedClassesMax) {
      notes_.push_back(fmt::format("the names of the {} classes are not stored, more than {}; "
                                   "keys have them", walk.classes.size(), kNamedClassesMax));
      return;
    }
    for (std::size_t i = 0; i < walk.classes.size(); ++i) {
      schema_.provenance.emplace_back(compress::ClassKey("label", i), walk.classes[i]);
    }
  }

  // The first image decides on the shape.
  Status Start() {
    // Decoded twice in all, here and in Next: keeping it would need an exception in Next for one
    // image.
    FOREBAY_ASSIGN(const RasterImage first, ReadImage(folder_ + "/" + images_.front().name));
    shape_ = first.shape;
    const bool colour = shape_.channels > 1;
    compress::PackField image{.name = "image",
                              .kind = compress::FieldKind::kImage,
                              .dtype = shape_.element_bytes() == 2 ? Dtype::kU16 : Dtype::kU8,
                              .rank = static_cast<std::uint8_t>(colour ? 3 : 2),
                              // Extents beyond the rank must be 1; a grey image has rank 2 and one
                              // channel, which is the same.
                              .extent = {shape_.rows, shape_.columns, shape_.channels, 1},
                              .channel_axis = static_cast<std::int8_t>(colour ? 2 : -1),
                              .bound = {}};
    image.tile = image.extent;
    schema_.fields.push_back(std::move(image));
    if (labelled_) {
      schema_.fields.push_back({.name = "label",
                                .kind = compress::FieldKind::kLabel,
                                .dtype = Dtype::kI32,
                                .bound = {}});
    }
    // `unpack --images` writes it back: a PGM of 10 bits stays one.
    schema_.provenance.emplace_back("value_max", std::to_string(shape_.value_max));
    return {};
  }

  const compress::PackSchema& schema() const override { return schema_; }
  std::uint64_t samples() const override { return images_.size(); }
  bool can_be_read_again() const override { return true; }
  const std::vector<std::string>& notes() const override { return notes_; }

  Status Skip(std::uint64_t sample) override {
    next_ = static_cast<std::size_t>(sample);
    return {};
  }

  Status Next(PackSample& sample) override {
    const ImageFile& file = images_[next_++];
    const std::string path = folder_ + "/" + file.name;
    // A member, because the fields that the sample borrows must live until the next call.
    FOREBAY_ASSIGN(image_, ReadImage(path));
    // A pack's field has one shape. Scaling or converting would change data without being asked.
    if (image_.shape != shape_) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: is {}, but {} is {}; a pack's images are all alike: convert "
                               "or pack them apart", path, image_.shape.ToString(),
                               images_.front().name, shape_.ToString()));
    }
    sample.fields.assign(1, image_.pixels);
    if (labelled_) {
      const auto label = static_cast<std::uint32_t>(file.label);
      for (std::size_t i = 0; i < label_.size(); ++i) {
        // Little-endian, as all numbers of a pack, whatever this machine has.
        label_[i] = static_cast<std::byte>(label >> (8 * i) & 0xFF);
      }
      sample.fields.emplace_back(label_);
    }
    sample.key = file.name;
    // Images of one folder are taken to follow one another, as the frames of a film do.
    sample.begins_sequence = file.begins_sequence;
    return {};
  }

 private:
  const std::string folder_;
  const std::vector<ImageFile> images_;
  compress::PackSchema schema_;
  std::vector<std::string> notes_;
  bool labelled_ = false;
  ImageShape shape_;
  RasterImage image_;
  std::array<std::byte, 4> label_ = {};
  std::size_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<PackSource>> OpenImageFolder(const std::string& folder) {
  FolderWalk walk(folder);
  FOREBAY_TRY(walk.Walk("", 0));
  if (walk.images.empty()) {
    return Error(ErrorCode::kNotFound,
                 folder + ": has no images (.pgm, .ppm, .pnm, .jpg, .jpeg, .png); convert others");
  }
  auto source = std::make_unique<ImageFolder>(folder, std::move(walk));
  FOREBAY_TRY(source->Start());
  return std::unique_ptr<PackSource>(std::move(source));
}

}  // namespace forebay::cli
