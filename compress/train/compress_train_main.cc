// forebay-compress-train: trains a learned predictor on the first frames of a pack or of an array,
// measures it on the others and writes it to a file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compress/train/chunk_planes.h"
#include "compress/train/net_trainer.h"
#include "compress/train/train_arguments.h"
#include "compress/train/train_report.h"
#include "compress/train/training_rows.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::compress {
namespace {

// All tools of Forebay exit with 1 for a failure and with 2 for a command line that is not
// understood.
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

void Print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  // Training takes minutes, and a reader behind a pipe wants each epoch's line at once.
  std::fflush(stdout);
}

Result<std::vector<PlaneStack>> ReadPlanes(TrainArguments& arguments) {
  // The option's range keeps this shift from overflowing.
  const std::size_t bytes_max = arguments.limit_mib << 20;
  // True if both are given and if neither is.
  if (arguments.pack.empty() == arguments.raw.path.empty()) {
    return Error(ErrorCode::kInvalidArgument, "wanted is either PACK or --raw FILE");
  }
  if (!arguments.pack.empty()) {
    return PlanesOfPack(arguments.pack, arguments.field, bytes_max);
  }
  if (arguments.raw_shape.size() != 3) {
    return Error(ErrorCode::kInvalidArgument, "--raw: --shape FRAMES,ROWS,COLUMNS is missing");
  }
  arguments.raw.frames = arguments.raw_shape[0];
  arguments.raw.rows = arguments.raw_shape[1];
  arguments.raw.columns = arguments.raw_shape[2];
  return PlanesOfRaw(arguments.raw, bytes_max);
}

// Trains two networks: one for first frames, which have spatial neighbours only, and one for the
// others.
Result<std::shared_ptr<const Predictor>> TrainOn(std::span<const PlaneStack> stacks,
                                                 const TrainArguments& arguments) {
  const std::array<TrainingRows, 2> rows =
      GatherRows(stacks, arguments.rows_max, arguments.net.seed);
  std::array<std::vector<PredictorLayer>, 2> nets;
  for (std::size_t kind = 0; kind < 2; ++kind) {
    const char* const name = kind == 0 ? "first frames" : "other frames";
    // A stack of one frame has no others; there is then nothing to correct.
    if (rows[kind].rows() == 0) continue;
    FOREBAY_ASSIGN(TrainedNet trained,
                   TrainNet(rows[kind], arguments.net, [&](std::uint32_t epoch, double bits) {
                     if (arguments.json) {
                       Print(nlohmann::json{{"event", "epoch"}, {"kind", name},
                                            {"epoch", epoch}, {"bits_per_pixel", bits}}
                                 .dump());
                       return;
                     }
                     Print(fmt::format("{}: epoch {} of {}, {:.4f} bits per pixel", name, epoch,
                                       arguments.net.epochs, bits));
                   }));
    nets[kind] = std::move(trained.layers);
  }
  return Predictor::Build(nets);
}

Status WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  // Closed before the state is looked at, because the last bytes may fail only when they are
  // flushed.
  file.close();
  if (!file) return Error(ErrorCode::kInternal, path + ": cannot be written");
  return {};
}

void PrintGain(const TrainArguments& arguments, const Predictor& predictor,
               const HeldOutGain& gain) {
  if (arguments.json) {
    // With --held-out 0 there is nothing that could be measured.
    const bool is_measured = gain.planes > 0;
    Print(nlohmann::json{{"event", "done"},
                         {"path", arguments.out},
                         {"sha256", Sha256Hex(predictor.id())},
                         {"model_bytes", predictor.bytes().size()},
                         {"macs_per_pixel", predictor.macs()},
                         {"held_out_planes", gain.planes},
                         {"held_out_raw_bytes", gain.raw_bytes},
                         {"dense_bytes", gain.dense_bytes},
                         {"learned_bytes", gain.learned_bytes},
                         {"decode_s", gain.decode_s},
                         {"gain", is_measured ? nlohmann::json(gain.without_model()) : nullptr},
                         {"gain_with_model",
                          is_measured ? nlohmann::json(gain.with_model()) : nullptr}}
              .dump());
    return;
  }
  Print(fmt::format("{}: {} bytes, {} multiplications per pixel, SHA-256 {}", arguments.out,
                    predictor.bytes().size(), predictor.macs(), Sha256Hex(predictor.id())));
  if (gain.planes == 0) return;
  Print(fmt::format("on {} stacks of planes held out: dense {} bytes, learned {}, {:+.2f} %; "
                    "with the predictor's own bytes {:+.2f} %",
                    gain.planes, gain.dense_bytes, gain.learned_bytes,
                    100 * gain.without_model(), 100 * gain.with_model()));
}

Status Run(TrainArguments& arguments) {
  FOREBAY_ASSIGN(const std::vector<PlaneStack> stacks, ReadPlanes(arguments));
  // The last stacks are held out and measured on: a gain on what a network was trained on would say
  // nothing.
  const auto kept = static_cast<std::size_t>(static_cast<double>(stacks.size()) *
                                             (1 - arguments.held_out));
  if (kept == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} stacks of planes of at most 8 bits: none is left to train on",
                             stacks.size()));
  }
  // The last ones, because a predictor is used on samples that come later.
  const std::span<const PlaneStack> all(stacks);
  FOREBAY_ASSIGN(const std::shared_ptr<const Predictor> predictor,
                 TrainOn(all.first(kept), arguments));
  // A reader with the same budget would refuse this predictor; it must not be written.
  if (predictor->macs() > arguments.macs_max) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} multiplications per pixel, allowed are {}: choose other --hidden",
                             predictor->macs(), arguments.macs_max));
  }
  // Measured before the file is written: the measurement decodes what it encodes, so a predictor
  // that does not give the samples back never gets a file.
  FOREBAY_ASSIGN(const HeldOutGain gain,
                 MeasureGain(all.subspan(kept), predictor, arguments.all_kernels));
  FOREBAY_TRY(WriteFile(arguments.out, predictor->bytes()));
  PrintGain(arguments, *predictor, gain);
  return {};
}

}  // namespace
}  // namespace forebay::compress

int main(int argc, char** argv) {
  forebay::compress::TrainArguments arguments;
  CLI::App app;
  forebay::compress::DefineTrainArguments(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 throws for --help as well, with code 0.
    return error.get_exit_code() == 0 ? app.exit(error)
                                      : (app.exit(error), forebay::compress::kExitUsage);
  }
  const forebay::Status status = forebay::compress::Run(arguments);
  if (status.has_value()) return 0;
  // Names of fields come from the pack.
  const std::string message = forebay::PrintableLine(status.error().ToString());
  std::fputs(("forebay-compress-train: " + message + "\n").c_str(), stderr);
  return status.error().code() == forebay::ErrorCode::kInvalidArgument
             ? forebay::compress::kExitUsage
             : forebay::compress::kExitFailed;
}
