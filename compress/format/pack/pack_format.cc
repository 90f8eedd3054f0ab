// Parses, checks and writes the parts of a pack (docs/pack.md): header and schema, record heads,
// chunk heads and their checksums. The index and the footer are in pack_index.cc. Parsers check
// checksums before they look at values, and every value against limits.h before it is used as a
// size.
#include "compress/format/pack/pack_format.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "compress/format/damaged.h"
#include "compress/format/pack/pack_predictors.h"
#include "proto/contract/align_up.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kPackPart = "pack";  // in errors

Error InvalidPack(std::string what) {
  return Error(ErrorCode::kInvalidArgument, "pack: " + std::move(what));
}

// Rounds up: the last tile along an axis may be cut short. This form, unlike (extent + tile - 1) /
// tile, cannot overflow, and callers have made sure that neither is 0.
std::uint32_t TilesAlong(const PackField& field, std::size_t axis) {
  return (field.extent[axis] - 1) / field.tile[axis] + 1;
}

// The order and the widths below are the format: ReadField reads the same ones, and a new member
// may only be appended.
void WriteField(const PackField& field, ByteWriter& writer) {
  writer.String(field.name);
  writer.Le(static_cast<std::uint8_t>(field.kind));
  writer.Le(static_cast<std::uint8_t>(field.dtype));
  writer.Le(field.rank);
  for (std::uint32_t extent : field.extent) writer.Le(extent);
  for (std::uint32_t tile : field.tile) writer.Le(tile);
  // Stored plus one, so that "no channel axis" (-1) becomes 0.
  writer.Le(static_cast<std::uint8_t>(field.channel_axis + 1));
  writer.Le(field.valid_bits);
  // The fill value takes its 8 bytes even if there is none: every field is laid out alike.
  writer.Le(static_cast<std::uint8_t>(field.fill_bits.has_value()));
  writer.Le(field.fill_bits.value_or(0));
  writer.Le(field.bound.mode);
  writer.Le(std::bit_cast<std::uint64_t>(field.bound.absolute));
  writer.Le(std::bit_cast<std::uint64_t>(field.bound.relative));
  writer.Le(field.samples_per_chunk);
}

// Reads what WriteField wrote. A reader that ran out of bytes returns zeros, so the caller looks at
// reader.ok() once, at the end; CheckField then judges the values.
Result<PackField> ReadField(ByteReader& reader) {
  PackField field;
  field.name = reader.ReadString(limits::kNameBytesMax);
  // An unknown kind is what a newer writer may have written, so the error asks for a newer reader
  // and does not speak of damage.
  const auto kind = reader.ReadLe<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(FieldKind::kRaw)) {
    return Error(ErrorCode::kUnimplemented, "pack: a field of unknown kind; use a newer reader");
  }
  field.kind = static_cast<FieldKind>(kind);
  FOREBAY_ASSIGN(field.dtype, DtypeFromNumber(reader.ReadLe<std::uint8_t>()));
  field.rank = reader.ReadLe<std::uint8_t>();
  for (std::uint32_t& extent : field.extent) extent = reader.ReadLe<std::uint32_t>();
  for (std::uint32_t& tile : field.tile) tile = reader.ReadLe<std::uint32_t>();
  // A hostile byte gives at worst an axis that the field does not have; CheckChunkShape refuses it
  // for every field that has a shape.
  field.channel_axis = static_cast<std::int8_t>(reader.ReadLe<std::uint8_t>() - 1);
  field.valid_bits = reader.ReadLe<std::uint8_t>();
  const bool has_fill = reader.ReadLe<std::uint8_t>() != 0;
  const auto fill = reader.ReadLe<std::uint64_t>();
  if (has_fill) field.fill_bits = fill;
  field.bound.mode = reader.ReadLe<std::uint8_t>();
  field.bound.absolute = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
  field.bound.relative = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
  field.samples_per_chunk = reader.ReadLe<std::uint32_t>();
  return field;
}

// What writers may ask for and readers accept. The same code serves both.
Status CheckField(const PackField& field) {
  if (field.name.empty() || field.name.size() > limits::kNameBytesMax) {
    return InvalidPack("a field's name has 1 to " + std::to_string(limits::kNameBytesMax) +
                       " bytes");
  }
  const std::string where = "field " + field.name + ": ";
  if (field.samples_per_chunk == 0 || field.samples_per_chunk > limits::kChunkSamplesMax) {
    return InvalidPack(where + "a chunk has 1 to " + std::to_string(limits::kChunkSamplesMax) +
                       " samples");
  }
  // Written as !(x >= 0), because a NaN compares false and must be refused as well.
  if (field.bound.mode > 5 || !(field.bound.absolute >= 0) || !(field.bound.relative >= 0)) {
    return InvalidPack(where + "an error bound that makes no sense");
  }
  // A field of byte strings has elements of one byte here, as in every shape.
  if (field.valid_bits > 8 * DtypeBytes(field.dtype)) {
    return InvalidPack(where + "more valid bits than an element has");
  }
  if (field.rank > kChunkRankMax) return InvalidPack(where + "more than 4 axes");
  // Axes beyond the rank must be 1, because products over all four axes are taken everywhere and
  // must not depend on the rank. An extent or a tile of 0 would divide by zero in TilesAlong.
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    const bool used = axis < field.rank;
    if (field.extent[axis] == 0 || field.tile[axis] == 0 ||
        field.tile[axis] > field.extent[axis] || (!used && field.extent[axis] != 1)) {
      return InvalidPack(where + "extents and tiles do not fit each other");
    }
  }
  // A variable field has no shape of its own: each chunk's follows from its byte strings.
  if (field.variable()) return {};
  std::uint64_t tiles = 1;
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    tiles *= TilesAlong(field, axis);
    // Compared after every axis, so that the product of four 32-bit counts cannot overflow.
    if (tiles > limits::kChunkSamplesMax) return InvalidPack(where + "too many tiles");
  }
  // The first tile is the largest, and a chunk of it is the largest chunk of the field.
  const Status fits = CheckChunkShape(field.Shape(0, field.samples_per_chunk));
  if (!fits.has_value()) return fits.error().WithContext("field " + field.name);
  return {};
}

// The identity under which a record is hashed: a record copied to another place or pack is refused.
ChecksumIdentity RecordIdentity(std::uint64_t identity, RecordType type, std::uint64_t offset,
                                std::uint64_t length) {
  return {.dataset = identity,
          .object = static_cast<std::uint64_t>(type),
          .offset = offset,
          .length = length};
}

}  // namespace

// Fits 64 bits: CheckField has bounded a chunk, and so a tile, and the number of tiles.
std::uint64_t PackField::sample_bytes() const {
  return std::uint64_t{extent[0]} * extent[1] * extent[2] * extent[3] * DtypeBytes(dtype);
}

std::uint32_t PackField::tiles() const {
  if (variable()) return 1;
  std::uint32_t tiles = 1;
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) tiles *= TilesAlong(*this, axis);
  return tiles;
}

// Tiles are numbered in row-major order: the last axis counts fastest.
std::array<std::uint32_t, kChunkRankMax> PackField::TileOrigin(std::uint32_t number) const {
  std::array<std::uint32_t, kChunkRankMax> origin{};
  for (std::size_t axis = kChunkRankMax; axis-- > 0;) {
    const std::uint32_t along = TilesAlong(*this, axis);
    origin[axis] = number % along * tile[axis];
    number /= along;
  }
  return origin;
}

std::array<std::uint32_t, kChunkRankMax> PackField::TileExtent(std::uint32_t number) const {
  std::array<std::uint32_t, kChunkRankMax> result = TileOrigin(number);
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    // The last tile along an axis holds what is left of the field, which may be less than a tile.
    result[axis] = std::min(tile[axis], extent[axis] - result[axis]);
  }
  return result;
}

ChunkShape PackField::Shape(std::uint32_t number, std::uint32_t samples) const {
  return {.dtype = dtype,
          .samples = samples,
          .rank = rank,
          .extent = TileExtent(number),
          .channel_axis = channel_axis,
          .fill_bits = fill_bits};
}

std::string ClassKey(std::string_view field, std::size_t number) {
  return "class." + std::string(field) + "." + std::to_string(number);
}

// Classes are numbered from 0 in the provenance, without gaps; the first number that is missing
// ends the list.
std::vector<std::string_view> ClassNames(const PackSchema& schema, std::string_view field) {
  // A map, because each class is one look-up and the provenance is an unsorted list.
  const std::map<std::string_view, std::string_view> named(schema.provenance.begin(),
                                                           schema.provenance.end());
  std::vector<std::string_view> names;
  for (auto found = named.find(ClassKey(field, 0)); found != named.end();
       found = named.find(ClassKey(field, names.size()))) {
    names.push_back(found->second);
  }
  return names;
}

Status CheckSchema(const PackSchema& schema) {
  if (schema.fields.empty() || schema.fields.size() > limits::kFieldCountMax) {
    return InvalidPack("a schema has 1 to " + std::to_string(limits::kFieldCountMax) + " fields");
  }
  // Fields are addressed by name in every interface, so two of one name could not be told apart.
  std::set<std::string_view> names;
  for (const PackField& field : schema.fields) {
    FOREBAY_TRY(CheckField(field));
    if (!names.insert(field.name).second) return InvalidPack("two fields called " + field.name);
  }
  if (schema.provenance.size() > limits::kPackProvenanceMax) {
    return InvalidPack("more than " + std::to_string(limits::kPackProvenanceMax) +
                       " entries of provenance");
  }
  for (const auto& [key, value] : schema.provenance) {
    if (key.size() > limits::kNameBytesMax || value.size() > limits::kPathBytesMax) {
      return InvalidPack("provenance " + key.substr(0, 40) + " is too long");
    }
  }
  return CheckPredictors(schema);
}

Status CheckWritableBound(const PackField& field) {
  // Readers do not ask this: a pack that another writer made decodes all the same.
  if (field.dtype != Dtype::kBytes || field.bound.mode == 0) return {};
  return InvalidPack("field " + field.name +
                     ": an error bound on byte strings would change their bytes; bound fields of "
                     "numbers only and leave this one lossless");
}

namespace {

// The schema without a header. Each field carries its length, so that a later version can append to
// it. The end is aligned, because records begin at multiples of 8 bytes.
std::vector<std::byte> WriteSchemaBody(const PackSchema& schema) {
  ByteWriter body;
  body.Le(static_cast<std::uint8_t>(schema.keyed ? 1 : 0));
  body.Varint(schema.fields.size());
  for (const PackField& field : schema.fields) {
    ByteWriter writer;
    WriteField(field, writer);
    body.Varint(writer.size());
    body.Bytes(writer.bytes());
  }
  body.Varint(schema.provenance.size());
  for (const auto& [key, value] : schema.provenance) {
    body.String(key);
    body.String(value);
  }
  WriteSections(schema, body);
  body.AlignTo(8);
  return body.Release();
}

std::uint32_t AlignmentOf(const PackSchema& schema) {
  return static_cast<std::uint32_t>(schema.aligned ? limits::kIoAlignmentBytes : 8);
}

// A pack that needs predictors says so in its header: readers without them then refuse the whole
// file and not one chunk after the other.
std::uint32_t FeaturesOf(const PackSchema& schema) {
  const bool predicted = !schema.predictors.empty() || !schema.named_predictors.empty();
  return predicted ? static_cast<std::uint32_t>(kFeaturePredictors) : 0;
}

}  // namespace

std::vector<std::byte> WritePackStart(const PackSchema& schema, const PackId& id) {
  const std::vector<std::byte> body = WriteSchemaBody(schema);
  ByteWriter writer;
  writer.Le(kPackMagic);
  writer.Le(kPackMajor);
  writer.Le(kPackMinor);
  writer.Le(AlignmentOf(schema));
  writer.Le(FeaturesOf(schema));
  writer.Le(std::uint32_t{0});  // features that a reader may ignore
  writer.Le(static_cast<std::uint64_t>(body.size()));
  writer.Le(Checksum(body));
  writer.Bytes(id);
  // This checksum covers everything before it, the schema's checksum included. So it vouches for
  // the schema, too, and can serve as the identity of the pack (PackIdentity).
  writer.Le(Checksum(writer.bytes()));
  writer.Bytes(body);
  return writer.Release();
}

std::vector<std::byte> WriteSchema(const PackSchema& schema) {
  const std::vector<std::byte> body = WriteSchemaBody(schema);
  ByteWriter writer;
  writer.Le(kPackMagic);
  // Version 1 is the only one whose header has no id.
  writer.Le(std::uint16_t{1});
  writer.Le(std::uint16_t{0});
  writer.Le(AlignmentOf(schema));
  writer.Le(std::uint64_t{FeaturesOf(schema)});
  writer.Le(std::uint64_t{0});  // features that a reader may ignore
  writer.Le(static_cast<std::uint64_t>(body.size()));
  writer.Le(Checksum(body));
  writer.Le(std::uint64_t{0});
  writer.Le(Checksum(writer.bytes()));
  writer.Bytes(body);
  return writer.Release();
}

namespace {

// The header behind the alignment, in packs of this version, and of version 1.
void ReadHeaderRest(ByteReader& reader, PackHeader& header) {
  header.features = reader.ReadLe<std::uint32_t>();
  static_cast<void>(reader.ReadLe<std::uint32_t>());  // optional features
  header.schema_bytes = reader.ReadLe<std::uint64_t>();
  header.schema_checksum = reader.ReadLe<std::uint64_t>();
  PackId id{};
  const auto bytes = reader.Take(id.size());
  std::ranges::copy(bytes, id.begin());
  header.id = id;
}

void ReadFirstHeaderRest(ByteReader& reader, PackHeader& header) {
  header.features = reader.ReadLe<std::uint64_t>();
  static_cast<void>(reader.ReadLe<std::uint64_t>());  // optional features
  header.schema_bytes = reader.ReadLe<std::uint64_t>();
  header.schema_checksum = reader.ReadLe<std::uint64_t>();
  static_cast<void>(reader.ReadLe<std::uint64_t>());
}

}  // namespace

Result<PackHeader> ReadPackHeader(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  PackHeader header;
  const auto magic = reader.ReadLe<std::uint64_t>();
  if (!reader.ok() || magic != kPackMagic) return InvalidPack("not a pack file");
  header.major = reader.ReadLe<std::uint16_t>();
  header.minor = reader.ReadLe<std::uint16_t>();
  const auto alignment = reader.ReadLe<std::uint32_t>();
  header.aligned = alignment == limits::kIoAlignmentBytes;
  // Both layouts have the same size and the checksum in the same place. So the checksum can be
  // compared before it is known whether this reader understands the version.
  if (header.major == kPackMajorOldest) {
    ReadFirstHeaderRest(reader, header);
  } else {
    ReadHeaderRest(reader, header);
  }
  const auto checksum = reader.ReadLe<std::uint64_t>();
  if (!reader.ok()) return Damaged(kPackPart, "the header ends early");
  // Damage is reported before an unknown version: a flipped bit in the version must not send a user
  // looking for a newer reader.
  if (Checksum(bytes.first(kPackHeaderBytes - sizeof(std::uint64_t))) != checksum) {
    return Damaged(kPackPart, "the header does not match its checksum");
  }
  if (header.major < kPackMajorOldest || header.major > kPackMajor ||
      (header.features & ~kKnownFeatures) != 0) {
    return Error(ErrorCode::kUnimplemented,
                 "pack: written by format " + std::to_string(header.major) + "." +
                     std::to_string(header.minor) + " with features that this reader (" +
                     std::to_string(kPackMajor) + "." + std::to_string(kPackMinor) +
                     ") does not know; use a newer one");
  }
  if (alignment != 8 && alignment != limits::kIoAlignmentBytes) {
    return Damaged(kPackPart, "the alignment is neither 8 nor 4096");
  }
  // Callers allocate this many bytes before they can compare the schema with its checksum.
  if (header.schema_bytes > limits::kPackStartBytesMax - kPackHeaderBytes) {
    return Damaged(kPackPart, "the schema has more than " +
                                  std::to_string(limits::kPackStartBytesMax) + " bytes");
  }
  return header;
}

Result<std::uint64_t> PackStartBytes(std::span<const std::byte> header) {
  FOREBAY_ASSIGN(const PackHeader read, ReadPackHeader(header));
  // The header's checksum was right, and ReadPackHeader has bounded the schema's size.
  return kPackHeaderBytes + read.schema_bytes;
}

Result<PackSchema> ReadPackStart(std::span<const std::byte> start,
                                 const PredictorBudget& budget) {
  FOREBAY_ASSIGN(const PackHeader header, ReadPackHeader(start));
  if (start.size() - kPackHeaderBytes < header.schema_bytes) {
    return Damaged(kPackPart, "the schema ends early");
  }
  const std::span<const std::byte> body =
      start.subspan(kPackHeaderBytes, static_cast<std::size_t>(header.schema_bytes));
  // From here on the bytes are as they were written. They are still not trusted: a checksum proves
  // that nothing was damaged and not that the writer was honest.
  if (Checksum(body) != header.schema_checksum) {
    return Damaged(kPackPart, "the schema does not match its checksum");
  }
  PackSchema schema;
  schema.aligned = header.aligned;
  ByteReader reader(body);
  // The format defines one flag. Other bits are ignored: whatever a reader must understand has a
  // feature bit in the header, and ReadPackHeader refuses features that it does not know.
  schema.keyed = (reader.ReadLe<std::uint8_t>() & 1) != 0;
  const std::uint64_t fields = reader.ReadVarint();
  if (fields > limits::kFieldCountMax) return Damaged(kPackPart, "there are too many fields");
  for (std::uint64_t i = 0; i < fields && reader.ok(); ++i) {
    // A later version may append to a field: its length is given, and the rest is skipped.
    ByteReader part(reader.Take(static_cast<std::size_t>(reader.ReadVarint())));
    FOREBAY_ASSIGN(PackField field, ReadField(part));
    if (!part.ok()) return Damaged(kPackPart, "a field ends early");
    schema.fields.push_back(std::move(field));
  }
  // A reader that has run out of bytes returns 0 here, and ok() is asked once, at the end.
  const std::uint64_t entries = reader.ReadVarint();
  if (entries > limits::kPackProvenanceMax) {
    return Damaged(kPackPart, "there are too many provenance entries");
  }
  for (std::uint64_t i = 0; i < entries && reader.ok(); ++i) {
    std::string key(reader.ReadString(limits::kNameBytesMax));
    std::string value(reader.ReadString(limits::kPathBytesMax));
    schema.provenance.emplace_back(std::move(key), std::move(value));
  }
  FOREBAY_TRY(ReadSections(budget, reader, schema));
  if (!reader.ok()) return Damaged(kPackPart, "the schema ends early");
  // The file is at fault here and not the caller, so the error becomes kDataLoss.
  const Status sound = CheckSchema(schema);
  if (!sound.has_value()) return Damaged(kPackPart, sound.error().message());
  return schema;
}

// The hash of flags and fields. Provenance and predictors may differ between packs that belong to
// one set.
Result<std::uint64_t> SchemaFingerprint(std::span<const std::byte> start) {
  if (start.size() < kPackHeaderBytes) return Damaged(kPackPart, "the header ends early");
  const std::span<const std::byte> body = start.subspan(kPackHeaderBytes);
  ByteReader reader(body);
  // The reader passes over the flags. They are part of the hash, because a keyed pack and one
  // without keys cannot be one set.
  reader.Take(1);
  const std::uint64_t fields = reader.ReadVarint();
  if (fields > limits::kFieldCountMax) return Damaged(kPackPart, "there are too many fields");
  for (std::uint64_t i = 0; i < fields; ++i) {
    reader.Take(static_cast<std::size_t>(reader.ReadVarint()));
  }
  if (!reader.ok()) return Damaged(kPackPart, "the schema ends early");
  return Checksum(body.first(reader.offset()));
}

std::uint64_t WriterFingerprint(const PackHeader& header) {
  ByteWriter words;
  // The schema's checksum stands for the schema. The header's own checksum cannot be used, since it
  // covers the id, which differs between the packs that are to be found alike.
  words.Le(static_cast<std::uint64_t>(header.aligned));
  words.Le(header.features);
  words.Le(header.schema_bytes);
  words.Le(header.schema_checksum);
  return Checksum(words.bytes());
}

std::uint64_t PackIdentity(std::span<const std::byte> header) {
  // The header's last word covers all of it, id and the schema's checksum included.
  ByteReader reader(header.subspan(kPackHeaderBytes - sizeof(std::uint64_t)));
  return reader.ReadLe<std::uint64_t>();
}

// Lays out a record's head. The checksum covers what lies behind it, the payload's checksum
// included, so a head that matches vouches for its payload.
std::vector<std::byte> WriteRecordHead(std::uint64_t identity, std::uint64_t offset,
                                       RecordType type, std::span<const std::byte> added,
                                       std::span<const std::byte> payload, bool aligned) {
  const std::uint64_t alignment =
      aligned && type == RecordType::kChunk ? limits::kIoAlignmentBytes : 8;
  // The padding depends on where the record lies: its payload, not its head, has to begin at the
  // alignment. `aligned` promises that for chunks only.
  const std::uint64_t end = AlignUp(offset + kRecordPrefixBytes + added.size(), alignment);
  const auto head_bytes = static_cast<std::uint32_t>(end - offset);
  ByteWriter covered;
  covered.Le(head_bytes);
  covered.Le(static_cast<std::uint32_t>(added.size()));
  covered.Le(static_cast<std::uint64_t>(payload.size()));
  covered.Le(PayloadChecksum(identity, type, offset, payload));
  covered.Bytes(added);
  ByteWriter head;
  head.Le(kRecordMagic);
  head.Le(static_cast<std::uint16_t>(type));
  head.Le(std::uint16_t{0});
  // Type and offset are hashed as the identity: damage to the type is found although the type lies
  // before the bytes that the checksum covers.
  head.Le(Checksum(RecordIdentity(identity, type, offset, covered.size()), covered.bytes()));
  head.Bytes(covered.bytes());
  std::vector<std::byte> result = head.Release();
  // The padding behind the covered bytes is zero and no checksum covers it.
  result.resize(head_bytes);
  return result;
}

Result<RecordPrefix> ReadRecordPrefix(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  if (reader.ReadLe<std::uint32_t>() != kRecordMagic) {
    return Damaged(kPackPart, "there is no record at this offset");
  }
  RecordPrefix prefix;
  prefix.type = static_cast<RecordType>(reader.ReadLe<std::uint16_t>());
  static_cast<void>(reader.ReadLe<std::uint16_t>());
  prefix.head_checksum = reader.ReadLe<std::uint64_t>();
  prefix.head_bytes = reader.ReadLe<std::uint32_t>();
  const auto added = reader.ReadLe<std::uint32_t>();
  prefix.payload_bytes = reader.ReadLe<std::uint64_t>();
  prefix.payload_checksum = reader.ReadLe<std::uint64_t>();
  // The prefix is read before its checksum can be compared, so its sizes are checked before a
  // caller reads that many bytes because of them.
  if (!reader.ok() || prefix.head_bytes < kRecordPrefixBytes ||
      added > prefix.head_bytes - kRecordPrefixBytes) {
    return Damaged(kPackPart, "a record has an impossible size");
  }
  if (prefix.head_bytes > limits::kPackStartBytesMax) {
    return Damaged(kPackPart, "the head of a record is too long");
  }
  return prefix;
}

Result<std::span<const std::byte>> CheckRecordHead(std::uint64_t identity, std::uint64_t offset,
                                                   std::span<const std::byte> head) {
  FOREBAY_ASSIGN(const RecordPrefix prefix, ReadRecordPrefix(head));
  if (head.size() < prefix.head_bytes) return Damaged(kPackPart, "the head of a record ends early");
  // The number of added bytes is the second word of the covered part; RecordPrefix does not have
  // it. ReadRecordPrefix has checked that the added bytes end within the head.
  const auto added_bytes =
      ByteReader(head.subspan(kRecordCoveredOffset + 4)).ReadLe<std::uint32_t>();
  const std::span<const std::byte> covered =
      head.subspan(kRecordCoveredOffset, kRecordPrefixBytes - kRecordCoveredOffset + added_bytes);
  if (Checksum(RecordIdentity(identity, prefix.type, offset, covered.size()), covered) !=
      prefix.head_checksum) {
    return Damaged(kPackPart, "the record at byte " + std::to_string(offset) +
                   " does not match its checksum");
  }
  // Padding is left out, so that a parser can ask whether the added bytes end where it does.
  return head.subspan(kRecordPrefixBytes, added_bytes);
}

// The offset is complemented, so that head and payload are never hashed under the same identity.
std::uint64_t PayloadChecksum(std::uint64_t identity, RecordType type, std::uint64_t offset,
                              std::span<const std::byte> payload) {
  return Checksum(RecordIdentity(identity, type, ~offset, payload.size()), payload);
}

// The identity of a sample takes in its pack, field, tile, number and, of a part, its place in the
// sample, so a sample that is decoded to another place does not pass.
std::uint64_t SampleChecksum(std::uint64_t identity, std::uint32_t field, std::uint32_t tile,
                             std::uint64_t sample, std::uint64_t part_offset,
                             std::span<const std::byte> bytes) {
  return Checksum({.dataset = identity ^ part_offset,
                   .object = std::uint64_t{field} << 32 | tile,
                   .offset = sample,
                   .length = bytes.size()},
                  bytes);
}

ChunkShape BytesShape(std::uint64_t bytes) {
  return {.dtype = Dtype::kBytes,
          .samples = 1,
          .rank = 1,
          // Fits: callers have compared the size with kChunkBytesMax, which is far below 2^32.
          .extent = {static_cast<std::uint32_t>(bytes), 1, 1, 1}};
}

std::uint64_t ChunkHead::ChecksumOf(std::uint32_t index) const {
  return ByteReader(checksums.subspan(std::size_t{index} * 8, 8)).ReadLe<std::uint64_t>();
}

std::uint32_t ChunkHead::LengthOf(std::uint32_t index) const {
  return ByteReader(lengths.subspan(std::size_t{index} * 4, 4)).ReadLe<std::uint32_t>();
}

std::vector<std::byte> WriteChunkHead(const ChunkHead& head) {
  ByteWriter writer;
  writer.Le(head.field);
  writer.Le(head.tile);
  writer.Le(head.first_sample);
  writer.Le(head.sample_count);
  writer.Le(static_cast<std::uint8_t>(head.codec));
  writer.Le(static_cast<std::uint8_t>(head.begins_sequence ? 1 : 0));
  writer.Le(std::uint16_t{0});
  writer.Le(head.raw_bytes);
  writer.Le(head.part_offset);
  writer.Le(head.sample_bytes);
  writer.Bytes(head.checksums);
  writer.Bytes(head.lengths);
  return writer.Release();
}

Result<ChunkHead> ReadChunkHead(const PackSchema& schema, std::span<const std::byte> added) {
  ByteReader reader(added);
  ChunkHead head;
  head.field = reader.ReadLe<std::uint32_t>();
  head.tile = reader.ReadLe<std::uint32_t>();
  head.first_sample = reader.ReadLe<std::uint64_t>();
  head.sample_count = reader.ReadLe<std::uint32_t>();
  const auto codec = reader.ReadLe<std::uint8_t>();
  const auto flags = reader.ReadLe<std::uint8_t>();
  head.begins_sequence = (flags & 1) != 0;
  static_cast<void>(reader.ReadLe<std::uint16_t>());
  head.raw_bytes = reader.ReadLe<std::uint64_t>();
  head.part_offset = reader.ReadLe<std::uint64_t>();
  head.sample_bytes = reader.ReadLe<std::uint64_t>();
  if (!reader.ok() || head.field >= schema.fields.size()) {
    return Damaged(kPackPart, "a chunk names a field that does not exist");
  }
  const PackField& field = schema.fields[head.field];
  // Refused and not ignored: an unknown codec or flag changes what the payload means.
  if (codec > static_cast<std::uint8_t>(ChunkCodec::kCoded) || flags > 1) {
    return Error(ErrorCode::kUnimplemented, "pack: a chunk of unknown codec " +
                                                std::to_string(codec) +
                                                " or flags; use a newer reader");
  }
  head.codec = static_cast<ChunkCodec>(codec);
  // Each sample has a checksum of 8 bytes; one of a variable field has a length of 4 bytes, too.
  // The comparison comes before Take(), so the two spans have exactly these sizes.
  if (head.tile >= field.tiles() || head.sample_count == 0 ||
      head.sample_count > field.samples_per_chunk || head.raw_bytes > limits::kChunkBytesMax ||
      head.first_sample > limits::kSampleCountMax ||
      added.size() - reader.offset() !=
          std::size_t{head.sample_count} * (field.variable() ? 12 : 8)) {
    return Damaged(kPackPart, "a chunk of field " + field.name + " has an impossible size");
  }
  head.checksums = reader.Take(std::size_t{head.sample_count} * 8);
  if (!field.variable()) {
    // The size of a fixed field follows from its shape, so a head that says another one is refused
    // before anything is decoded into memory of the shape's size.
    if (head.raw_bytes != field.Shape(head.tile, head.sample_count).bytes() ||
        head.sample_bytes != 0 || head.part_offset != 0) {
      return Damaged(kPackPart, "a chunk of field " + field.name + " has the wrong size");
    }
    return head;
  }
  std::uint64_t total = 0;
  head.lengths = reader.Take(std::size_t{head.sample_count} * 4);
  // At most kChunkSamplesMax lengths below 2^32: the sum cannot overflow 64 bits.
  for (std::uint32_t i = 0; i < head.sample_count; ++i) total += head.LengthOf(i);
  // A sample that is too large for a chunk is cut into parts, each alone in its chunk. All parts
  // but the last are full, so the parts of a sample are determined by its length.
  const bool part = head.sample_bytes != 0;
  if (total != head.raw_bytes || (!part && head.part_offset != 0) ||
      (part && (head.sample_count != 1 || head.sample_bytes > limits::kSampleBytesMax ||
                head.part_offset >= head.sample_bytes ||
                head.raw_bytes != std::min(limits::kChunkBytesMax,
                                           head.sample_bytes - head.part_offset)))) {
    return Damaged(kPackPart, "a chunk of field " + field.name + " has lengths that do not add up");
  }
  return head;
}

}  // namespace forebay::compress
