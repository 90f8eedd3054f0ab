// Loads learned predictors that a pack names and does not hold, from files called SHA256.net. They
// are looked for in the pack's folder and, if the pack was opened through a symbolic link, in the
// folder of the file that the link leads to. The caller compares the hash (pack_predictors.cc).
#include "compress/decode/pack/predictor_file.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_set.h"

namespace forebay::compress {

Result<std::shared_ptr<const Predictor>> LoadPredictor(const std::string& path,
                                                       const PredictorBudget& budget) {
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(path));
  // Before memory is taken: a file of that name may be anything.
  if (source->size() > budget.bytes_max) {
    return Error(ErrorCode::kResourceExhausted,
                 path + ": " + std::to_string(source->size()) +
                     " bytes; a learned predictor may have " + std::to_string(budget.bytes_max));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(source->size()));
  FOREBAY_TRY(source->ReadAt(0, bytes));
  auto predictor = Predictor::Parse(bytes, budget);
  if (!predictor.has_value()) return predictor.error().WithContext(path);
  return predictor;
}

std::string PredictorFileName(const std::string& folder, const Sha256Digest& id) {
  const bool slash = !folder.empty() && folder.back() != '/';
  return folder + (slash ? "/" : "") + Sha256Hex(id) + ".net";
}

PredictorFinder PredictorsIn(std::string folder, const PredictorBudget& budget) {
  return [folder = std::move(folder),
          budget](const Sha256Digest& id) -> Result<std::shared_ptr<const Predictor>> {
    const std::string path = PredictorFileName(folder, id);
    auto found = LoadPredictor(path, budget);
    // Another code than ENOENT's, so that PredictorsBeside can tell a missing file from all other
    // errors.
    if (!found.has_value() && found.error().code() == ErrorCode::kNotFound) {
      return Error(ErrorCode::kFailedPrecondition,
                   path + ": there is no such file; copy the predictor there, from where the "
                          "pack was written");
    }
    return found;
  };
}

PredictorFinder PredictorsBeside(std::string path, const PredictorBudget& budget) {
  return [path = std::move(path),
          budget](const Sha256Digest& id) -> Result<std::shared_ptr<const Predictor>> {
    const std::string folder = FolderOf(path);
    auto found = PredictorsIn(folder, budget)(id);
    // Only a missing file leads to the second folder. One that is damaged is reported and not
    // passed over.
    if (found.has_value() || found.error().code() != ErrorCode::kFailedPrecondition) return found;
    std::error_code failed;
    const std::string resolved = FolderOf(std::filesystem::canonical(path, failed).string());
    // Look no second time in the same folder.
    std::error_code none;
    if (failed || std::filesystem::equivalent(resolved, folder.empty() ? "." : folder, none)) {
      return found;
    }
    auto second = PredictorsIn(resolved, budget)(id);
    if (second.has_value() || second.error().code() != ErrorCode::kFailedPrecondition) {
      return second;
    }
    return Error(ErrorCode::kFailedPrecondition,
                 found.error().message() + " (nor is there " +
                     PredictorFileName(resolved, id) + ", beside the file that the link leads to)");
  };
}

}  // namespace forebay::compress
