/* serve: what a run looks like, over HTTP. A server of a few texts, each made by its caller and kept for a while; and a run's
 * status in the text format of Prometheus. The server is for one thread, waits for nobody and trusts nobody: requests are
 * small, connections few and short. It knows nothing of what it serves. docs/watch.md. */
#ifndef HT_SERVE_H
#define HT_SERVE_H

#include "base/base.h"
#include "train/train.h"

/* ---- addresses ---- */

enum { HT_ADDRESS_TEXT = 64, HT_SHORTEST_TOKEN = 16 };

typedef struct ht_http_address {
    bool v6, loopback; /* loopback: nobody but this machine can reach it */
    uint8_t bytes[16]; /* in network order; the first four of IPv4 */
    uint16_t port;     /* 0: any that is free */
} ht_http_address;

/* "127.0.0.1:8080", "[::1]:8080", "localhost:8080", ":8080" or "8080" (both on loopback). Names are not looked up. */
ht_status ht_http_address_read(ht_http_address *out, ht_context *ctx, const char *text);
/* "127.0.0.1:8080" */
void ht_http_address_print(char out[HT_ADDRESS_TEXT], const ht_http_address *address);

/* Does a Host header name this machine alone? Where a page of elsewhere has its own name lead to 127.0.0.1 (DNS
 * rebinding), the browser says that name. */
bool ht_http_host_is_local(const char *host);
/* Takes the same time wherever the texts differ. */
bool ht_http_token_is(const char *token, const char *given);

/* ---- the server ---- */

typedef struct ht_http_content {
    const char *path; /* "/metrics" */
    const char *type; /* "text/plain; charset=utf-8" */
    /* A failure is told to the client; the server goes on. */
    ht_status (*make)(void *arg, ht_text *out);
} ht_http_content;

typedef struct ht_http_opts {
    const char *address;             /* as in ht_http_address_read */
    const char *token;               /* that every request must have; NULL: none, and only loopback */
    const ht_http_content *contents; /* borrowed */
    size_t content_count;
    void *arg;                 /* of `make` */
    double connection_seconds; /* that a connection lives at most; 0: 20 */
} ht_http_opts;

typedef struct ht_http_server ht_http_server;

/* NULL where a server can be opened here; else what is missing. */
const char *ht_http_missing(void);
/* Listens from now on. HT_EINVAL: the address, or a token that is missing or too short; HT_EIO: it cannot be listened on;
 * HT_ENOTSUP: the library is not there. Messages name the address. */
ht_status ht_http_open(ht_http_server **out, ht_context *ctx, const ht_http_opts *opts);
/* "http://127.0.0.1:8080/" */
const char *ht_http_url(const ht_http_server *server);
/* Answers requests until the file can be read, or its other end is closed. */
ht_status ht_http_run(ht_http_server *server, int until);
/* Takes NULL. */
void ht_http_close(ht_http_server *server);

/* A socket that listens, not blocking. */
ht_status ht_http_listen(int *out, ht_context *ctx, ht_http_address *address);

/* ---- Prometheus ---- */

/* The status of a run, with its folder as a label. */
void ht_prometheus_add(ht_text *text, const ht_run_status *status, const char *folder);

#endif
