// GfsModel: what lies on the GFS, and what lay there before, as plain strings.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::model {

// Where a value lies in its object.
struct ValuePlace {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// The bytes of an object, and of each of its samples the values that lie in it.
struct ObjectText {
  std::string bytes;
  std::vector<std::vector<ValuePlace>> samples;
  std::optional<std::int64_t> label;  // of all its samples, where the data set has labels
};

// An object from one modification time to the next. Its bytes may change all the same, and nobody
// sees that from outside.
class Incarnation {
 public:
  Incarnation(std::string path, std::int64_t mtime_ns, ObjectText text, std::uint64_t revision);

  const std::string& path() const { return path_; }
  std::int64_t mtime_ns() const { return mtime_ns_; }
  std::uint64_t bytes() const { return versions_.front().bytes.size(); }
  const std::vector<std::vector<ValuePlace>>& samples() const { return samples_; }
  std::optional<std::int64_t> label() const { return label_; }
  // What a range of it held after this revision of the GFS.
  std::string_view At(std::uint64_t revision, const ValuePlace& place) const;
  // Whether the bytes have changed after revision `since`.
  bool HasChangedSince(std::uint64_t since) const { return versions_.back().since > since; }
  void Flip(std::uint64_t bit, std::uint64_t revision);

 private:
  struct Version {
    std::uint64_t since = 0;  // the first revision that has these bytes
    std::string bytes;
  };

  const std::string path_;
  const std::int64_t mtime_ns_;
  const std::vector<std::vector<ValuePlace>> samples_;
  const std::optional<std::int64_t> label_;
  std::vector<Version> versions_;
};
using Object = std::shared_ptr<const Incarnation>;

// Not thread-safe. Each change of bytes under an unchanged time makes a new revision of the whole.
class GfsModel {
 public:
  // Creates the object or replaces it.
  void Put(const std::string& path, std::int64_t mtime_ns, ObjectText text);
  // Inverts one bit; size and modification time stay.
  void Flip(const std::string& path, std::uint64_t bit);
  void SetAway(const std::string& path, bool is_away);

  std::uint64_t revision() const { return revision_; }
  std::vector<std::string> paths() const;  // of those that are away, too
  bool IsAway(const std::string& path) const { return objects_.at(path).is_away; }
  // The object of that name, be it away or not.
  Object Current(const std::string& path) const { return objects_.at(path).current; }
  // Those that are there, in the order of their paths.
  std::vector<Object> Present() const;
  // Whether a reader finds `object` beneath its name.
  bool Has(const Object& object) const;

 private:
  struct Entry {
    std::shared_ptr<Incarnation> current;
    bool is_away = false;
  };

  std::map<std::string, Entry> objects_;
  std::uint64_t revision_ = 0;
};

}  // namespace forebay::model
