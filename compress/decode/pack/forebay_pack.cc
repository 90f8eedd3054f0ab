// The C API <forebay/pack.h> on top of PackFile and PackSet. Guarded turns Results and exceptions
// into codes, so that neither crosses into C. A pack and a set have the same calls, so each
// function is written once, with With choosing between them.
#include "forebay/pack.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "compress/decode/pack/pack_file.h"
#include "compress/decode/pack/pack_set.h"
#include "compress/decode/pack/predictor_file.h"
#include "proto/contract/limits.h"

// A pack, or a set and a copy of its schema.
struct forebay_pack {
  // Destroyed after `file`, which borrows it: members are destroyed in reverse order.
  std::unique_ptr<forebay::compress::ByteSource> source;
  std::optional<forebay::compress::PackFile> file;
  std::unique_ptr<forebay::compress::PackSet> set;
  forebay::compress::PackSchema schema;
};

namespace forebay::compress {
namespace {

// The constants of the C header are written out there. These lines keep them equal to the C++ ones.
static_assert(FOREBAY_PACK_RANK_MAX == kChunkRankMax);
static_assert(FOREBAY_PACK_F64 == static_cast<int>(Dtype::kF64));
static_assert(FOREBAY_PACK_RAW == static_cast<int>(FieldKind::kRaw));
static_assert(FOREBAY_PACK_DATA_LOSS == static_cast<int>(ErrorCode::kDataLoss));
static_assert(FOREBAY_PACK_OUT_OF_RANGE == static_cast<int>(ErrorCode::kOutOfRange));
static_assert(FOREBAY_PACK_KEY_BYTES_MAX == limits::kPackKeyBytesMax);

// Fills `error`, if the caller wants it, and returns the code. A message that is longer than the
// array in `error` is cut off.
int Report(ErrorCode code, int system_errno, std::string_view message,
           forebay_pack_error* error) {
  if (error == nullptr) return static_cast<int>(code);
  error->code = static_cast<int>(code);
  error->system_errno = system_errno;
  const std::size_t bytes = std::min(message.size(), sizeof(error->message) - 1);
  std::memcpy(error->message, message.data(), bytes);
  error->message[bytes] = '\0';
  return error->code;
}

// Runs a call's body and turns its outcome, whatever it throws included, into a code.
// C code cannot catch an exception, and one that crosses its frames ends the process.
template <typename Body>
int Guarded(forebay_pack_error* error, Body body) noexcept {
  try {
    const Status status = body();
    if (status.has_value()) return FOREBAY_PACK_OK;
    return Report(status.error().code(), status.error().system_errno(), status.error().message(),
                  error);
  } catch (const std::bad_alloc&) {
    return Report(ErrorCode::kResourceExhausted, 0, "pack: no memory", error);
  } catch (const std::exception& thrown) {
    return Report(ErrorCode::kInternal, 0, thrown.what(), error);
  } catch (...) {
    return Report(ErrorCode::kInternal, 0, "pack: something unknown was thrown", error);
  }
}

Error Missing(const char* what) {
  return Error(ErrorCode::kInvalidArgument, std::string("pack: ") + what + " is NULL");
}

Result<const PackField*> FieldOf(const forebay_pack& pack, std::uint32_t field) {
  // The number comes from a C program, which nothing keeps from passing any value.
  if (field < pack.schema.fields.size()) return &pack.schema.fields[field];
  return Error(ErrorCode::kOutOfRange,
               "pack: it has " + std::to_string(pack.schema.fields.size()) + " fields");
}

// NULL with a size is no memory: the size is ignored, and the call says that its memory is too
// small.
std::span<std::byte> BytesOf(forebay_pack_scratch scratch) {
  return {static_cast<std::byte*>(scratch.memory), scratch.memory == nullptr ? 0 : scratch.bytes};
}

std::span<std::byte> BytesOf(void* out, std::size_t bytes) {
  return {static_cast<std::byte*>(out), out == nullptr ? 0 : bytes};
}

// Calls `call` with the pack or the set, whose calls are the same.
template <typename Call>
auto With(const forebay_pack& pack, Call call) {
  return pack.set != nullptr ? call(*pack.set) : call(*pack.file);
}

Status Open(const char* path, forebay_pack** pack) {
  // Owned here until everything has succeeded, so that no error leaks a half-open pack.
  auto opened = std::make_unique<forebay_pack>();
  // The content decides and not the file's name.
  FOREBAY_ASSIGN(const bool is_set, IsManifestFile(path));
  if (is_set) {
    FOREBAY_ASSIGN(opened->set, PackSet::Open(path));
    const auto schema = opened->set->Schema();
    if (!schema.has_value()) return schema.error().WithContext(path);
    // A copy, because the set may close the shard that it came from.
    opened->schema = *schema;
  } else {
    FOREBAY_ASSIGN(opened->source, OpenByteSource(path));
    auto file = PackFile::Open(
        *opened->source, {.budget = {}, .find_predictor = PredictorsBeside(path)});
    if (!file.has_value()) return file.error().WithContext(path);
    opened->file.emplace(std::move(*file));
    opened->schema = opened->file->schema();
  }
  *pack = opened.release();
  return {};
}

void Describe(const PackField& field, forebay_pack_field& description) {
  description = {};
  // Points into the open pack and is valid until that is closed.
  description.name = field.name.c_str();
  description.kind = static_cast<int>(field.kind);
  description.dtype = static_cast<int>(field.dtype);
  description.element_bytes = DtypeBytes(field.dtype);
  description.variable = field.variable() ? 1 : 0;
  description.rank = field.rank;
  std::ranges::copy(field.extent, description.extent);
  description.sample_bytes = field.variable() ? 0 : field.sample_bytes();
  description.channel_axis = field.channel_axis;
  description.valid_bits = field.valid_bits;
  description.has_fill = field.fill_bits.has_value() ? 1 : 0;
  description.fill_bits = field.fill_bits.value_or(0);
  description.bound_mode = field.bound.mode;
  description.bound_absolute = field.bound.absolute;
  description.bound_relative = field.bound.relative;
  description.samples_per_chunk = field.samples_per_chunk;
  std::ranges::copy(field.tile, description.tile);
}

// The arguments of forebay_pack_read, with spans in place of pointers and sizes.
struct ReadRequest {
  std::uint32_t field = 0;
  std::uint64_t first_sample = 0, count = 0;
  const forebay_pack_region* region = nullptr;
  std::span<std::byte> out;
  const forebay_pack_strides* strides = nullptr;
  std::span<std::byte> scratch;
};

// Only fills in what the caller left out. PackFile::Read checks the range, the region and that all
// elements lie within `out`.
Status Read(const forebay_pack& pack, const ReadRequest& wanted) {
  FOREBAY_ASSIGN(const PackField* field, FieldOf(pack, wanted.field));
  PackRegion region = PackRegion::Whole(*field);
  // NULL means the whole extent.
  if (wanted.region != nullptr) {
    std::ranges::copy(wanted.region->origin, region.origin.begin());
    std::ranges::copy(wanted.region->extent, region.extent.begin());
  }
  // Without strides the region is written densely, in the order of its axes.
  StridedOutput out{.memory = wanted.out};
  if (wanted.strides != nullptr) {
    out.sample_stride = wanted.strides->sample;
    std::ranges::copy(wanted.strides->axis, out.axis_stride.begin());
  } else {
    std::size_t stride = DtypeBytes(field->dtype);
    for (std::size_t axis = kChunkRankMax; axis-- > 0;) {
      // Regions are checked against the field before anything is written; a product of what lies
      // outside of it is of no use, and may wrap.
      out.axis_stride[axis] = stride;
      stride *= std::min(region.extent[axis], field->extent[axis]);
    }
    out.sample_stride = stride;
  }
  return With(pack, [&](const auto& packs) {
    return packs.Read(wanted.field, wanted.first_sample, wanted.count, region, out,
                      wanted.scratch);
  });
}

Status Key(const forebay_pack& pack, std::uint64_t sample, std::span<char> memory,
           std::size_t* key_bytes) {
  // A call without an error returned exactly one key, so keys[0] exists.
  FOREBAY_ASSIGN(const std::vector<std::string> keys,
                 With(pack, [&](const auto& packs) { return packs.Keys(sample, 1); }));
  // The final zero needs a byte as well.
  if (keys[0].size() >= memory.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "pack: the key and its final zero have " + std::to_string(keys[0].size() + 1) +
                     " bytes, the memory " + std::to_string(memory.size()));
  }
  // Keys may contain zeros themselves, so their size is returned, too.
  std::memcpy(memory.data(), keys[0].c_str(), keys[0].size() + 1);
  if (key_bytes != nullptr) *key_bytes = keys[0].size();
  return {};
}

}  // namespace
}  // namespace forebay::compress

using forebay::Status;
using forebay::compress::BytesOf;
using forebay::compress::FieldOf;
using forebay::compress::Guarded;
using forebay::compress::Missing;
using forebay::compress::PackField;
using forebay::compress::With;

// Every function below follows one form: Guarded around a body that checks its pointers and then
// calls C++. Functions that cannot fail accept NULL and return 0.
int forebay_pack_open(const char* path, forebay_pack** pack, forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr) return Missing("pack");
    // Set before anything can fail, so that a caller who closes after an error closes nothing.
    *pack = nullptr;
    if (path == nullptr) return Missing("path");
    return forebay::compress::Open(path, pack);
  });
}

void forebay_pack_close(forebay_pack* pack) {
  // NULL is closed without effect, as free does.
  const std::unique_ptr<forebay_pack> closed(pack);
}

uint64_t forebay_pack_sample_count(const forebay_pack* pack) {
  return pack == nullptr ? 0 : With(*pack, [](const auto& packs) { return packs.samples(); });
}

uint32_t forebay_pack_field_count(const forebay_pack* pack) {
  return pack == nullptr ? 0 : static_cast<uint32_t>(pack->schema.fields.size());
}

int forebay_pack_has_keys(const forebay_pack* pack) {
  return pack != nullptr && pack->schema.keyed ? 1 : 0;
}

int forebay_pack_describe(const forebay_pack* pack, uint32_t field,
                          forebay_pack_field* description, forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr || description == nullptr) return Missing("pack or description");
    FOREBAY_ASSIGN(const PackField* found, FieldOf(*pack, field));
    forebay::compress::Describe(*found, *description);
    return {};
  });
}

int forebay_pack_find_field(const forebay_pack* pack, const char* name, uint32_t* field,
                            forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr || name == nullptr || field == nullptr) {
      return Missing("pack, name or field");
    }
    const auto& fields = pack->schema.fields;
    // At most 64 fields (limits::kFieldCountMax), so a search from the first one is quick enough.
    const auto found = std::ranges::find(fields, name, &PackField::name);
    if (found == fields.end()) {
      return forebay::Error(forebay::ErrorCode::kNotFound,
                            std::string("pack: no field ") + name);
    }
    *field = static_cast<uint32_t>(found - fields.begin());
    return {};
  });
}

int forebay_pack_scratch_bytes(const forebay_pack* pack, uint64_t first_sample, uint64_t count,
                               size_t* bytes, forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr || bytes == nullptr) return Missing("pack or bytes");
    if (pack->set == nullptr) {
      // A pack needs the same memory for all its samples; a set's packs may differ, so it asks for
      // those of the range.
      *bytes = pack->file->ScratchBytes();
      return {};
    }
    FOREBAY_ASSIGN(*bytes, pack->set->ScratchBytes(first_sample, count));
    return {};
  });
}

int forebay_pack_read(const forebay_pack* pack, uint32_t field, uint64_t first_sample,
                      uint64_t count, const forebay_pack_region* region, void* out,
                      size_t out_bytes, const forebay_pack_strides* strides,
                      forebay_pack_scratch scratch, forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr) return Missing("pack");
    return forebay::compress::Read(*pack, {.field = field,
                                           .first_sample = first_sample,
                                           .count = count,
                                           .region = region,
                                           .out = BytesOf(out, out_bytes),
                                           .strides = strides,
                                           .scratch = BytesOf(scratch)});
  });
}

int forebay_pack_sample_bytes(const forebay_pack* pack, uint32_t field, uint64_t sample,
                              forebay_pack_scratch scratch, uint64_t* bytes,
                              forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr || bytes == nullptr) return Missing("pack or bytes");
    FOREBAY_TRY(FieldOf(*pack, field));
    FOREBAY_ASSIGN(*bytes, With(*pack, [&](const auto& packs) {
                     return packs.SampleBytes(field, sample, BytesOf(scratch));
                   }));
    return {};
  });
}

int forebay_pack_read_bytes(const forebay_pack* pack, uint32_t field, uint64_t sample, void* out,
                            size_t out_bytes, forebay_pack_scratch scratch,
                            forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr) return Missing("pack");
    FOREBAY_TRY(FieldOf(*pack, field));
    return With(*pack, [&](const auto& packs) {
      return packs.ReadBytes(field, sample, BytesOf(out, out_bytes), BytesOf(scratch));
    });
  });
}

int forebay_pack_key(const forebay_pack* pack, uint64_t sample, char* key,
                     size_t key_memory_bytes, size_t* key_bytes, forebay_pack_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pack == nullptr || key == nullptr) return Missing("pack or key");
    return forebay::compress::Key(*pack, sample, {key, key_memory_bytes}, key_bytes);
  });
}
