// The manifest as JSON, written and read. A manifest is untrusted: each value is checked for its
// type and its range before it is used, and no message depends on an exception of the JSON library.
// A checksum over the rest of the file stands at its beginning, at a fixed place, so that a torn or
// damaged manifest is found before anything is parsed.
#include "trainer/core/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "proto/contract/checksum.h"
#include "trainer/numerics/finite.h"

namespace forebay::train {
namespace {

using Json = nlohmann::ordered_json;

// The checksum stands in front of what it covers, at a place that is known before anything is
// parsed: {"xxh3": "0123456789abcdef", and a line feed.
constexpr std::string_view kSealBegin = "{\"xxh3\": \"";
constexpr std::string_view kSealEnd = "\",\n";
constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kSealBytes = kSealBegin.size() + kHashDigits + kSealEnd.size();

// Sums and products of a few steps stay within 64 bits.
constexpr std::uint64_t kStepMax = 1ULL << 62;

Error Malformed(std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("not a checkpoint's manifest: {}", what));
}

std::uint64_t HashOf(std::string_view text) {
  // It tells damage from accident. Whoever can write the folder can also write a fitting checksum,
  // so the values are checked all the same.
  return Checksum(std::as_bytes(std::span(text.data(), text.size())));
}

// Tokens are opaque bytes; JSON has no type for them.
std::string ToHex(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte byte : bytes) hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  return hex;
}

// Lower case only, so that a value has one spelling.
std::optional<std::uint64_t> ParseHex(std::string_view hex) {
  if (hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  if (error != std::errc() || end != hex.data() + hex.size()) return std::nullopt;
  return value;
}

std::optional<std::vector<std::byte>> BytesOfHex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    // Two digits for each byte, so that the same bytes have one spelling only.
    const std::optional<std::uint64_t> value = ParseHex(hex.substr(at, 2));
    if (!value) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(*value));
  }
  return bytes;
}

Json ToJson(const Manifest& manifest) {
  const Checkpoint& state = manifest.state;
  // ordered_json keeps this order, so that people find the run and the step at the top of the
  // file.
  Json json = {{"format", kCheckpointFormat},
               {"run", state.run},
               {"resumed_from", nullptr},
               {"model", state.model},
               {"optimiser", state.optimiser},
               {"optimiser_states", state.optimiser_states},
               {"global_step", state.global_step},
               {"epoch", state.epoch},
               {"step", state.step},
               {"seed", state.seed},
               {"global_batch", state.global_batch},
               {"evaluation_pending", state.evaluation_pending},
               {"identity", state.identity},
               {"layout", state.layout},
               {"position_token", ToHex(state.position_token)},
               {"best", nullptr},
               {"shards", Json::array()},
               {"configuration", state.configuration}};
  if (state.resumed_from) {
    // The key stands above with null already, so that it keeps its place in the file.
    json["resumed_from"] = {{"run", state.resumed_from->run}, {"step", state.resumed_from->step}};
  }
  if (state.best) {
    json["best"] = {{"metric", state.best->metric},
                    {"value", state.best->value},
                    {"epoch", state.best->epoch}};
  }
  for (std::size_t at = 0; at < manifest.shards.size(); ++at) {
    json["shards"].push_back({{"file", ShardName(at)},
                              {"bytes", manifest.shards[at].bytes},
                              {"xxh3", fmt::format("{:016x}", manifest.shards[at].hash)}});
  }
  return json;
}

// at() and operator[] would throw for a key that is missing.
const Json* Member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// The readers below return a value of one type, or an error that names the key. They ask for the
// type first, because get() of another type throws.
Result<std::string> Text(const Json& object, const char* name) {
  const Json* const node = Member(object, name);
  if (node == nullptr || !node->is_string()) return Malformed(fmt::format("no text {}", name));
  return node->get<std::string>();
}

Result<std::uint64_t> Number(const Json& object, const char* name, std::uint64_t maximum) {
  const Json* const node = Member(object, name);
  // A negative number or one with a fraction is of another type, so that this refuses it, too.
  if (node == nullptr || !node->is_number_unsigned() || node->get<std::uint64_t>() > maximum) {
    return Malformed(fmt::format("{} is not a number up to {}", name, maximum));
  }
  return node->get<std::uint64_t>();
}

Result<bool> Flag(const Json& object, const char* name) {
  const Json* const node = Member(object, name);
  if (node == nullptr || !node->is_boolean()) {
    return Malformed(fmt::format("{} is not true or false", name));
  }
  return node->get<bool>();
}

Result<std::vector<std::string>> Texts(const Json& object, const char* name) {
  const Json* const node = Member(object, name);
  if (node == nullptr || !node->is_array()) return Malformed(fmt::format("no list {}", name));
  std::vector<std::string> texts;
  for (const Json& item : *node) {
    // One wrong element refuses the list: leaving it out would shift the others.
    if (!item.is_string()) return Malformed(fmt::format("{} has what is not text", name));
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

// Reads the name of a run. It becomes part of a folder's name (aside-<run>-1), so that only
// hexadecimal digits pass. Manifests from before runs had names have no such key; their run is "".
Result<std::string> ReadRunName(const Json& object) {
  const Json* const node = Member(object, "run");
  if (node == nullptr) return std::string();
  FOREBAY_ASSIGN(std::string run, Text(object, "run"));
  if (run.empty() || (run.size() == kHashDigits && ParseHex(run))) return run;
  return Malformed("run is not 16 hexadecimal digits");
}

// Reads which checkpoint the run was resumed from; nullopt for a run that started afresh.
Result<std::optional<CheckpointOrigin>> ReadOrigin(const Json& json) {
  const Json* const node = Member(json, "resumed_from");
  if (node == nullptr || node->is_null()) return std::optional<CheckpointOrigin>();
  if (!node->is_object()) return Malformed("resumed_from is not described");
  CheckpointOrigin origin;
  FOREBAY_ASSIGN(origin.run, ReadRunName(*node));
  FOREBAY_ASSIGN(origin.step, Number(*node, "step", kStepMax));
  return std::optional(std::move(origin));
}

// Reads the best evaluation so far; nullopt if there has been none.
Result<std::optional<BestMark>> ReadBest(const Json& json) {
  const Json* const node = Member(json, "best");
  if (node == nullptr || node->is_null()) return std::optional<BestMark>();
  // A score that is not finite never becomes the best, because JSON has no number for it.
  const Json* const value = node->is_object() ? Member(*node, "value") : nullptr;
  if (value == nullptr || !value->is_number()) return Malformed("best has no value");
  BestMark best;
  FOREBAY_ASSIGN(best.metric, Text(*node, "metric"));
  FOREBAY_ASSIGN(const std::uint64_t epoch, Number(*node, "epoch", UINT32_MAX));
  best.value = value->get<double>();
  best.epoch = static_cast<std::uint32_t>(epoch);
  return std::optional(std::move(best));
}

// Files are named by their place: a manifest cannot point anywhere else.
Result<std::vector<ShardFacts>> ReadShards(const Json& json) {
  const Json* const node = Member(json, "shards");
  if (node == nullptr || !node->is_array() || node->empty() || node->size() > kShardsMax) {
    return Malformed(fmt::format("shards is not a list of 1 to {}", kShardsMax));
  }
  std::vector<ShardFacts> shards;
  for (const Json& item : *node) {
    if (!item.is_object()) return Malformed("a shard is not described");
    FOREBAY_ASSIGN(const std::string file, Text(item, "file"));
    FOREBAY_ASSIGN(const std::string hash, Text(item, "xxh3"));
    ShardFacts facts;
    // Not bounded: it is only compared with the size of the file.
    FOREBAY_ASSIGN(facts.bytes, Number(item, "bytes", UINT64_MAX));
    const std::optional<std::uint64_t> value =
        hash.size() == kHashDigits ? ParseHex(hash) : std::nullopt;
    if (!value) return Malformed("a shard's xxh3 is not 16 hexadecimal digits");
    // The name is not used, only compared: a manifest that was edited by hand should be noticed.
    if (file != ShardName(shards.size())) {
      return Malformed(fmt::format("a shard has another name than {}", ShardName(shards.size())));
    }
    facts.hash = *value;
    shards.push_back(facts);
  }
  return shards;
}

Result<Checkpoint> ReadState(const Json& json) {
  Checkpoint state;
  FOREBAY_ASSIGN(state.run, ReadRunName(json));
  FOREBAY_ASSIGN(state.resumed_from, ReadOrigin(json));
  FOREBAY_ASSIGN(state.model, Text(json, "model"));
  FOREBAY_ASSIGN(state.optimiser, Text(json, "optimiser"));
  FOREBAY_ASSIGN(state.optimiser_states, Texts(json, "optimiser_states"));
  FOREBAY_ASSIGN(state.global_step, Number(json, "global_step", kStepMax));
  FOREBAY_ASSIGN(const std::uint64_t epoch, Number(json, "epoch", UINT32_MAX));
  FOREBAY_ASSIGN(state.step, Number(json, "step", kStepMax));
  FOREBAY_ASSIGN(state.seed, Number(json, "seed", UINT64_MAX));
  FOREBAY_ASSIGN(const std::uint64_t batch, Number(json, "global_batch", UINT32_MAX));
  FOREBAY_ASSIGN(state.evaluation_pending, Flag(json, "evaluation_pending"));
  FOREBAY_ASSIGN(state.identity, Text(json, "identity"));
  FOREBAY_ASSIGN(state.layout, Text(json, "layout"));
  FOREBAY_ASSIGN(state.configuration, Text(json, "configuration"));
  FOREBAY_ASSIGN(state.best, ReadBest(json));
  FOREBAY_ASSIGN(const std::string token, Text(json, "position_token"));
  std::optional<std::vector<std::byte>> token_bytes = BytesOfHex(token);
  if (!token_bytes) return Malformed("position_token is not hexadecimal");
  // Number() has checked the range.
  state.epoch = static_cast<std::uint32_t>(epoch);
  state.global_batch = static_cast<std::uint32_t>(batch);
  state.position_token = *std::move(token_bytes);
  return state;
}

// The JSON behind the seal, without its brace. Depth is bounded: the library recurses.
Result<Json> Parse(std::string_view text) {
  constexpr int kDepthMax = 3;  // manifest, shards, shard
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json&) {
    const bool opens = event == Json::parse_event_t::object_start ||
                       event == Json::parse_event_t::array_start;
    if (opens && depth >= kDepthMax) too_deep = true;
    return !too_deep;
  };
  Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep) return Malformed("nested too deep");
  if (!json.is_object()) return Malformed("not a JSON object");
  return json;
}

// Finds infinities and NaN in the elements of a tensor.
template <typename Value>
Status CheckFloats(const CheckpointTensor& tensor) {
  // Memory of a vector is aligned for any type.
  const std::span values(reinterpret_cast<const Value*>(tensor.bytes.data()),
                         tensor.bytes.size() / sizeof(Value));
  const std::size_t at = FirstNotFinite(values);
  if (at == values.size()) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("value {} of tensor {} is {}", at, tensor.name, values[at]));
}

}  // namespace

const CheckpointTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &CheckpointTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

Status CheckFinite(const Checkpoint& checkpoint) {
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    // Other types are whole numbers or not written by us.
    if (tensor.dtype == "F32") FOREBAY_TRY(CheckFloats<float>(tensor));
    if (tensor.dtype == "F64") FOREBAY_TRY(CheckFloats<double>(tensor));
  }
  return {};
}

std::string ShardName(std::size_t index) { return fmt::format("shard-{:05}.safetensors", index); }

std::string EncodeManifest(const Manifest& manifest) {
  // Paths in the configuration may be no UTF-8, which dump() would answer by an exception: such
  // bytes are replaced. One space of indentation, because people read manifests.
  const std::string json =
      ToJson(manifest).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string covered = json.substr(2);  // without its brace and line feed
  return fmt::format("{}{:016x}{}{}", kSealBegin, HashOf(covered), kSealEnd, covered);
}

Result<Manifest> DecodeManifest(std::string_view text) {
  // Another kind of file is told from a damaged manifest, because the remedies differ.
  if (!text.starts_with(kSealBegin)) return Malformed("it does not begin as one");
  // The parts of the seal are taken with bounds: the text may end anywhere.
  const std::string_view covered = text.substr(std::min(kSealBytes, text.size()));
  const std::optional<std::uint64_t> hash = ParseHex(text.substr(kSealBegin.size(), kHashDigits));
  if (covered.empty() || hash != HashOf(covered) ||
      text.substr(kSealBytes - kSealEnd.size(), kSealEnd.size()) != kSealEnd) {
    return Error(ErrorCode::kDataLoss, "the manifest is torn or damaged: checksum mismatch");
  }
  FOREBAY_ASSIGN(const Json json, Parse("{" + std::string(covered)));
  // The format comes before all other keys: a later version may have other ones.
  FOREBAY_ASSIGN(const std::string format, Text(json, "format"));
  if (format != kCheckpointFormat) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("format {}, this program reads {}", format, kCheckpointFormat));
  }
  Manifest manifest;
  FOREBAY_ASSIGN(manifest.state, ReadState(json));
  FOREBAY_ASSIGN(manifest.shards, ReadShards(json));
  return manifest;
}

}  // namespace forebay::train
