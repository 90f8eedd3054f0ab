/* The C API as a C99 program uses it: every call, on the golden packs, and what each refuses.
 *
 *     pack_c_api_test GOLDEN_FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forebay/pack.h"

static int failures = 0;

#define EXPECT(condition)                                                   \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                           \
    }                                                                       \
  } while (0)

/* Allocations of the whole process; the build says whether they can be counted, which sanitizers
 * and other C libraries prevent. */
static volatile unsigned long allocations = 0;
#if defined(COUNTS_ALLOCATIONS)
extern void* __libc_malloc(size_t bytes);
extern void* __libc_calloc(size_t count, size_t bytes);
extern void* __libc_realloc(void* memory, size_t bytes);
void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  ++allocations;
  return __libc_realloc(memory, bytes);
}
#endif

static const char* folder;

static forebay_pack* open_golden(const char* name) {
  char path[4096];
  forebay_pack* pack = NULL;
  forebay_pack_error error = {0, 0, ""};
  snprintf(path, sizeof(path), "%s/good/%s", folder, name);
  if (forebay_pack_open(path, &pack, &error) != FOREBAY_PACK_OK) {
    fprintf(stderr, "%s\n", error.message);
    exit(1);
  }
  return pack;
}

static forebay_pack_scratch scratch_for(const forebay_pack* pack) {
  forebay_pack_scratch scratch = {NULL, 0};
  EXPECT(forebay_pack_scratch_bytes(pack, 0, forebay_pack_sample_count(pack), &scratch.bytes,
                                    NULL) == 0);
  scratch.memory = malloc(scratch.bytes + 1);
  return scratch;
}

/* What the golden packs are made of. */
static unsigned char ramp(size_t i, size_t sample) {
  return (unsigned char)((i / 5 + i % 3 * 2 + sample * 3 + i * i / 97) & 0xFF);
}

static void reads_whole_samples(const char* name, uint64_t samples) {
  forebay_pack* pack = open_golden(name);
  forebay_pack_scratch scratch = scratch_for(pack);
  forebay_pack_field field;
  forebay_pack_error error;
  unsigned char pictures[12 * 16 * 32];
  unsigned char labels[12 * 4];
  unsigned long before;
  uint32_t number = 9;
  size_t i, s;
  EXPECT(forebay_pack_sample_count(pack) == samples);
  EXPECT(forebay_pack_field_count(pack) == 2);
  EXPECT(forebay_pack_has_keys(pack) == 0);
  EXPECT(forebay_pack_find_field(pack, "class", &number, &error) == 0 && number == 1);
  EXPECT(forebay_pack_describe(pack, 0, &field, &error) == 0);
  EXPECT(strcmp(field.name, "picture") == 0);
  EXPECT(field.kind == FOREBAY_PACK_IMAGE && field.dtype == FOREBAY_PACK_U8);
  EXPECT(field.rank == 2 && field.extent[0] == 16 && field.extent[1] == 32);
  EXPECT(field.extent[2] == 1 && field.extent[3] == 1 && field.tile[1] == 32);
  EXPECT(field.sample_bytes == 512 && field.element_bytes == 1 && !field.variable);
  EXPECT(field.channel_axis == -1 && field.bound_mode == 0 && field.samples_per_chunk == 4);
  before = allocations;
  EXPECT(forebay_pack_read(pack, 0, 0, samples, NULL, pictures, (size_t)samples * 512, NULL,
                           scratch, &error) == 0);
  EXPECT(forebay_pack_read(pack, 1, 0, samples, NULL, labels, (size_t)samples * 4, NULL, scratch,
                           &error) == 0);
#if defined(COUNTS_ALLOCATIONS)
  EXPECT(before > 0 && allocations == before);
#endif
  (void)before;
  for (s = 0; s < samples; ++s) {
    for (i = 0; i < 512; ++i) EXPECT(pictures[s * 512 + i] == ramp(i, s % 4));
    for (i = 0; i < 4; ++i) EXPECT(labels[s * 4 + i] == ramp(i, s % 4));
  }
  free(scratch.memory);
  forebay_pack_close(pack);
}

/* Samples 1 and 2, rows 3 to 5, columns 10 to 14, every second byte of a buffer. */
static void reads_regions_into_strides(const char* name) {
  forebay_pack* pack = open_golden(name);
  forebay_pack_scratch scratch = scratch_for(pack);
  const forebay_pack_region region = {{3, 10, 0, 0}, {3, 5, 1, 1}};
  const forebay_pack_strides strides = {100, {20, 2, 1, 1}};
  unsigned char out[200];
  unsigned char dense[2 * 15];
  unsigned long before;
  size_t s, y, x, written = 0, i;
  memset(out, 0xEE, sizeof(out));
  before = allocations;
  EXPECT(forebay_pack_read(pack, 0, 1, 2, &region, out, sizeof(out), &strides, scratch, NULL) ==
         0);
  EXPECT(forebay_pack_read(pack, 0, 1, 2, &region, dense, sizeof(dense), NULL, scratch, NULL) ==
         0);
#if defined(COUNTS_ALLOCATIONS)
  EXPECT(allocations == before);
#endif
  (void)before;
  for (s = 0; s < 2; ++s) {
    for (y = 0; y < 3; ++y) {
      for (x = 0; x < 5; ++x) {
        const unsigned char wanted = ramp((3 + y) * 32 + 10 + x, s + 1);
        EXPECT(out[s * 100 + y * 20 + x * 2] == wanted);
        EXPECT(dense[s * 15 + y * 5 + x] == wanted);
        out[s * 100 + y * 20 + x * 2] = 0xEE;
        ++written;
      }
    }
  }
  for (i = 0; i < sizeof(out); ++i) EXPECT(out[i] == 0xEE);
  EXPECT(written == 30);
  free(scratch.memory);
  forebay_pack_close(pack);
}

static void reads_byte_strings_and_keys(void) {
  forebay_pack* pack = open_golden("keys.fbp");
  forebay_pack_scratch scratch = scratch_for(pack);
  forebay_pack_field field;
  forebay_pack_error error;
  char key[FOREBAY_PACK_KEY_BYTES_MAX + 1];
  unsigned char text[64];
  uint64_t bytes = 0;
  size_t key_bytes = 0, s, i;
  EXPECT(forebay_pack_has_keys(pack) == 1);
  EXPECT(forebay_pack_describe(pack, 1, &field, NULL) == 0);
  EXPECT(field.variable == 1 && field.sample_bytes == 0 && field.dtype == FOREBAY_PACK_BYTES);
  for (s = 0; s < 5; ++s) {
    EXPECT(forebay_pack_sample_bytes(pack, 1, s, scratch, &bytes, &error) == 0);
    EXPECT(bytes == s * 11 % 23);
    EXPECT(forebay_pack_read_bytes(pack, 1, s, text, (size_t)bytes, scratch, &error) == 0);
    for (i = 0; i < bytes; ++i) EXPECT(text[i] == ramp(i, s));
  }
  EXPECT(forebay_pack_sample_bytes(pack, 0, 2, scratch, &bytes, &error) == 0 && bytes == 8);
  EXPECT(forebay_pack_key(pack, 1, key, sizeof(key), &key_bytes, &error) == 0);
  EXPECT(strcmp(key, "b/2") == 0 && key_bytes == 3);
  EXPECT(forebay_pack_key(pack, 4, key, 5, NULL, &error) == 0 && strcmp(key, "last") == 0);
  EXPECT(forebay_pack_key(pack, 4, key, 4, NULL, &error) == FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_key(pack, 5, key, sizeof(key), NULL, &error) == FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_read_bytes(pack, 1, 1, text, 1, scratch, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_read_bytes(pack, 0, 1, text, 8, scratch, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_read(pack, 1, 0, 1, NULL, text, 8, NULL, scratch, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  free(scratch.memory);
  forebay_pack_close(pack);
}

static void refuses_what_does_not_fit(const char* name, uint64_t samples) {
  forebay_pack* pack = open_golden(name);
  forebay_pack_scratch scratch = scratch_for(pack);
  forebay_pack_scratch little = scratch;
  const forebay_pack_region outside = {{0, 30, 0, 0}, {16, 3, 1, 1}};
  const forebay_pack_region huge = {{0, 0, 0, 0}, {0xFFFFFFFFU, 0xFFFFFFFFU, 1, 1}};
  const forebay_pack_strides wide = {(size_t)-1, {(size_t)-1, 1, 1, 1}};
  unsigned char out[512];
  forebay_pack_field field;
  forebay_pack_error error;
  uint64_t bytes;
  uint32_t number;
  size_t size;
  little.bytes = 3;
  EXPECT(forebay_pack_read(pack, 0, 0, 1, NULL, out, 512, NULL, little, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(error.code == FOREBAY_PACK_INVALID_ARGUMENT && strstr(error.message, "scratch") != NULL);
  EXPECT(forebay_pack_read(pack, 0, 0, 1, NULL, out, 511, NULL, scratch, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_read(pack, 0, 0, 1, NULL, NULL, 512, NULL, scratch, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_read(pack, 0, 0, 2, NULL, out, 512, &wide, scratch, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_read(pack, 0, 0, 1, &outside, out, 512, NULL, scratch, &error) ==
         FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_read(pack, 0, 0, 1, &huge, out, 512, NULL, scratch, &error) ==
         FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_read(pack, 0, samples, 1, NULL, out, 512, NULL, scratch, &error) ==
         FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_read(pack, 0, 1, (uint64_t)-1, NULL, out, 512, NULL, scratch, &error) ==
         FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_read(pack, 2, 0, 1, NULL, out, 512, NULL, scratch, &error) ==
         FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_sample_bytes(pack, 2, 0, scratch, &bytes, &error) ==
         FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_sample_bytes(pack, 0, samples, scratch, &bytes, &error) ==
         FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_describe(pack, 2, &field, &error) == FOREBAY_PACK_OUT_OF_RANGE);
  EXPECT(forebay_pack_find_field(pack, "none", &number, &error) == FOREBAY_PACK_NOT_FOUND);
  EXPECT(forebay_pack_describe(pack, 0, NULL, &error) == FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_find_field(pack, NULL, &number, &error) == FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_scratch_bytes(NULL, 0, 1, &size, &error) == FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_read(NULL, 0, 0, 1, NULL, out, 512, NULL, scratch, NULL) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_read_bytes(NULL, 0, 0, out, 1, scratch, &error) ==
         FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_key(pack, 0, NULL, 0, NULL, &error) == FOREBAY_PACK_INVALID_ARGUMENT);
  EXPECT(forebay_pack_sample_count(NULL) == 0 && forebay_pack_field_count(NULL) == 0);
  EXPECT(forebay_pack_has_keys(NULL) == 0);
  free(scratch.memory);
  forebay_pack_close(pack);
  forebay_pack_close(NULL);
}

static void opens_only_packs(void) {
  static const struct {
    const char* name;
    int code;
  } bad[] = {{"bad/none.fbp", FOREBAY_PACK_NOT_FOUND},
             {"bad/wrong_magic.fbp", FOREBAY_PACK_INVALID_ARGUMENT},
             {"bad/torn_footer.fbp", FOREBAY_PACK_DATA_LOSS},
             {"bad/newer_version_v2.fbp", FOREBAY_PACK_UNIMPLEMENTED},
             {"bad/set_list_checksum.fbset", FOREBAY_PACK_DATA_LOSS},
             {"bad", FOREBAY_PACK_INVALID_ARGUMENT}};
  size_t i;
  for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    char path[4096];
    forebay_pack* pack = (forebay_pack*)&failures;
    forebay_pack_error error;
    snprintf(path, sizeof(path), "%s/%s", folder, bad[i].name);
    EXPECT(forebay_pack_open(path, &pack, &error) == bad[i].code);
    EXPECT(pack == NULL && error.code == bad[i].code);
    EXPECT(strstr(error.message, bad[i].name) != NULL);
    EXPECT(strlen(error.message) < sizeof(error.message));
    EXPECT(forebay_pack_open(path, &pack, NULL) == bad[i].code);
  }
  EXPECT(forebay_pack_open(NULL, NULL, NULL) == FOREBAY_PACK_INVALID_ARGUMENT);
}

/* Messages longer than their memory are cut off. */
static void cuts_long_messages(void) {
  char path[2000];
  forebay_pack* pack = NULL;
  forebay_pack_error error;
  memset(path, 'x', sizeof(path) - 1);
  path[sizeof(path) - 1] = '\0';
  EXPECT(forebay_pack_open(path, &pack, &error) != 0);
  EXPECT(strlen(error.message) == sizeof(error.message) - 1);
}

/* The pack's bytes under another name in the working folder, where no predictor lies. */
static void copy_golden(const char* name, const char* to) {
  char path[4096];
  char bytes[4096];
  size_t count;
  FILE* source;
  FILE* copy;
  snprintf(path, sizeof(path), "%s/good/%s", folder, name);
  source = fopen(path, "rb");
  copy = fopen(to, "wb");
  if (source == NULL || copy == NULL) exit(1);
  while ((count = fread(bytes, 1, sizeof(bytes), source)) > 0) fwrite(bytes, 1, count, copy);
  fclose(source);
  EXPECT(fclose(copy) == 0);
}

static void finds_predictors_beside_the_pack(void) {
  static const char* copied = "pack_c_api_copy.fbp";
  forebay_pack* held = open_golden("learned.fbp");
  forebay_pack* named = open_golden("learned_named.fbp");
  forebay_pack_scratch scratch = scratch_for(held);
  forebay_pack_scratch other = scratch_for(named);
  forebay_pack_field field;
  forebay_pack_error error;
  unsigned char* samples[2];
  size_t bytes;
  EXPECT(forebay_pack_describe(held, 0, &field, NULL) == 0);
  bytes = (size_t)(field.sample_bytes * forebay_pack_sample_count(held));
  EXPECT(bytes > 0 && forebay_pack_sample_count(named) == forebay_pack_sample_count(held));
  samples[0] = malloc(bytes);
  samples[1] = malloc(bytes);
  EXPECT(forebay_pack_read(held, 0, 0, forebay_pack_sample_count(held), NULL, samples[0], bytes,
                           NULL, scratch, NULL) == 0);
  EXPECT(forebay_pack_read(named, 0, 0, forebay_pack_sample_count(held), NULL, samples[1], bytes,
                           NULL, other, NULL) == 0);
  EXPECT(memcmp(samples[0], samples[1], bytes) == 0);
  free(samples[0]);
  free(samples[1]);
  free(scratch.memory);
  free(other.memory);
  forebay_pack_close(held);
  forebay_pack_close(named);
  copy_golden("learned_named.fbp", copied);
  EXPECT(forebay_pack_open(copied, &named, &error) == FOREBAY_PACK_FAILED_PRECONDITION);
  EXPECT(named == NULL && strstr(error.message, ".net: there is no such file") != NULL);
  remove(copied);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  folder = argv[1];
  reads_whole_samples("balanced.fbp", 4);
  reads_whole_samples("dense.fbp", 4);
  reads_whole_samples("fast.fbp", 4);
  reads_whole_samples("pictures.fbset", 12);
  reads_regions_into_strides("dense.fbp");
  reads_regions_into_strides("pictures.fbset");
  reads_byte_strings_and_keys();
  refuses_what_does_not_fit("dense.fbp", 4);
  refuses_what_does_not_fit("pictures.fbset", 12);
  opens_only_packs();
  finds_predictors_beside_the_pack();
  cuts_long_messages();
  if (failures != 0) fprintf(stderr, "%d expectations failed\n", failures);
  return failures == 0 ? 0 : 1;
}
