/* The bytes of a file: mapped as they are, or inflated when it is a gzip file; and lines of text. */
#ifndef HT_FORMAT_CONTENT_H
#define HT_FORMAT_CONTENT_H

#include <halftone/context.h>

typedef struct ht_content {
    const uint8_t *data;
    size_t length;
    void *mapped; /* NULL, or what to unmap */
    size_t mapped_length;
    uint8_t *inflated; /* NULL, or what to free */
} ht_content;

/* The bytes of the file, mapped. On failure *out is empty and need not be closed. */
ht_status ht_content_map(ht_content *out, ht_context *ctx, const char *path);
/* The same, but a gzip file (known by its first bytes, not its name) is inflated into memory. */
ht_status ht_content_open(ht_content *out, ht_context *ctx, const char *path);
void ht_content_close(ht_content *content);
/* These bytes were read: pages of a mapped file that lie in them are the process's no more, until they are read again. */
void ht_content_forget(const ht_content *content, const uint8_t *data, size_t bytes);
/* Bytes of all files that the process has mapped now: what it reads of them counts as memory that it holds. */
int64_t ht_content_mapped_bytes(void);

/* Inflates all members of a gzip file. *out is heap memory. Refused: damage, a missing end, more than `most` bytes. */
ht_status ht_gz_inflate(ht_context *ctx, const char *name, const uint8_t *data, size_t length, size_t most,
                        uint8_t **out, size_t *out_length);

/* Lines of text in memory: start with {.at = data, .end = data + length}. */
typedef struct ht_lines {
    const char *at, *end;
    int64_t number; /* of the line given last, from 1 */
} ht_lines;

/* The next line without its end (LF or CR LF); false after the last. A final LF opens no further line. */
bool ht_line_next(ht_lines *lines, const char **line, size_t *length);

/* Length of the UTF-8 character at `at`, and its code point; 0 when it is invalid (truncated, overlong, a surrogate,
 * too large). */
int ht_utf8_next(const char *at, const char *end, uint32_t *code);
/* Writes 1 to 4 bytes, returns how many. */
int ht_utf8_put(char *out, uint32_t code);

#endif
