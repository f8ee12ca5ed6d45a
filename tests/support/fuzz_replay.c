/* Runs a fuzz target over files and folders of inputs, without libFuzzer: the corpus as a test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t length = 0, capacity = 0;
    uint8_t *data = NULL;
    for (size_t got = 1; file && got > 0; length += got) {
        if (length == capacity) data = realloc(data, capacity += 1 << 16);
        if (!data) abort();
        got = fread(data + length, 1, capacity - length, file);
    }
    if (!file || ferror(file)) {
        perror(path);
        exit(1);
    }
    fclose(file);
    /* Memory of exactly that size, so that a sanitizer sees a step too far. */
    uint8_t *exact = malloc(length ? length : 1);
    if (!exact) abort();
    if (length) memcpy(exact, data, length);
    free(data);
    LLVMFuzzerTestOneInput(exact, length);
    free(exact);
}

static size_t replay(const char *path)
{
    size_t count = 0;
    DIR *folder = opendir(path);
    if (!folder) {
        replay_file(path);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char inside[4096];
        if (entry->d_name[0] == '.') continue;
        int length = snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof inside) abort();
        printf("%s\n", entry->d_name);
        fflush(stdout);
        replay_file(inside);
        count++;
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    for (int i = 1; i < argc; i++) count += replay(argv[i]);
    if (count == 0) {
        fprintf(stderr, "usage: %s FOLDER...   with at least one file in it\n", argv[0]);
        return 2;
    }
    printf("%zu inputs\n", count);
    return 0;
}
