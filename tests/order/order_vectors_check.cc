// Recomputes every golden vector of order_vectors.txt with the contract's own code, and compares
// the text of each answer. A plain program, not a GoogleTest: it is compiled once per compiler and
// optimisation level, because an order that depends on either would break promise P4.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/order_mix.h"
#include "proto/contract/order_steps.h"
#include "proto/contract/order_token.h"

namespace {

using forebay::EpochId;
using forebay::Order;
using forebay::OrderShape;
using forebay::OrderSpec;
using forebay::Position;

// A line of the file is "KIND name=value .. = ANSWER". These are its fields, by name.
using Fields = std::map<std::string, std::string>;

// Throws if the field is missing or is no number, which ends the program: the file is wrong then.
std::uint64_t Number(const Fields& fields, const std::string& name) {
  return std::stoull(fields.at(name));
}

// 16 digits, as the file has them: words are compared as text, so leading zeros count.
std::string Hex(std::uint64_t value) {
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

// Two digits a byte, the first byte first, whatever the byte order of the machine.
template <typename Bytes>
std::string HexOf(const Bytes& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    std::array<char, 3> digits;
    std::snprintf(digits.data(), digits.size(), "%02x", std::to_integer<unsigned>(byte));
    text += digits.data();
  }
  return text;
}

// A shape is written as MODE:b:w, or partial:b:x:M:B with x as q in millionths.
OrderShape Shape(const std::string& text) {
  std::istringstream in(text);
  std::string mode;
  std::getline(in, mode, ':');
  std::vector<std::uint64_t> numbers;
  for (std::string number; std::getline(in, number, ':');) numbers.push_back(std::stoull(number));
  OrderShape shape{.mode = forebay::ParseOrderMode(mode).value(), .block_samples = numbers.at(0)};
  if (shape.mode == forebay::OrderMode::kPartial) {
    shape.exchange_millionths = static_cast<std::uint32_t>(numbers.at(1));
    shape.canonical_nodes = static_cast<std::uint32_t>(numbers.at(2));
    shape.global_batch = static_cast<std::uint32_t>(numbers.at(3));
  } else {
    shape.window_runs = numbers.at(1);
  }
  return shape;
}

// What a line does not name keeps the default of OrderSpec, so most lines name only what they test.
OrderSpec Spec(const Fields& fields) {
  OrderSpec spec{.seed = Number(fields, "seed"),
                 .sample_count = Number(fields, "n"),
                 .shape = Shape(fields.at("shape"))};
  if (fields.contains("selection")) spec.selection_fingerprint = Number(fields, "selection");
  if (fields.contains("tail")) spec.tail = forebay::ParseTailPolicy(fields.at("tail")).value();
  if (fields.contains("first") && fields.at("first") != "none") {
    spec.first_epoch_shape = Shape(fields.at("first"));
  }
  return spec;
}

// The indices at the positions asked for. Single and batched calls, forward and inverse, run
// different code, and each must agree with the vector.
std::string OrderAnswer(const Fields& fields) {
  const Order order(Spec(fields), EpochId(static_cast<std::uint32_t>(Number(fields, "epoch"))));
  std::string answer;
  std::vector<std::uint64_t> indices;
  std::vector<std::uint64_t> positions;
  std::istringstream at(fields.at("at"));
  for (std::string text; std::getline(at, text, ',');) {
    const Position position(std::stoull(text));
    const std::uint64_t index = order.Forward(position);
    if (order.Inverse(index) != position) return "inverse differs at position " + text;
    // A batch of one, which is too short for the code that computes several side by side.
    std::uint64_t batched = 0;
    order.Forward(position, {&batched, 1});
    if (batched != index) return "batched forward differs at position " + text;
    positions.push_back(position.value());
    indices.push_back(index);
    answer += (answer.empty() ? "" : ",") + std::to_string(index);
  }
  // All positions of the line in one batch, which in most lines is long enough for that code.
  order.Inverse(indices);
  return indices == positions ? answer : "batched inverse differs";
}

// The positions that part i of a step has (docs/order.md, section 5).
std::string PartAnswer(const Fields& fields) {
  const auto plan = forebay::StepPlan::Create(
      {.sample_count = Number(fields, "n"),
       .global_batch = Number(fields, "batch"),
       .ranks = Number(fields, "parts"),
       .tail = forebay::ParseTailPolicy(fields.at("tail")).value()});
  // Under some tail policies the step does not exist, which the file calls "none".
  const auto slice =
      plan.value().RankSlice(forebay::StepId(Number(fields, "step")), Number(fields, "i"));
  if (!slice) return "none";
  return std::to_string(slice->first) + "," + std::to_string(slice->count);
}

// The bytes of a position token. They are parsed again, because a checkpoint is of no use if its
// token cannot be read back.
std::string TokenAnswer(const Fields& fields) {
  const forebay::PositionToken token{
      .catalog_fingerprint = Number(fields, "catalog"),
      .order = Spec(fields),
      .global_batch = static_cast<std::uint32_t>(Number(fields, "batch")),
      .next_epoch = EpochId(static_cast<std::uint32_t>(Number(fields, "epoch"))),
      .next_step = forebay::StepId(Number(fields, "step"))};
  const auto bytes = token.Encode();
  const auto parsed = forebay::PositionToken::Parse(bytes);
  if (!parsed) return parsed.error().ToString();
  return *parsed == token ? HexOf(bytes) : "parsed token differs";
}

// The answer of our code in the notation of the file. For an unknown kind it matches no vector, so
// a kind that is missing here fails the check.
std::string Answer(const std::string& kind, const Fields& fields) {
  if (kind == "mix") return Hex(forebay::Mix64(Number(fields, "x")));
  if (kind == "draw") return Hex(forebay::DrawWord64(Number(fields, "key"), Number(fields, "i")));
  if (kind == "transform") {
    return Hex(forebay::TransformSeed(
        Number(fields, "seed"), EpochId(static_cast<std::uint32_t>(Number(fields, "epoch"))),
        forebay::SampleId(Number(fields, "sample"))));
  }
  if (kind == "order") return OrderAnswer(fields);
  if (kind == "part") return PartAnswer(fields);
  if (kind == "token") return TokenAnswer(fields);
  if (kind == "spec") return HexOf(Spec(fields).Encode()) + "," + Hex(Spec(fields).Fingerprint());
  return "unknown kind";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream in(argv[1]);
  std::uint64_t checked = 0;
  for (std::string line; std::getline(in, line);) {
    // The file begins with a remark that says what wrote it.
    if (line.starts_with('#')) continue;
    // With the spaces, because the fields contain '=' as well.
    const std::size_t equals = line.find(" = ");
    std::istringstream question(line.substr(0, equals));
    std::string kind;
    question >> kind;
    Fields fields;
    for (std::string pair; question >> pair;) {
      fields[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
    }
    const std::string answer = Answer(kind, fields);
    if (answer != line.substr(equals + 3)) {
      // Ends at the first difference, which names its inputs; others probably have the same cause.
      std::fprintf(stderr, "%s\ncomputed %s\n", line.c_str(), answer.c_str());
      return 1;
    }
    ++checked;
  }
  std::printf("%llu vectors agree\n", static_cast<unsigned long long>(checked));
  // A file that is empty, cut short or not there must not pass.
  return checked >= 800 ? 0 : 1;
}
