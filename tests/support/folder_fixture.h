/* Temporary folders for tests. */
#ifndef HT_TESTS_FOLDER_FIXTURE_H
#define HT_TESTS_FOLDER_FIXTURE_H

#include <stddef.h>

enum { TEST_FOLDER_BYTES = 64 };

/* cmocka's set-up and tear-down of a case: a new folder, whose path is in test_folder. */
extern char test_folder[TEST_FOLDER_BYTES];
int test_folder_setup(void **state);
int test_folder_teardown(void **state);

/* A new folder below TMPDIR; 0, or -1 and errno. */
int folder_make(char folder[TEST_FOLDER_BYTES]);
/* With all that it holds. */
void folder_remove(const char *path);
/* folder/name in static memory. */
const char *folder_at(const char *folder, const char *name);
/* How many names it holds. */
int folder_count(const char *folder);

/* A whole file of at most 1 MiB, to be freed; and one anew. */
char *file_read(const char *path, size_t *length);
void file_write(const char *path, const char *data, size_t length);

#endif
