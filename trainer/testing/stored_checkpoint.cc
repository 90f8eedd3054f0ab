// Writes a checkpoint through the shard and folder code of the trainer, and reads all of its
// tensors back.
#include "trainer/testing/stored_checkpoint.h"

#include <optional>
#include <string>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"
#include "trainer/core/checkpoint/checkpoint_writer.h"

namespace forebay::train::testing {

Result<CheckpointReader> Store(const Checkpoint& checkpoint, const std::filesystem::path& folder) {
  Communicator alone = Communicator::Alone();
  FOREBAY_ASSIGN(CheckpointFolder publisher, CheckpointFolder::Open(folder, 1000));
  FOREBAY_TRY(publisher.Adopt());
  CheckpointWriter writer(alone);
  FOREBAY_TRY(writer.Begin(checkpoint, {.folder = folder, .publisher = &publisher}));
  FOREBAY_ASSIGN(const std::optional<CheckpointWriter::Outcome> outcome, writer.Finish());
  if (!outcome) return Error(ErrorCode::kInternal, "nothing was written");
  if (outcome->error) return *outcome->error;
  return CheckpointReader::Open(outcome->path);
}

Result<Checkpoint> ReadWhole(const std::filesystem::path& checkpoint) {
  FOREBAY_TRY(VerifyCheckpoint(checkpoint));
  FOREBAY_ASSIGN(const CheckpointReader reader, CheckpointReader::Open(checkpoint));
  Checkpoint whole = reader.state();
  for (const std::string& name : reader.Names()) {
    const TensorEntry& entry = *reader.Find(name);
    CheckpointTensor tensor{.name = name, .dtype = entry.dtype, .shape = entry.shape, .bytes = {}};
    tensor.bytes.resize(entry.end - entry.begin);
    FOREBAY_TRY(reader.Read(name, tensor.bytes));
    whole.tensors.push_back(std::move(tensor));
  }
  return whole;
}

void Rewrite(const std::filesystem::path& checkpoint,
             const std::function<void(Checkpoint&)>& change) {
  Result<Manifest> manifest = ReadManifest(checkpoint);
  FOREBAY_CHECK(manifest.has_value());
  change(manifest->state);
  FOREBAY_CHECK(WriteSynced(checkpoint / kManifestName, EncodeManifest(*manifest)).has_value());
}

}  // namespace forebay::train::testing
