#include "session_fixture.h"

#include <string.h>

void must(const session_fixture *f, ht_status status)
{
    context_must(f->ctx, status);
}

void message_has(const session_fixture *f, const char *part)
{
    if (!strstr(ht_context_message(f->ctx), part)) fail_msg("'%s' is not in: %s", part, ht_context_message(f->ctx));
}

session_fixture session_begin(int threads)
{
    session_fixture f = {.ctx = context_create(threads, NULL)};
    must(&f, ht_graph_create(&f.g, f.ctx));
    return f;
}

void session_plan(session_fixture *f, const ht_plan_opts *opts, uint64_t seed)
{
    ht_session_opts session = HT_SESSION_OPTS;
    session.seed = seed;
    must(f, ht_plan_create(&f->plan, f->g, opts));
    must(f, ht_session_create(&f->s, f->plan, &session));
}

void session_end(session_fixture *f)
{
    ht_session_free(f->s);
    ht_plan_free(f->plan);
    ht_graph_free(f->g);
    ht_context_free(f->ctx);
    *f = (session_fixture){0};
}
