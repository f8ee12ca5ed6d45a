#include "folder_fixture.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

char test_folder[TEST_FOLDER_BYTES];

int test_folder_setup(void **state)
{
    (void)state;
    return folder_make(test_folder);
}

int test_folder_teardown(void **state)
{
    (void)state;
    folder_remove(test_folder);
    return 0;
}

int folder_make(char folder[TEST_FOLDER_BYTES])
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, TEST_FOLDER_BYTES, "%.40s/halftone-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

void folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char inside[1024];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (unlink(inside) != 0) folder_remove(inside);
    }
    if (folder) closedir(folder);
    rmdir(path);
}

const char *folder_at(const char *folder, const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

int folder_count(const char *folder)
{
    int count = 0;
    DIR *open_folder = opendir(folder);
    for (struct dirent *entry; open_folder && (entry = readdir(open_folder));) count += entry->d_name[0] != '.';
    if (open_folder) closedir(open_folder);
    return count;
}

char *file_read(const char *path, size_t *length)
{
    enum { MOST_BYTES = 1 << 20 };
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *data = malloc(MOST_BYTES);
    assert_non_null(data);
    *length = fread(data, 1, MOST_BYTES, file);
    fclose(file);
    return data;
}

void file_write(const char *path, const char *data, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}
