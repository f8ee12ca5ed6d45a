/* safetensors: named arrays in one file. Eight bytes of header length, a JSON header, the data. The entries must tile the
 * data exactly: no gap, no overlap, nothing left over. */
#ifndef HT_FORMAT_SAFETENSORS_H
#define HT_FORMAT_SAFETENSORS_H

#include "format/array.h"

typedef struct ht_safetensors ht_safetensors;
typedef struct ht_safetensors_writer ht_safetensors_writer;

typedef struct ht_named_array {
    const char *name;
    ht_array array;
} ht_named_array;

/* Maps the file; tensors that ht_safetensors_write_sparse stored sparse are dense again. What comes out of it lives until ht_safetensors_free. */
ht_status ht_safetensors_open(ht_safetensors **out, ht_context *ctx, const char *path);
/* The same on the caller's bytes, which are borrowed. */
ht_status ht_safetensors_parse(ht_safetensors **out, ht_context *ctx, const char *name, const uint8_t *data,
                               size_t length);
void ht_safetensors_free(ht_safetensors *file);
/* The tensor was read: what is mapped of it holds no memory of the process, until it is read again. */
void ht_safetensors_forget(const ht_safetensors *file, const ht_array *array);

size_t ht_safetensors_count(const ht_safetensors *file);
/* In the order of the header. */
const ht_named_array *ht_safetensors_at(const ht_safetensors *file, size_t index);
/* NULL when there is none of that name. */
const ht_named_array *ht_safetensors_find(const ht_safetensors *file, const char *name);
/* A value of __metadata__, or NULL. */
const char *ht_safetensors_metadata(const ht_safetensors *file, const char *key);

/* The writer is sequential: all names and shapes first, then the bytes of the arrays one after the other, in pieces of
 * any size. `metadata` is a list of keys and values that ends with NULL, or NULL. Arrays are written in the order
 * given: wide types first keeps them aligned. The file is complete and synced once ht_safetensors_finish has returned
 * HT_OK. */
ht_status ht_safetensors_create(ht_safetensors_writer **out, ht_context *ctx, const char *path,
                                const ht_named_array *arrays, size_t count, const char *const *metadata);
ht_status ht_safetensors_append(ht_safetensors_writer *writer, const void *data, size_t bytes);
/* Frees the writer in any case; *checksum and *bytes (of the whole file) may be NULL. */
ht_status ht_safetensors_finish(ht_safetensors_writer *writer, uint64_t *checksum, int64_t *bytes);
/* The tensors of a file, in another one: matrices of floats with so many zeros that it saves bytes as a mask and the other
 * elements (decision 0076). *some: there are such; without them there is no file. */
ht_status ht_safetensors_write_sparse(ht_context *ctx, const ht_safetensors *from, const char *path, bool *some,
                                      uint64_t *checksum, int64_t *bytes);
/* Gives up; the unfinished file stays for the caller to remove. */
void ht_safetensors_abandon(ht_safetensors_writer *writer);

#endif
