#include "compress/decode/predictor_file.h"

#include <memory>
#include <utility>
#include <vector>

#include "compress/decode/byte_source.h"

namespace forebay::compress {

Result<std::shared_ptr<const Predictor>> LoadPredictor(const std::string& path,
                                                       const PredictorBudget& budget) {
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(path));
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
    if (!found.has_value() && found.error().code() == ErrorCode::kNotFound) {
      return Error(ErrorCode::kFailedPrecondition,
                   path + ": there is no such file; copy the predictor there, from where the "
                          "pack was written");
    }
    return found;
  };
}

}  // namespace forebay::compress
