#include "snapshot_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiny_model.h"

session_fixture snapshot_trained(const ht_train_opts *opts, uint64_t seed)
{
    session_fixture w = session_begin(1);
    tiny_build(w.g, 0.1);
    must(&w, ht_graph_train(w.g, opts));
    session_plan(&w, NULL, seed);
    return w;
}

session_fixture snapshot_tiny(uint64_t seed)
{
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 1e-2;
    return snapshot_trained(&opts, seed);
}

session_fixture snapshot_text(const char *text)
{
    session_fixture w = {.ctx = context_create(1, NULL)};
    must(&w, ht_graph_parse(&w.g, w.ctx, "test", text, strlen(text)));
    session_plan(&w, NULL, 0);
    return w;
}

void snapshot_step(session_fixture *w)
{
    int32_t token[TINY_BATCH * TINY_TIME], label[TINY_BATCH * TINY_TIME];
    tiny_tokens((int)(w->step % 5), token, label);
    must(w, ht_session_write(w->s, "token", token, sizeof token));
    must(w, ht_session_write(w->s, "label", label, sizeof label));
    must(w, ht_session_run(w->s, "train"));
    w->step++;
}

ht_status snapshot_save(session_fixture *w, const char *folder, int keep)
{
    ht_snapshot_meta meta = {.step = w->step, .position = (uint64_t)w->step, .seed = 42};
    return ht_snapshot_write(w->s, folder, &meta, keep);
}

ht_status snapshot_load(session_fixture *w, const char *path)
{
    ht_snapshot_meta *meta;
    ht_status status = ht_snapshot_read(w->s, path, &meta);
    if (status == HT_OK) w->step = meta->step;
    ht_snapshot_meta_free(meta);
    return status;
}

uint64_t snapshot_hash(const session_fixture *w)
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

const char *snapshot_at(const char *name)
{
    return folder_at(test_folder, name);
}

const char *snapshot_newest(const session_fixture *w)
{
    static char name[64];
    char *path;
    must(w, ht_snapshot_find(w->ctx, test_folder, &path));
    snprintf(name, sizeof name, "%s", path ? strrchr(path, '/') + 1 : "");
    free(path);
    return name;
}
