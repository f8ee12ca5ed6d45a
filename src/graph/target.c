/* Target files: detection of this machine, parser and printer. */
#include "graph/figures.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MAX_THREADS = 1 << 16, DEVICE_DIGITS = 3 };

const char *const ht_device_kind_names[HT_DEVICE_KIND_COUNT] = {"cpu", "fake", "cuda"};
const char *const ht_library_names[HT_LIBRARY_COUNT] = {"cublaslt", "cudnn"};
const char *const ht_version_names[HT_VERSION_COUNT] = {"driver", "nvrtc", "cublaslt", "cudnn"};
const char *const ht_liberty_names[HT_LIBERTY_COUNT] = {"tf32", "any_order", "tf32_parts"};

void ht_target_here(ht_context *ctx, ht_target *out)
{
    struct utsname machine;
    *out = (ht_target){.isa = (ht_isa)ctx->isa, .threads = ctx->pool ? ht_pool_threads(ctx->pool) : 1};
    if (ht_isa_features(out->isa)) out->features = ht_cpu_features() & ht_isa_features(out->isa);
    snprintf(out->name, sizeof out->name, "cpu");
    snprintf(out->arch, sizeof out->arch, "%.15s", uname(&machine) == 0 ? machine.machine : "unknown");
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t bytes;
    if (pages > 0 && page > 0 && !__builtin_mul_overflow((int64_t)pages, (int64_t)page, &bytes))
        out->memory_bytes[HT_SPACE_MAIN] = bytes;
}

static int device_find(const char *name)
{
    for (int i = 0; i < HT_DEVICE_KIND_COUNT; i++)
        if (strcmp(name, ht_device_kind_names[i]) == 0) return i;
    return -1;
}

/* -1: it is no number. */
static int read_device_number(const char *text)
{
    int number = 0, digits = 0;
    for (; *text >= '0' && *text <= '9' && digits <= DEVICE_DIGITS; text++, digits++)
        number = 10 * number + *text - '0';
    return *text || digits == 0 || digits > DEVICE_DIGITS ? -1 : number;
}

ht_status ht_device_name_read(ht_context *ctx, const char *name, ht_device_kind *kind, int *number)
{
    const char *colon = strchr(name, ':');
    size_t length = strcspn(name, ":");
    char word[16] = "";
    if (length < sizeof word) memcpy(word, name, length); /* no name is longer */
    int found = device_find(word);
    *number = colon ? read_device_number(colon + 1) : 0;
    if (found < 0) HT_FAIL(ctx, HT_EINVAL, "there is no device '%s'; there are cpu, fake and cuda", name);
    if (colon && found != HT_DEVICE_CUDA)
        HT_FAIL(ctx, HT_EINVAL, "there is no device '%s': only GPUs have numbers, as in cuda:1", name);
    if (*number < 0) HT_FAIL(ctx, HT_EINVAL, "there is no device '%s': a number follows the colon, as in cuda:1", name);
    *kind = (ht_device_kind)found;
    return HT_OK;
}

ht_status ht_target_bind(ht_context *ctx, ht_target *target, const char *device)
{
    HT_TRY(ht_device_name_read(ctx, device, &target->device, &target->device_number));
    target->libraries = 0;
    if (target->device == HT_DEVICE_CUDA) target->libraries = (1u << HT_LIBRARY_COUNT) - 1;
    return HT_OK;
}

const char *ht_target_refusal_here(const ht_target *target, ht_target_reason *buffer)
{
    const ht_isa best = ht_cpu_isa();
    if (target->no_kernels) {
        snprintf(buffer->text, sizeof buffer->text, "there are no kernels for %.64s", target->name);
        return buffer->text;
    }
    if (!ht_isa_runs(best, target->isa)) {
        snprintf(buffer->text, sizeof buffer->text, "it needs %s, and this machine has %s", ht_isa_name(target->isa),
                 ht_isa_name(best));
        return buffer->text;
    }
    unsigned missing = target->features ? target->features & ~ht_cpu_features() : 0;
    for (int i = 0; i < HT_FEATURE_COUNT; i++) {
        if (!(missing >> i & 1)) continue;
        snprintf(buffer->text, sizeof buffer->text, "it needs %s, which this machine lacks",
                 ht_feature_name((ht_feature)i));
        return buffer->text;
    }
    return NULL;
}

/* ---- reading ---- */

typedef struct reader {
    ht_context *ctx;
    const char *name; /* of the file */
    ht_target *target;
} reader;

typedef struct target_key {
    const char *name;
    bool required;
    ht_status (*read)(const reader *r, const ht_json *value);
} target_key;

static ht_status need_kind(const reader *r, const ht_json *value, ht_json_kind kind)
{
    if (value->kind == kind) return HT_OK;
    return ht_json_fail(r->ctx, r->name, value, "%s is %s, not %s", value->key, ht_json_kind_name(value->kind),
                        ht_json_kind_name(kind));
}

static ht_status read_word(const reader *r, const ht_json *value, char *to, size_t capacity)
{
    HT_TRY(need_kind(r, value, HT_JSON_STRING));
    if (value->length == 0 || value->length >= capacity || strlen(value->text) != value->length)
        return ht_json_fail(r->ctx, r->name, value, "%s must have 1 to %zu bytes", value->key, capacity - 1);
    memcpy(to, value->text, value->length + 1);
    return HT_OK;
}

static ht_status read_name(const reader *r, const ht_json *value)
{
    return read_word(r, value, r->target->name, sizeof r->target->name);
}

static ht_status read_arch(const reader *r, const ht_json *value)
{
    return read_word(r, value, r->target->arch, sizeof r->target->arch);
}

static const char *device_name_at(size_t i)
{
    return ht_device_kind_names[i];
}

static ht_status read_device(const reader *r, const ht_json *value)
{
    char name[32];
    HT_TRY(read_word(r, value, name, sizeof name));
    int kind = device_find(name);
    if (kind < 0)
        return ht_json_fail(r->ctx, r->name, value, "there is no device \"%s\"%s", name,
                            ht_hint_for(name, HT_DEVICE_KIND_COUNT, device_name_at).text);
    r->target->device = (ht_device_kind)kind;
    return HT_OK;
}

static ht_status read_isa(const reader *r, const ht_json *value)
{
    char name[32];
    HT_TRY(read_word(r, value, name, sizeof name));
    int isa = ht_isa_from_name(name);
    if (isa < 0) {
        ht_text known = {0};
        ht_isa_list(&known, ", ");
        ht_json_fail(r->ctx, r->name, value, "isa \"%s\" is none of %s", name, known.data ? known.data : "ours");
        ht_text_free(&known);
        return HT_EPARSE;
    }
    r->target->isa = (ht_isa)isa;
    return HT_OK;
}

static const char *feature_name_at(size_t i)
{
    return ht_feature_name((ht_feature)i);
}

static ht_status read_features(const reader *r, const ht_json *value)
{
    HT_TRY(need_kind(r, value, HT_JSON_ARRAY));
    for (const ht_json *item = value->child; item; item = item->next) {
        if (item->kind != HT_JSON_STRING)
            return ht_json_fail(r->ctx, r->name, item, "a feature is %s, not a string", ht_json_kind_name(item->kind));
        int feature = strlen(item->text) == item->length ? ht_feature_from_name(item->text) : -1;
        if (feature < 0)
            return ht_json_fail(r->ctx, r->name, item, "there is no feature \"%s\"%s", item->text,
                                ht_hint_for(item->text, HT_FEATURE_COUNT, feature_name_at).text);
        r->target->features |= 1u << feature;
    }
    return HT_OK;
}

static const char *library_name_at(size_t i)
{
    return ht_library_names[i];
}

static const char *liberty_name_at(size_t i)
{
    return ht_liberty_names[i];
}

/* Names of a kind, as bits. */
static ht_status read_bits(const reader *r, const ht_json *value, const char *kind, int count,
                           const char *(*name_at)(size_t i), unsigned *bits)
{
    HT_TRY(need_kind(r, value, HT_JSON_ARRAY));
    *bits = 0;
    for (const ht_json *item = value->child; item; item = item->next) {
        if (item->kind != HT_JSON_STRING)
            return ht_json_fail(r->ctx, r->name, item, "a %s is %s, not a string", kind, ht_json_kind_name(item->kind));
        int found = 0;
        while (found < count && strcmp(item->text, name_at((size_t)found)) != 0) found++;
        if (found == count)
            return ht_json_fail(r->ctx, r->name, item, "there is no %s \"%s\"%s", kind, item->text,
                                ht_hint_for(item->text, (size_t)count, name_at).text);
        *bits |= 1u << found;
    }
    return HT_OK;
}

static ht_status read_libraries(const reader *r, const ht_json *value)
{
    return read_bits(r, value, "library", HT_LIBRARY_COUNT, library_name_at, &r->target->libraries);
}

static ht_status read_liberties(const reader *r, const ht_json *value)
{
    return read_bits(r, value, "liberty", HT_LIBERTY_COUNT, liberty_name_at, &r->target->liberties);
}

static const char *version_name_at(size_t i)
{
    return ht_version_names[i];
}

static ht_status read_versions(const reader *r, const ht_json *value)
{
    HT_TRY(need_kind(r, value, HT_JSON_OBJECT));
    for (const ht_json *member = value->child; member; member = member->next) {
        int64_t version;
        int i = 0;
        while (i < HT_VERSION_COUNT && strcmp(member->key, ht_version_names[i]) != 0) i++;
        if (i == HT_VERSION_COUNT)
            return ht_json_fail(r->ctx, r->name, member, "nothing with a version is called \"%s\"%s", member->key,
                                ht_hint_for(member->key, HT_VERSION_COUNT, version_name_at).text);
        if (!ht_json_as_int(member, &version) || version < 1 || version > INT_MAX)
            return ht_json_fail(r->ctx, r->name, member, "versions.%s must be an integer above 0", member->key);
        r->target->versions[i] = (int)version;
    }
    return HT_OK;
}

static ht_status read_count(const reader *r, const ht_json *value, int *to)
{
    int64_t count;
    if (!ht_json_as_int(value, &count) || count < 1 || count > MAX_THREADS)
        return ht_json_fail(r->ctx, r->name, value, "%s must be an integer from 1 to %d", value->key, MAX_THREADS);
    *to = (int)count;
    return HT_OK;
}

static ht_status read_threads(const reader *r, const ht_json *value)
{
    return read_count(r, value, &r->target->threads);
}

static const char *space_name_at(size_t i)
{
    return ht_space_name((ht_space)i);
}

static ht_status no_such_memory(const reader *r, const ht_json *member)
{
    return ht_json_fail(r->ctx, r->name, member, "there is no memory \"%s\"%s", member->key,
                        ht_hint_for(member->key, HT_SPACE_COUNT, space_name_at).text);
}

static ht_status read_memory(const reader *r, const ht_json *value)
{
    HT_TRY(need_kind(r, value, HT_JSON_OBJECT));
    for (const ht_json *member = value->child; member; member = member->next) {
        int space = ht_space_from_name(member->key, member->key_length);
        if (space < 0) return no_such_memory(r, member);
        int64_t bytes;
        if (!ht_json_as_int(member, &bytes) || bytes < 0)
            return ht_json_fail(r->ctx, r->name, member, "memory.%s must be bytes, 0 or more", member->key);
        r->target->memory_bytes[space] = bytes;
    }
    return HT_OK;
}

/* ---- the whole file ---- */

static ht_status read_devices(const reader *r, const ht_json *value)
{
    return read_count(r, value, &r->target->devices);
}

static ht_status read_nodes(const reader *r, const ht_json *value)
{
    return read_count(r, value, &r->target->nodes);
}

static ht_status read_kernels(const reader *r, const ht_json *value)
{
    HT_TRY(need_kind(r, value, HT_JSON_BOOL));
    r->target->no_kernels = !value->boolean;
    return HT_OK;
}

/* Once all figures are read. */
static ht_status read_source(const reader *r, const ht_json *value)
{
    return need_kind(r, value, HT_JSON_OBJECT);
}

/* That of the file, in the folder of a run; who opened the file has compared it. */
static ht_status read_checksum(const reader *r, const ht_json *value)
{
    if (value->kind != HT_JSON_STRING)
        return ht_json_fail(r->ctx, r->name, value, "\"xxh3\" is %s, not a string", ht_json_kind_name(value->kind));
    return HT_OK;
}

static const target_key keys[] = {
    {"name", false, read_name},         {"device", false, read_device},
    {"arch", true, read_arch},          {"isa", true, read_isa},
    {"threads", true, read_threads},    {"memory", false, read_memory},
    {"features", false, read_features}, {"libraries", false, read_libraries},
    {"devices", false, read_devices},   {"nodes", false, read_nodes},
    {"kernels", false, read_kernels},   {"source", false, read_source},
    {"xxh3", false, read_checksum},     {"liberties", false, read_liberties},
    {"versions", false, read_versions},
};
enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

/* Those of the table, then the groups of figures. */
static const char *key_name_at(size_t i)
{
    return i < KEY_COUNT ? keys[i].name : ht_figure_groups[i - KEY_COUNT].key;
}

static ht_status read_member(const reader *r, const ht_json *member)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (strcmp(keys[i].name, member->key) == 0 && strlen(member->key) == member->key_length)
            return keys[i].read(r, member);
    const ht_figure_group *group = ht_figure_group_find(member->key, member->key_length);
    if (group) return ht_figures_read(r->ctx, r->name, r->target, group, member);
    return ht_json_fail(r->ctx, r->name, member, "a target has no key \"%s\"%s", member->key,
                        ht_hint_for(member->key, KEY_COUNT + ht_figure_group_count, key_name_at).text);
}

static ht_status read_target(const reader *r, const ht_json *root)
{
    if (root->kind != HT_JSON_OBJECT)
        return ht_json_fail(r->ctx, r->name, root, "a target is an object, not %s", ht_json_kind_name(root->kind));
    for (const ht_json *member = root->child; member; member = member->next) HT_TRY(read_member(r, member));
    HT_TRY(ht_figures_read_sources(r->ctx, r->name, r->target, ht_json_get(root, "source")));
    if (r->target->device == HT_DEVICE_CUDA && !ht_json_get(root, "libraries"))
        r->target->libraries = (1u << HT_LIBRARY_COUNT) - 1;
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (keys[i].required && !ht_json_get(root, keys[i].name))
            return ht_json_fail(r->ctx, r->name, root, "\"%s\" is missing", keys[i].name);
    if (!ht_isa_on(r->target->isa, r->target->arch))
        return ht_json_fail(r->ctx, r->name, ht_json_get(root, "isa"), "%s has no %s", r->target->arch,
                            ht_isa_name(r->target->isa));
    for (int i = 0; i < HT_FEATURE_COUNT; i++)
        if (ht_target_has(r->target, (ht_feature)i) && !ht_isa_runs(r->target->isa, ht_feature_isa((ht_feature)i)))
            return ht_json_fail(r->ctx, r->name, ht_json_get(root, "features"), "%s has no features, only %s has",
                                ht_isa_name(r->target->isa), ht_isa_name(ht_feature_isa((ht_feature)i)));
    return HT_OK;
}

ht_status ht_target_parse(ht_context *ctx, ht_target *out, const char *name, const char *text, size_t length)
{
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", name);
    *out = (ht_target){.name = "cpu"};
    const ht_json *root;
    ht_status status = ht_json_parse(ctx, arena, name, text, length, &root);
    if (status == HT_OK) status = read_target(&(reader){ctx, name, out}, root);
    ht_arena_free(arena);
    return status;
}

/* A file of that name goes first. */
static const ht_shipped_target *find_shipped(const char *name)
{
    for (size_t i = 0; i < ht_shipped_target_count; i++)
        if (strcmp(ht_shipped_targets[i].name, name) == 0 && access(name, F_OK) != 0) return &ht_shipped_targets[i];
    return NULL;
}

static ht_status no_such_target(ht_context *ctx, const char *name)
{
    ht_text names = {0};
    for (size_t i = 0; i < ht_shipped_target_count; i++)
        ht_text_add(&names, "%s%s", i ? ", " : "", ht_shipped_targets[i].name);
    ht_fail(ctx, HT_EINVAL, "there is no target file '%s', and no shipped target of that name; there are %s", name,
            names.data ? names.data : "none");
    ht_text_free(&names);
    return HT_EINVAL;
}

ht_status ht_target_read(ht_context *ctx, ht_target *out, const char *path)
{
    char *text;
    size_t length;
    const ht_shipped_target *shipped = find_shipped(path);
    if (shipped) return ht_target_parse(ctx, out, path, shipped->text, strlen(shipped->text));
    if (!strpbrk(path, "/.") && access(path, F_OK) != 0) return no_such_target(ctx, path);
    HT_TRY(ht_read_file(ctx, &text, &length, path));
    ht_status status = ht_target_parse(ctx, out, path, text, length);
    free(text);
    return status;
}

/* ---- printing ---- */

static void put_features(ht_json_writer *json, const ht_target *target)
{
    if (!target->features) return;
    ht_json_line(json, 2);
    ht_json_begin_array(json, "features");
    for (int feature = 0; feature < HT_FEATURE_COUNT; feature++)
        if (ht_target_has(target, (ht_feature)feature))
            ht_json_put_text(json, NULL, ht_feature_name((ht_feature)feature));
    ht_json_end_array(json);
}

static void put_bits(ht_json_writer *json, const char *key, unsigned bits, const char *(*name_at)(size_t i))
{
    ht_json_line(json, 2);
    ht_json_begin_array(json, key);
    for (size_t i = 0; bits >> i; i++)
        if (bits >> i & 1u) ht_json_put_text(json, NULL, name_at(i));
    ht_json_end_array(json);
}

static void put_versions(ht_json_writer *json, const ht_target *target)
{
    bool any = false;
    for (int i = 0; i < HT_VERSION_COUNT; i++) any |= target->versions[i] != 0;
    if (!any) return;
    ht_json_line(json, 2);
    ht_json_begin_object(json, "versions");
    for (int i = 0; i < HT_VERSION_COUNT; i++)
        if (target->versions[i]) ht_json_put_int(json, ht_version_names[i], target->versions[i]);
    ht_json_end_object(json);
}

static void put_libraries(ht_json_writer *json, const ht_target *target)
{
    if (target->device != HT_DEVICE_CUDA) return;
    put_bits(json, "libraries", target->libraries, library_name_at);
    put_versions(json, target);
    if (target->liberties) put_bits(json, "liberties", target->liberties, liberty_name_at);
}

static void put_cluster(ht_json_writer *json, const ht_target *target)
{
    const struct {
        const char *key;
        int count;
    } counts[] = {{"devices", target->devices}, {"nodes", target->nodes}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i].count == 0) continue;
        ht_json_line(json, 2);
        ht_json_put_int(json, counts[i].key, counts[i].count);
    }
    if (!target->no_kernels) return;
    ht_json_line(json, 2);
    ht_json_put_bool(json, "kernels", false);
}

void ht_target_print(ht_text *text, const ht_target *target)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_line(&json, 2);
    ht_json_put_text(&json, "name", target->name);
    ht_json_line(&json, 2);
    ht_json_put_text(&json, "device", ht_device_kind_names[target->device]);
    ht_json_line(&json, 2);
    ht_json_put_text(&json, "arch", target->arch);
    ht_json_line(&json, 2);
    ht_json_put_text(&json, "isa", ht_isa_name(target->isa));
    put_features(&json, target);
    put_libraries(&json, target);
    ht_json_line(&json, 2);
    ht_json_put_int(&json, "threads", target->threads);
    ht_json_line(&json, 2);
    ht_json_begin_object(&json, "memory");
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        if (target->memory_bytes[space] != 0)
            ht_json_put_int(&json, ht_space_name((ht_space)space), target->memory_bytes[space]);
    ht_json_end_object(&json);
    put_cluster(&json, target);
    ht_figures_print(&json, target);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}
