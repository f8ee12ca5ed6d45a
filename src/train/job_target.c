/* The machine that a job is planned for: this one, one that was asked for, or that of an earlier start. */
#include "train/job_own.h"

#include <stdio.h>
#include <string.h>

#include "train/folder.h"
#include "train/ranks.h"

enum { DEVICE_NAME = 32 };

/* Why this start cannot use the target that the run was planned for; NULL: it can. */
static const char *refuse_recorded(const ht_job *job, const ht_target *recorded, ht_target_reason *reason)
{
    if ((recorded->device == HT_DEVICE_CUDA) != (job->target.device == HT_DEVICE_CUDA)) { /* others share kernels */
        snprintf(reason->text, sizeof reason->text, "it computes on a %s device, and this start on %s",
                 ht_device_kind_names[recorded->device], ht_device_kind_names[job->target.device]);
        return reason->text;
    }
    for (int i = 0; i < HT_LIBRARY_COUNT; i++) {
        if (!(recorded->libraries & ~job->target.libraries & 1u << i)) continue;
        snprintf(reason->text, sizeof reason->text, "it calls %s, which is missing here", ht_library_names[i]);
        return reason->text;
    }
    const char *refusal = ht_target_refusal_here(recorded, reason);
    if (refusal || ht_isa_runs((ht_isa)job->ctx->isa, recorded->isa)) return refusal;
    snprintf(reason->text, sizeof reason->text, "it needs %s, and this start is limited to %s",
             ht_isa_name(recorded->isa), ht_isa_name((ht_isa)job->ctx->isa));
    return reason->text;
}

/* To whoever started the run, else to the log; it takes the text. */
static void say(const ht_job *job, const ht_run_request *request, ht_text *line)
{
    if (line->failed)
        ht_note(job->ctx, HT_LOG_WARN, "out of memory for a note on the device");
    else if (request->on_note)
        request->on_note(request->arg, line->data);
    else
        ht_note(job->ctx, HT_LOG_WARN, "%s", line->data);
    ht_text_free(line);
}

static void say_other_target(const ht_job *job, const ht_run_request *request, const char *path, const char *refusal)
{
    ht_text line = {0};
    ht_text_add(&line,
                "%s: the run was planned for another machine: %s; it is planned for this one, whose results may differ "
                "from that one's in their last digits",
                path, refusal);
    say(job, request, &line);
}

/* The same instructions on another GPU, or under another driver or library, may have other bits. */
static void say_other_versions(const ht_job *job, const ht_run_request *request, const char *path,
                               const ht_target *recorded)
{
    const ht_target *here = &job->target;
    ht_text line = {0};
    ht_text_add(&line, "%s: the run was on other software or another GPU: ", path);
    size_t before = line.length;
    if (strcmp(recorded->name, here->name) != 0) ht_text_add(&line, "%s, now %s", recorded->name, here->name);
    for (int i = 0; i < HT_VERSION_COUNT; i++) {
        int was = recorded->versions[i], is = here->versions[i];
        if (was && is && was != is)
            ht_text_add(&line, "%s%s %d, now %d", line.length > before ? "; " : "", ht_version_names[i], was, is);
    }
    bool differ = line.length > before;
    ht_text_add(&line, ": results may differ in their last digits");
    if (differ || line.failed)
        say(job, request, &line);
    else
        ht_text_free(&line);
}

/* One for each rank of the machine. */
static ht_status name_gpu(const ht_job *job, char name[DEVICE_NAME])
{
    int local, ranks, count = ht_cuda_device_count();
    HT_TRY(ht_ranks_local(job->comm, job->ctx, &local, &ranks));
    snprintf(name, DEVICE_NAME, "cuda:%d", local);
    if (count == 0 || ranks <= count) return HT_OK;
    HT_FAIL(job->ctx, HT_EINVAL, "halftone.device: every rank needs a GPU of its own: %d ranks are here, and %d GPU%s",
            ranks, count, count == 1 ? "" : "s");
}

/* For "auto": a GPU that can be opened, or else the processor. One that is there and cannot be used is told. */
static void choose_by_itself(const ht_job *job, const ht_run_request *request, char name[DEVICE_NAME])
{
    ht_device *device;
    ht_status status = job->world > 1 ? name_gpu(job, name) : HT_OK;
    if (status == HT_OK) status = ht_device_get(&device, job->ctx, name);
    if (status == HT_OK) return;
    snprintf(name, DEVICE_NAME, "cpu");
    if (status == HT_ENOTSUP || !(request->on_note || ht_mode_reads_only(request->mode))) {
        ht_note(job->ctx, HT_LOG_INFO, "no GPU: %s", ht_context_message(job->ctx));
        return;
    }
    ht_text line = {0};
    ht_text_add(&line, "halftone.device: the GPU is not used, and the processor computes: %s",
                ht_context_message(job->ctx));
    say(job, request, &line);
}

static ht_status choose_device(const ht_job *job, const ht_run_request *request, char name[DEVICE_NAME])
{
    const char *wanted = job->train_config->device;
    bool any = strcmp(wanted, "cuda") == 0, automatic = strcmp(wanted, "auto") == 0;
    snprintf(name, DEVICE_NAME, "%s", automatic ? "cuda" : wanted);
    if (automatic) choose_by_itself(job, request, name);
    return any && job->world > 1 ? name_gpu(job, name) : HT_OK;
}

/* A GPU that is not among those of this machine is a mistake in the job; a job for a machine with GPUs can be planned where
 * there are none at all. */
static ht_status bind_device(ht_job *job, const ht_run_request *request)
{
    ht_device *device;
    char name[DEVICE_NAME];
    HT_TRY(choose_device(job, request, name));
    HT_TRY(ht_target_bind(job->ctx, &job->target, name));
    ht_device_describe(job->ctx, &job->target);
    if (request->target || ht_device_get(&device, job->ctx, name) != HT_EINVAL) return HT_OK;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", ht_context_message(job->ctx));
    HT_FAIL(job->ctx, HT_EINVAL, "halftone.device: %s", reason);
}

/* A run that goes on keeps the target that it was planned for: the same instructions, so the same bits. Only the number
 * of threads, and which of the devices with these kernels, are those of this start: bits do not depend on them. */
static ht_status choose_machine(ht_job *job, const ht_run_request *request, const char *recorded)
{
    char path[4096];
    bool there;
    ht_target before;
    ht_target_reason reason;
    ht_target_here(job->ctx, &job->target);
    HT_TRY(bind_device(job, request));
    if (request->target) job->target = *request->target;
    if (request->target || !recorded) return HT_OK;
    if (snprintf(path, sizeof path, "%s/%s", recorded, ht_target_file) >= (int)sizeof path)
        HT_FAIL(job->ctx, HT_EINVAL, "%s: the path is too long", recorded);
    HT_TRY(ht_folder_check(job->ctx, recorded, ht_target_file, &there));
    if (!there) return HT_OK; /* of an older version */
    HT_TRY(ht_target_read(job->ctx, &before, path));
    const char *refusal = refuse_recorded(job, &before, &reason);
    if (refusal) {
        say_other_target(job, request, path, refusal);
        return HT_OK;
    }
    if (job->target.device == HT_DEVICE_CUDA) say_other_versions(job, request, path, &before);
    memcpy(before.versions, job->target.versions, sizeof before.versions);
    before.threads = job->target.threads;
    before.device = job->target.device;
    before.device_number = job->target.device_number;
    job->target = before;
    return HT_OK;
}

ht_status ht_job_choose_target(ht_job *job, const ht_run_request *request, const char *recorded)
{
    HT_TRY(choose_machine(job, request, recorded));
    HT_TRY(ht_ranks_common_target(job->comm, job->ctx, request, &job->target));
    job->target.liberties = 0;
    if (job->train_config->tf32) job->target.liberties |= 1u << HT_LIBERTY_TF32;
    if (job->train_config->tf32_parts) job->target.liberties |= 1u << HT_LIBERTY_TF32_PARTS;
    if (!job->train_config->deterministic) job->target.liberties |= 1u << HT_LIBERTY_ANY_ORDER;
    return HT_OK;
}

void ht_job_tell_libraries(const ht_job *job, const ht_run_request *request)
{
    static const char *const still[HT_LIBRARY_COUNT] = {
        [HT_LIBRARY_CUBLASLT] = "products run on kernels of our own, which are slower",
        [HT_LIBRARY_CUDNN] = "attention and convolutions run on kernels of our own, which are slower",
    };
    ht_text line = {0};
    ht_target here = job->target; /* a run that goes on may do without a library that is there by now */
    if (!request->on_note || request->target || here.device != HT_DEVICE_CUDA) return;
    ht_device_describe(job->ctx, &here);
    for (int i = 0; i < HT_LIBRARY_COUNT; i++)
        if (!ht_target_has_library(&here, (ht_library)i))
            ht_text_add(&line, "%s%s is missing: %s", line.length ? "; " : "", ht_library_names[i], still[i]);
    if (line.length)
        say(job, request, &line);
    else
        ht_text_free(&line);
}

void ht_job_tell_idle_keys(const ht_job *job, const ht_run_request *request)
{
    static const char *const keys[] = {"tf32", "tf32_parts", "deterministic"};
    const ht_fields *ours = ht_config_block(job->config, "halftone");
    if (!request->on_note || !job->options.training || job->target.device == HT_DEVICE_CUDA) return;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char line[160];
        bool asked = ht_field_given(ours, keys[i]) && ht_field_bool(ours, keys[i]) != (i == 2);
        snprintf(line, sizeof line, "halftone.%s: this is for GPUs: on a processor it changes nothing", keys[i]);
        if (asked) request->on_note(request->arg, line);
    }
}
