#include "tests/model/data_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::model {
namespace {

// Bytes that compress a little, and of which any two draws differ everywhere.
std::string DrawText(std::uint64_t bytes, ModelRandom& random) {
  std::string text(bytes, '\0');
  char* const out = text.data();  // text[i] would cost two calls a byte, without optimisation
  std::uint64_t word = random.Word();
  std::uint8_t level = static_cast<std::uint8_t>(word);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) word = random.Word();
    level = static_cast<std::uint8_t>(level + ((word >> (i % 8 * 8)) & 3));
    out[i] = static_cast<char>(level);
  }
  return text;
}

ObjectText DrawRecords(const DataPlan& plan, ModelRandom& random) {
  ObjectText object;
  object.bytes = DrawText(plan.records * plan.record_bytes, random);
  for (std::uint64_t i = 0; i < plan.records; ++i) {
    object.samples.push_back(
        {{.offset = i * plan.record_bytes, .length = plan.record_bytes}});
  }
  return object;
}

ObjectText DrawFile(const DataPlan& plan, const std::string& path, ModelRandom& random) {
  ObjectText object;
  const std::uint64_t bytes = random.Between(1, plan.sample_bytes_max);
  object.bytes = DrawText(bytes, random);
  object.samples = {{{.offset = 0, .length = bytes}}};
  object.label = path[1] - '0';  // "c0/0003"
  return object;
}

void AddMember(ObjectText& object, const std::string& path, const std::string& data) {
  const std::string member = catalog::TarFileText(path, data);
  constexpr std::uint64_t kHeaderBytes = 512;
  object.samples.back().push_back(
      {.offset = object.bytes.size() + kHeaderBytes, .length = data.size()});
  object.bytes += member;
}

ObjectText DrawShard(const DataPlan& plan, const std::string& path, ModelRandom& random) {
  ObjectText object;
  for (std::uint64_t i = 0; i < plan.samples_per_object; ++i) {
    object.samples.emplace_back();
    const std::string key = fmt::format("{}-{:04}", path.substr(0, path.find('.')), i);
    AddMember(object, key + ".bin", DrawText(random.Between(1, plan.sample_bytes_max), random));
    AddMember(object, key + ".cls", std::to_string(random.Below(1000)));
  }
  object.bytes += catalog::TarEndText();
  return object;
}

}  // namespace

catalog::DatasetSource DataPlan::Source() const {
  catalog::DatasetSource source;
  source.name = "data";
  source.format = format;
  source.extent_bytes = extent_bytes;
  if (format != catalog::Format::kRaw) return source;
  source.settings.SetNumbers("shape", {record_bytes});
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    files.push_back(path.substr(0, path.find('.')) + "=" + path);
  }
  source.settings.SetTexts("files", files);
  return source;
}

ObjectText DataPlan::DrawObject(const std::string& path, ModelRandom& random) const {
  switch (format) {
    case catalog::Format::kRaw: return DrawRecords(*this, random);
    case catalog::Format::kImageFolder: return DrawFile(*this, path, random);
    default: return DrawShard(*this, path, random);
  }
}

DataPlan DrawData(ModelRandom& random) {
  constexpr catalog::Format kFormats[] = {catalog::Format::kRaw, catalog::Format::kRaw,
                                          catalog::Format::kImageFolder, catalog::Format::kTar};
  constexpr std::uint64_t kExtentBytes[] = {16 << 10, 32 << 10, 64 << 10};
  DataPlan plan;
  plan.format = random.OneOf(kFormats);
  plan.extent_bytes = random.OneOf(kExtentBytes);
  const std::uint64_t total = plan.extent_bytes * random.Between(3, 20);
  // Now and then a sample is larger than an extent.
  const bool is_giant = random.Chance(15);
  const std::uint64_t most = is_giant ? plan.extent_bytes * 2 : plan.extent_bytes / 4;
  switch (plan.format) {
    case catalog::Format::kRaw: {
      const std::uint64_t files = random.Between(1, 2);
      plan.paths = files == 1 ? std::vector<std::string>{"x.bin"}
                              : std::vector<std::string>{"x.bin", "y.bin"};
      plan.record_bytes = random.Between(most / 16, most);
      plan.sample_bytes_max = plan.record_bytes;
      plan.records = std::max<std::uint64_t>(4, total / files / plan.record_bytes);
      break;
    }
    case catalog::Format::kImageFolder: {
      plan.sample_bytes_max = most;
      const std::uint64_t files = std::clamp<std::uint64_t>(total / (most / 2), 4, 160);
      for (std::uint64_t i = 0; i < files; ++i) {
        plan.paths.push_back(fmt::format("c{}/{:04}", i * 3 / files, i));
      }
      break;
    }
    default: {
      plan.sample_bytes_max = most;
      const std::uint64_t shards = random.Between(1, 4);
      for (std::uint64_t i = 0; i < shards; ++i) plan.paths.push_back(fmt::format("s{}.tar", i));
      plan.samples_per_object = std::clamp<std::uint64_t>(total / shards / (most / 2), 2, 64);
      break;
    }
  }
  return plan;
}

}  // namespace forebay::model
