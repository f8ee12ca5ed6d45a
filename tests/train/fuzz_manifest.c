/* libFuzzer target: any bytes as the manifest of a snapshot. What is accepted can be printed, and reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "train/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void print_and_read(ht_context *ctx, ht_arena *arena, const ht_manifest *first)
{
    ht_text text = {0};
    ht_manifest again;
    if (ht_manifest_print(&text, ctx, first) != HT_OK) abort();
    if (ht_manifest_parse(&again, ctx, arena, "fuzz", text.data, text.length) != HT_OK) abort();
    if (ht_manifest_check(ctx, "fuzz", text.data, text.length) != HT_OK) abort();
    if (again.meta.step != first->meta.step || again.meta.position != first->meta.position ||
        again.meta.seed != first->meta.seed || again.meta.model_hash != first->meta.model_hash)
        abort();
    if (memcmp(again.files, first->files, sizeof again.files) != 0) abort();
    if (!same_text(again.meta.config_json, first->meta.config_json) || !same_text(again.meta.extra, first->meta.extra))
        abort();
    ht_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ht_context ctx = {0};
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    if (!arena) abort();
    if (ht_manifest_check(&ctx, "fuzz", (const char *)data, size) != HT_OK && !strstr(ctx.message, "fuzz")) abort();
    ctx.message[0] = '\0';
    if (ht_manifest_parse(&manifest, &ctx, arena, "fuzz", (const char *)data, size) == HT_OK)
        print_and_read(&ctx, arena, &manifest);
    else if (!strstr(ctx.message, "fuzz")) /* refused without a name */
        abort();
    ht_arena_free(arena);
    return 0;
}
