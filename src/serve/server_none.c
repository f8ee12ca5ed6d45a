/* A build without libmicrohttpd's header. */
#include "serve/serve.h"

static const char reason[] = "Halftone was built without libmicrohttpd (Debian: libmicrohttpd-dev, then make again)";

const char *ht_http_missing(void)
{
    return reason;
}

ht_status ht_http_open(ht_http_server **out, ht_context *ctx, const ht_http_opts *opts)
{
    *out = NULL;
    HT_FAIL(ctx, HT_ENOTSUP, "%s: there is no server here: %s", opts->address, reason);
}

const char *ht_http_url(const ht_http_server *server)
{
    (void)server;
    return "";
}

ht_status ht_http_run(ht_http_server *server, int until)
{
    (void)server, (void)until;
    return HT_ENOTSUP;
}

void ht_http_close(ht_http_server *server)
{
    (void)server;
}
