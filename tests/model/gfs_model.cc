#include "tests/model/gfs_model.h"

#include <utility>

#include "proto/contract/check.h"

namespace forebay::model {

Incarnation::Incarnation(std::string path, std::int64_t mtime_ns, ObjectText text,
                         std::uint64_t revision)
    : path_(std::move(path)),
      mtime_ns_(mtime_ns),
      samples_(std::move(text.samples)),
      label_(text.label),
      versions_{{.since = revision, .bytes = std::move(text.bytes)}} {}

std::string_view Incarnation::At(std::uint64_t revision, const ValuePlace& place) const {
  std::size_t version = versions_.size() - 1;
  while (version > 0 && versions_[version].since > revision) --version;
  const std::string& bytes = versions_[version].bytes;
  FOREBAY_CHECK(place.offset <= bytes.size() && place.length <= bytes.size() - place.offset);
  return std::string_view(bytes).substr(place.offset, place.length);
}

void Incarnation::Flip(std::uint64_t bit, std::uint64_t revision) {
  std::string bytes = versions_.back().bytes;
  FOREBAY_CHECK(bit / 8 < bytes.size());
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  versions_.push_back({.since = revision, .bytes = std::move(bytes)});
}

void GfsModel::Put(const std::string& path, std::int64_t mtime_ns, ObjectText text) {
  objects_[path] = {
      .current = std::make_shared<Incarnation>(path, mtime_ns, std::move(text), revision_),
      .is_away = false};
}

void GfsModel::Flip(const std::string& path, std::uint64_t bit) {
  objects_.at(path).current->Flip(bit, ++revision_);
}

void GfsModel::SetAway(const std::string& path, bool is_away) {
  objects_.at(path).is_away = is_away;
}

std::vector<std::string> GfsModel::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, entry] : objects_) paths.push_back(path);
  return paths;
}

std::vector<Object> GfsModel::Present() const {
  std::vector<Object> present;
  for (const auto& [path, entry] : objects_) {
    if (!entry.is_away) present.push_back(entry.current);
  }
  return present;
}

bool GfsModel::Has(const Object& object) const {
  const Entry& entry = objects_.at(object->path());
  return !entry.is_away && entry.current == object;
}

}  // namespace forebay::model
