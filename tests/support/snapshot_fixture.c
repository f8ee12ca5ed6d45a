#include "snapshot_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tiny_model.h"

static void must(const snapshot_fixture *w, ht_status status)
{
    if (status == HT_OK) return;
    fprintf(stderr, "%s\n", w->ctx ? ht_context_message(w->ctx) : ht_status_name(status));
    abort();
}

static void begin(snapshot_fixture *w)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = 1;
    must(w, ht_context_create(&w->ctx, &opts));
}

static void finish(snapshot_fixture *w, uint64_t seed)
{
    ht_session_opts opts = HT_SESSION_OPTS;
    opts.seed = seed;
    must(w, ht_plan_create(&w->plan, w->g, NULL));
    must(w, ht_session_create(&w->s, w->plan, &opts));
}

snapshot_fixture snapshot_fixture_trained(const ht_train_opts *opts, uint64_t seed)
{
    snapshot_fixture w = {0};
    begin(&w);
    must(&w, ht_graph_create(&w.g, w.ctx));
    tiny_build(w.g, 0.1);
    must(&w, ht_graph_train(w.g, opts));
    finish(&w, seed);
    return w;
}

snapshot_fixture snapshot_fixture_tiny(uint64_t seed)
{
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 1e-2;
    return snapshot_fixture_trained(&opts, seed);
}

snapshot_fixture snapshot_fixture_text(const char *text)
{
    snapshot_fixture w = {0};
    begin(&w);
    must(&w, ht_graph_parse(&w.g, w.ctx, "test", text, strlen(text)));
    finish(&w, 0);
    return w;
}

void snapshot_fixture_end(snapshot_fixture *w)
{
    ht_session_free(w->s);
    ht_plan_free(w->plan);
    ht_graph_free(w->g);
    ht_context_free(w->ctx);
    *w = (snapshot_fixture){0};
}

void snapshot_fixture_step(snapshot_fixture *w)
{
    int32_t token[TINY_BATCH * TINY_TIME], label[TINY_BATCH * TINY_TIME];
    tiny_tokens((int)(w->step % 5), token, label);
    must(w, ht_session_write(w->s, "token", token, sizeof token));
    must(w, ht_session_write(w->s, "label", label, sizeof label));
    must(w, ht_session_run(w->s, "train"));
    w->step++;
}

ht_status snapshot_fixture_save(snapshot_fixture *w, const char *folder, int keep)
{
    ht_snapshot_meta meta = {.step = w->step, .position = (uint64_t)w->step, .seed = 42};
    return ht_snapshot_write(w->s, folder, &meta, keep);
}

ht_status snapshot_fixture_load(snapshot_fixture *w, const char *path)
{
    ht_snapshot_meta *meta;
    ht_status status = ht_snapshot_read(w->s, path, &meta);
    if (status == HT_OK) w->step = meta->step;
    ht_snapshot_meta_free(meta);
    return status;
}

uint64_t snapshot_fixture_hash(const snapshot_fixture *w)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < w->plan->slot_count; i++) {
        const ht_slot *slot = &w->plan->slots[i];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        if (slot->kind != HT_SLOT_STATE || slot->heading == HT_HEADING_GRADIENTS || !ht_type_contiguous(&slot->type))
            continue;
        void *data = malloc(bytes + 1);
        if (!data) abort();
        must(w, ht_session_read(w->s, slot->name, data, bytes));
        hash = ht_hash_bytes(hash, slot->name, strlen(slot->name));
        hash = ht_hash_bytes(hash, data, bytes);
        free(data);
    }
    return hash;
}

/* ---- folders ---- */

void snapshot_folder_make(char folder[64])
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, 64, "%.40s/halftone-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder)) abort();
}

void snapshot_folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char inside[1024];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (unlink(inside) != 0) snapshot_folder_remove(inside);
    }
    if (folder) closedir(folder);
    rmdir(path);
}

const char *snapshot_folder_at(const char *folder, const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

int snapshot_folder_count(const char *folder)
{
    int count = 0;
    DIR *open_folder = opendir(folder);
    for (struct dirent *entry; open_folder && (entry = readdir(open_folder));) count += entry->d_name[0] != '.';
    if (open_folder) closedir(open_folder);
    return count;
}
