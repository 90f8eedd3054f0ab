/* Reads packs and sets of packs (docs/pack.md) from C. Plain C99: no C++ types, no exceptions, and
 * no memory that one side allocates and the other side frees.
 *
 *   #include <stdio.h>
 *   #include <stdlib.h>
 *
 *   int read_first_image(const char* path, void* pixels, size_t pixel_bytes);
 *   int read_first_image(const char* path, void* pixels, size_t pixel_bytes) {
 *     forebay_pack* pack;
 *     forebay_pack_error error;
 *     forebay_pack_scratch scratch = {NULL, 0};
 *     uint32_t field;
 *     int code = forebay_pack_open(path, &pack, &error);
 *     if (code == 0) code = forebay_pack_find_field(pack, "image", &field, &error);
 *     if (code == 0) code = forebay_pack_scratch_bytes(pack, 0, 1, &scratch.bytes, &error);
 *     if (code == 0) {
 *       scratch.memory = malloc(scratch.bytes);
 *       code = forebay_pack_read(pack, field, 0, 1, NULL, pixels, pixel_bytes, NULL, scratch,
 *                                &error);
 *       free(scratch.memory);
 *     }
 *     if (code != 0) fprintf(stderr, "%s\n", error.message);
 *     forebay_pack_close(pack);
 *     return code;
 *   }
 *
 * Functions that can fail return 0, or one of the codes below. With a code they fill `*error`,
 * unless it is NULL, and what they were asked to write is undefined. Strings are UTF-8 with a final
 * zero.
 * Many threads may read one open pack at once, each with scratch memory of its own. While a pack is
 * being closed, no other call on it may run. Reading allocates no memory, except to open a shard of
 * a set, and for keys and error messages.
 *
 * Later versions may add functions and constants; what is here stays.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FOREBAY_PACK_EXPORT __attribute__((visibility("default")))
#else
#define FOREBAY_PACK_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FOREBAY_PACK_RANK_MAX 4
#define FOREBAY_PACK_MESSAGE_BYTES 512
#define FOREBAY_PACK_KEY_BYTES_MAX 1024

/* Numbers of gRPC's codes. */
enum forebay_pack_code {
  FOREBAY_PACK_OK = 0,
  FOREBAY_PACK_INVALID_ARGUMENT = 3,     /* not a pack, a wrong argument, too little memory */
  FOREBAY_PACK_NOT_FOUND = 5,            /* no such file, shard or field */
  FOREBAY_PACK_PERMISSION_DENIED = 7,
  FOREBAY_PACK_RESOURCE_EXHAUSTED = 8,   /* a limit, or no memory to open it */
  FOREBAY_PACK_FAILED_PRECONDITION = 9,  /* a shard of another schema than its set, or a learned
                                          * predictor that is not beside the pack */
  FOREBAY_PACK_OUT_OF_RANGE = 11,        /* samples, elements or fields that do not exist */
  FOREBAY_PACK_UNIMPLEMENTED = 12,       /* written by a newer version */
  FOREBAY_PACK_INTERNAL = 13,
  FOREBAY_PACK_DATA_LOSS = 15            /* damaged: the message names file, field and samples */
};

typedef struct forebay_pack_error {
  int code;
  int system_errno;                         /* 0 if no system call failed */
  char message[FOREBAY_PACK_MESSAGE_BYTES]; /* cut off if it is longer */
} forebay_pack_error;

/* Element types; elements are little-endian. */
enum forebay_pack_dtype {
  FOREBAY_PACK_BYTES = 0,
  FOREBAY_PACK_U8 = 1,
  FOREBAY_PACK_I8 = 2,
  FOREBAY_PACK_U16 = 3,
  FOREBAY_PACK_I16 = 4,
  FOREBAY_PACK_I32 = 5,
  FOREBAY_PACK_I64 = 6,
  FOREBAY_PACK_F16 = 7,
  FOREBAY_PACK_BF16 = 8,
  FOREBAY_PACK_F32 = 9,
  FOREBAY_PACK_F64 = 10
};

enum forebay_pack_kind {
  FOREBAY_PACK_IMAGE = 0,
  FOREBAY_PACK_LABEL = 1,
  FOREBAY_PACK_MASK = 2,
  FOREBAY_PACK_METADATA = 3,
  FOREBAY_PACK_RAW = 4
};

/* A field that every sample has. */
typedef struct forebay_pack_field {
  const char* name;       /* valid until the pack is closed */
  int kind, dtype;
  uint32_t element_bytes;
  int variable;           /* 1: byte strings of any length; no shape then */
  uint32_t rank;          /* axes; the last one varies fastest */
  uint32_t extent[FOREBAY_PACK_RANK_MAX]; /* 1 beyond the rank */
  uint64_t sample_bytes;  /* of a whole sample; 0 if variable */
  int channel_axis;       /* -1: none */
  uint32_t valid_bits;    /* of an element; 0: all */
  int has_fill;           /* 1: elements with these bits stand for missing ones */
  uint64_t fill_bits;
  int bound_mode;         /* 0: lossless; others in docs/pack.md */
  double bound_absolute, bound_relative;
  uint32_t samples_per_chunk;             /* the most samples that are decoded together */
  uint32_t tile[FOREBAY_PACK_RANK_MAX];   /* the part of a sample that is decoded together */
} forebay_pack_field;

/* A box of a sample's elements. */
typedef struct forebay_pack_region {
  uint32_t origin[FOREBAY_PACK_RANK_MAX];
  uint32_t extent[FOREBAY_PACK_RANK_MAX]; /* 1 beyond the rank */
} forebay_pack_region;

/* How many bytes two neighbouring samples, and two neighbouring elements along each axis, are apart
 * in the caller's memory. */
typedef struct forebay_pack_strides {
  size_t sample;
  size_t axis[FOREBAY_PACK_RANK_MAX];
} forebay_pack_strides;

/* Scratch memory that the caller provides: as many bytes as forebay_pack_scratch_bytes says, at any
 * alignment. */
typedef struct forebay_pack_scratch {
  void* memory;
  size_t bytes;
} forebay_pack_scratch;

typedef struct forebay_pack forebay_pack;

/* Opens a pack, or a set by its manifest. If a pack or a shard only names a learned predictor, the
 * predictor is looked for in the folder of `path`, in the file <SHA-256 in hexadecimal digits>.net.
 * `*pack` is NULL after an error. */
FOREBAY_PACK_EXPORT int forebay_pack_open(const char* path, forebay_pack** pack,
                                          forebay_pack_error* error);

/* Closes a pack and frees its memory. NULL is allowed. */
FOREBAY_PACK_EXPORT void forebay_pack_close(forebay_pack* pack);

FOREBAY_PACK_EXPORT uint64_t forebay_pack_sample_count(const forebay_pack* pack);
FOREBAY_PACK_EXPORT uint32_t forebay_pack_field_count(const forebay_pack* pack);
/* 1 if samples have keys, else 0. */
FOREBAY_PACK_EXPORT int forebay_pack_has_keys(const forebay_pack* pack);

/* Describes a field by its number. */
FOREBAY_PACK_EXPORT int forebay_pack_describe(const forebay_pack* pack, uint32_t field,
                                              forebay_pack_field* description,
                                              forebay_pack_error* error);

/* The number of a field by its name. */
FOREBAY_PACK_EXPORT int forebay_pack_find_field(const forebay_pack* pack, const char* name,
                                                uint32_t* field, forebay_pack_error* error);

/* How much scratch memory the calls below need for these samples. Of a set it opens the shards that
 * hold them; the 64 shards that were used last stay open. */
FOREBAY_PACK_EXPORT int forebay_pack_scratch_bytes(const forebay_pack* pack,
                                                   uint64_t first_sample, uint64_t count,
                                                   size_t* bytes, forebay_pack_error* error);

/* Reads a region of `count` samples of a field that is not variable. Element (i0 .. i3) of sample
 * s, counted from the region's origin and from `first_sample`, is written to `out` at the byte
 * s * strides->sample + i0 * strides->axis[0] + .. + i3 * strides->axis[3]; nothing else in `out`,
 * which has `out_bytes`, is written. A region of NULL means the whole sample. Strides of NULL mean
 * elements without gaps. */
FOREBAY_PACK_EXPORT int forebay_pack_read(const forebay_pack* pack, uint32_t field,
                                          uint64_t first_sample, uint64_t count,
                                          const forebay_pack_region* region, void* out,
                                          size_t out_bytes, const forebay_pack_strides* strides,
                                          forebay_pack_scratch scratch,
                                          forebay_pack_error* error);

/* The number of bytes of a field in one sample. */
FOREBAY_PACK_EXPORT int forebay_pack_sample_bytes(const forebay_pack* pack, uint32_t field,
                                                  uint64_t sample, forebay_pack_scratch scratch,
                                                  uint64_t* bytes, forebay_pack_error* error);

/* Reads the byte string of a variable field; `out_bytes` must be its length. */
FOREBAY_PACK_EXPORT int forebay_pack_read_bytes(const forebay_pack* pack, uint32_t field,
                                                uint64_t sample, void* out, size_t out_bytes,
                                                forebay_pack_scratch scratch,
                                                forebay_pack_error* error);

/* Writes a sample's key with a final zero; an empty text if the pack has no keys.
 * FOREBAY_PACK_KEY_BYTES_MAX + 1 bytes are always enough. A key may contain zeros, so its length is
 * written to `*key_bytes`, unless that is NULL. */
FOREBAY_PACK_EXPORT int forebay_pack_key(const forebay_pack* pack, uint64_t sample, char* key,
                                         size_t key_memory_bytes, size_t* key_bytes,
                                         forebay_pack_error* error);

#ifdef __cplusplus
}
#endif
