// Copies an assembled batch into the message that announces it, and a request into the structs that
// the rest of server/stream reads. Arrays (sample ids, spans, constants) travel as the bytes of C++
// structs: both programs run on machines of one job, and Hello compares the version of the layout.
// Nothing is checked here; ResolveStream and the session check what a client sent.
#include "server/stream/rpc/wire_batch.h"

#include <utility>

namespace forebay::stream {

void FillBatch(std::uint64_t id, const AssembledBatch& batch, v1::Batch& message) {
  message.set_id(id);
  message.set_epoch(batch.name.epoch.value());
  message.set_step(batch.name.step.value());
  message.set_micro_size(batch.name.micro_size);
  message.set_micro_index(batch.name.micro_index);
  message.set_first_position(batch.first_position);
  message.set_sample_count(static_cast<std::uint32_t>(batch.sample_ids.size()));
  message.set_padded_count(batch.padded_count);
  message.set_sample_ids(batch.sample_ids.data(),
                         batch.sample_ids.size() * sizeof(std::uint64_t));
  for (const AssembledField& field : batch.fields) {
    v1::FieldData& data = *message.add_fields();
    if (field.is_tensor) data.set_tensor(&field.tensor, sizeof(field.tensor));
    if (!field.spans.empty()) {
      data.set_spans(field.spans.data(), field.spans.size() * sizeof(WireSpan));
    }
    // Empty for most batches: the counts are sent only if some sample lies in several extents.
    data.mutable_span_counts()->Add(field.span_counts.begin(), field.span_counts.end());
    if (!field.constants.empty()) {
      data.set_constants(field.constants.data(), field.constants.size() * sizeof(std::int64_t));
    }
  }
}

void FillError(const BatchName& name, const Error& error, v1::BatchError& message) {
  message.set_epoch(name.epoch.value());
  message.set_step(name.step.value());
  message.set_micro_size(name.micro_size);
  message.set_micro_index(name.micro_index);
  message.set_code(static_cast<std::uint32_t>(error.code()));
  message.set_message(error.message());
}

void FillField(const catalog::Catalog& catalog, FieldId field, v1::Field& message) {
  const FieldSpec& spec = catalog.fields()[field.value()];
  message.set_name(spec.name);
  message.set_dtype(static_cast<std::uint32_t>(spec.dtype));
  for (const std::uint64_t dimension : spec.shape) message.add_shape(dimension);
  message.set_constant(spec.source == FieldSource::kConstant);
  message.set_big_endian(spec.big_endian);
  // The meaning of each number of a constant field, such as the classes of an image folder.
  for (const std::string_view name : catalog.ConstantNames(field)) {
    message.add_constant_names(std::string(name));
  }
}

StreamRequestSpec FromWire(const v1::OpenStream& open, ClientIdentity client) {
  // The order stays encoded: OrderSpec::Parse checks it together with the rest of the request.
  const auto spec = std::as_bytes(std::span(open.order_spec().data(), open.order_spec().size()));
  return {.dataset = open.dataset(),
          .stream_name = open.stream_name(),
          .selection = open.selection(),
          .order_spec = {spec.begin(), spec.end()},
          .global_batch = open.global_batch(),
          .ranks = open.ranks(),
          .rank = open.rank(),
          .delivery = open.delivery(),
          .credits = open.credits(),
          .catalog_fingerprint = open.catalog_fingerprint(),
          .inline_payload = open.inline_payload(),
          .reader = open.reader(),
          .call = open.call(),
          .end_epoch = open.end_epoch(),
          .client = std::move(client)};
}

BatchName FromWire(const v1::Pull& pull) {
  return {.epoch = EpochId(pull.epoch()),
          .step = StepId(pull.first_step()),
          .micro_size = pull.micro_size(),
          .micro_index = pull.micro_index()};
}

}  // namespace forebay::stream
