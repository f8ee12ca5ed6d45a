/* The server, by libmicrohttpd, which is opened when a server is: other commands need neither it nor what it needs.
 *
 * One thread, one request per connection. What a client can make it do is bounded: bytes of a request, connections, and
 * the seconds that a connection lives, however slowly it sends or reads; where all places are taken, the oldest has to go.
 * A text is made when it is asked for, and kept long enough that making texts takes a small share of the time. */
#include <dlfcn.h>
#include <math.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "serve/serve.h"

enum {
    MOST_CONNECTIONS = 512,
    SPARE_CONNECTIONS = 32, /* from here on the oldest goes when another one comes */
    SPARE_FILES = 32,       /* of the process, beside connections */
    REQUEST_BYTES = 16384,  /* memory of a connection: request line, headers, and those of the answer */
    MOST_CONTENTS = 8,
    FRESH_SECONDS = 1, /* a text is made once in so many at most... */
    REST_FACTOR = 20   /* ...and once in so many times of what it took */
};
static const double CONNECTION_SECONDS = 20, SWEEP_SECONDS = 0.25;

/* ---- the library ---- */

static struct {
#define HT_MHD(name) __typeof__(MHD_##name) *name;
#include "serve/microhttpd.def"
#undef HT_MHD
} mhd;

static char missing[256];

static void open_library(void)
{
    static const char file[] = "libmicrohttpd.so.12";
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) snprintf(missing, sizeof missing, "%s cannot be opened (Debian: libmicrohttpd12)", file);
#define HT_MHD(name)                                                                                                   \
    *(void **)&mhd.name = library ? dlsym(library, "MHD_" #name) : NULL;                                               \
    if (library && !mhd.name) snprintf(missing, sizeof missing, "%s has no MHD_" #name, file);
#include "serve/microhttpd.def"
#undef HT_MHD
}

const char *ht_http_missing(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return missing[0] ? missing : NULL;
}

/* ---- answers ---- */

typedef enum refusal { NOT_LOCAL, NO_TOKEN, NOT_FOUND, NOT_ALLOWED, FAILED, REFUSALS } refusal;
static const struct {
    unsigned status;
    const char *text, *header, *value;
} refusals[REFUSALS] = {
    [NOT_LOCAL] = {421, "This server is for the machine that it runs on: ask for 127.0.0.1 or localhost.\n"},
    [NO_TOKEN] = {401, "A token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN.\n", "WWW-Authenticate",
                  "Bearer"},
    [NOT_FOUND] = {404, "There is no such page.\n"},
    [NOT_ALLOWED] = {405, "Only GET and HEAD.\n", "Allow", "GET, HEAD"},
    [FAILED] = {500, "It could not be made.\n"},
};

typedef struct kept_answer {
    struct MHD_Response *response; /* NULL: never made */
    double until;                  /* it is made again after that */
} kept_answer;

typedef struct connection {
    int file;     /* -1: free */
    double since; /* when it came */
} connection;

struct ht_http_server {
    ht_context *ctx;
    ht_http_opts opts;
    char *token;
    bool loopback;
    char url[HT_ADDRESS_TEXT + 16];
    struct MHD_Daemon *daemon;
    int daemon_file;
    struct MHD_Response *refusals[REFUSALS];
    kept_answer kept[MOST_CONTENTS];
    connection connections[MOST_CONNECTIONS];
    int connection_count;
    double swept;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* NULL: memory is out. `data` is freed with the response, or here. */
static struct MHD_Response *make_response(char *data, size_t length, const char *type)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"Connection", "close"},
        /* What a page has is inside of it; it asks for itself anew. */
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"},
        {"Referrer-Policy", "no-referrer"}, /* the address may have the token */
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
    };
    struct MHD_Response *r = data ? mhd.create_response_from_buffer(length, data, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!r) {
        free(data);
        return NULL;
    }
    bool whole = mhd.add_response_header(r, "Content-Type", type) == MHD_YES;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        whole = whole && mhd.add_response_header(r, headers[i][0], headers[i][1]) == MHD_YES;
    if (whole) return r;
    mhd.destroy_response(r);
    return NULL;
}

static void drop_response(struct MHD_Response *response)
{
    if (response) mhd.destroy_response(response);
}

/* The content's text as a response: the one that is kept, or a new one. NULL: it cannot be made. */
static struct MHD_Response *find_answer(ht_http_server *s, size_t index)
{
    kept_answer *kept = &s->kept[index];
    const ht_http_content *content = &s->opts.contents[index];
    double start = now();
    ht_text text = {0};
    if (kept->response && start < kept->until) return kept->response;
    ht_status status = content->make(s->opts.arg, &text);
    if (status != HT_OK || text.failed) {
        ht_text_free(&text);
        return NULL;
    }
    if (!text.data) text.data = calloc(1, 1);
    struct MHD_Response *made = make_response(text.data, text.length, content->type);
    drop_response(kept->response);
    double end = now(), rest = REST_FACTOR * (end - start);
    *kept = (kept_answer){made, end + (rest > FRESH_SECONDS ? rest : FRESH_SECONDS)};
    return made;
}

/* ---- requests ---- */

static bool has_token(const ht_http_server *s, struct MHD_Connection *c)
{
    static const char bearer[] = "Bearer ";
    const char *header = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    const char *argument = mhd.lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "token");
    if (!s->token) return true;
    if (header && strncasecmp(header, bearer, strlen(bearer)) == 0)
        return ht_http_token_is(s->token, header + strlen(bearer) + strspn(header + strlen(bearer), " "));
    return argument && ht_http_token_is(s->token, argument);
}

/* What a request is refused for, or REFUSALS and which content it wants. */
static refusal judge(const ht_http_server *s, struct MHD_Connection *c, const char *path, const char *method,
                     size_t *content)
{
    const char *host = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    if (s->loopback && host && !ht_http_host_is_local(host)) return NOT_LOCAL;
    if (!has_token(s, c)) return NO_TOKEN;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) return NOT_ALLOWED;
    for (*content = 0; *content < s->opts.content_count; ++*content)
        if (strcmp(path, s->opts.contents[*content].path) == 0) return REFUSALS;
    return NOT_FOUND;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                              const char *version, const char *data, size_t *length, void **request)
{
    ht_http_server *s = arg;
    size_t content = 0;
    (void)version, (void)data, (void)length, (void)request; /* bodies are not read */
    refusal why = judge(s, c, path, method, &content);
    struct MHD_Response *response = why == REFUSALS ? find_answer(s, content) : NULL;
    if (response) return mhd.queue_response(c, MHD_HTTP_OK, response);
    if (why == REFUSALS) why = FAILED;
    return mhd.queue_response(c, refusals[why].status, s->refusals[why]);
}

/* ---- connections ---- */

/* The library sees its end and closes it. */
static void end_connection(connection *c)
{
    shutdown(c->file, SHUT_RDWR);
    c->since = now(); /* once is enough */
}

static void end_oldest(ht_http_server *s)
{
    connection *oldest = NULL;
    for (int i = 0; i < MOST_CONNECTIONS; i++) {
        connection *c = &s->connections[i];
        if (c->file >= 0 && (!oldest || c->since < oldest->since)) oldest = c;
    }
    if (oldest) end_connection(oldest);
}

static void on_connection(void *arg, struct MHD_Connection *c, void **place, enum MHD_ConnectionNotificationCode what)
{
    ht_http_server *s = arg;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        connection *was = *place;
        if (was) was->file = -1, s->connection_count--;
        return;
    }
    const union MHD_ConnectionInfo *info = mhd.get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    *place = NULL;
    if (s->connection_count >= MOST_CONNECTIONS - SPARE_CONNECTIONS) end_oldest(s);
    for (int i = 0; info && i < MOST_CONNECTIONS && !*place; i++) {
        if (s->connections[i].file >= 0) continue;
        s->connections[i] = (connection){info->connect_fd, now()};
        s->connection_count++;
        *place = &s->connections[i];
    }
}

static void sweep(ht_http_server *s)
{
    double at = now();
    if (at < s->swept + SWEEP_SECONDS) return;
    s->swept = at;
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (s->connections[i].file >= 0 && at > s->connections[i].since + s->opts.connection_seconds)
            end_connection(&s->connections[i]);
}

/* ---- opening, running, closing ---- */

/* As many as the process may have open files for. */
static unsigned most_connections(void)
{
    struct rlimit files;
    rlim_t want = MOST_CONNECTIONS + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return MOST_CONNECTIONS;
    if (files.rlim_cur < want) {
        files.rlim_cur = files.rlim_max < want ? files.rlim_max : want;
        setrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NOFILE, &files);
    }
    if (files.rlim_cur >= want) return MOST_CONNECTIONS;
    return files.rlim_cur > 2 * SPARE_FILES ? (unsigned)files.rlim_cur - SPARE_FILES : SPARE_FILES;
}

static ht_status make_refusals(ht_http_server *s)
{
    for (int i = 0; i < REFUSALS; i++) {
        char *text = strdup(refusals[i].text);
        s->refusals[i] = make_response(text, strlen(refusals[i].text), "text/plain; charset=utf-8");
        if (!s->refusals[i]) HT_FAIL(s->ctx, HT_ENOMEM, "out of memory for a server");
        if (refusals[i].header) (void)mhd.add_response_header(s->refusals[i], refusals[i].header, refusals[i].value);
    }
    return HT_OK;
}

static ht_status check_token(ht_context *ctx, const ht_http_opts *opts, const ht_http_address *address)
{
    char text[HT_ADDRESS_TEXT];
    ht_http_address_print(text, address);
    if (!opts->token && !address->loopback)
        HT_FAIL(ctx, HT_EINVAL, "%s: other machines can reach this address: it is served with a token only", text);
    if (opts->token && strlen(opts->token) < HT_SHORTEST_TOKEN)
        HT_FAIL(ctx, HT_EINVAL, "%s: a token of %zu characters is too short, it needs %d", text, strlen(opts->token),
                HT_SHORTEST_TOKEN);
    return HT_OK;
}

static ht_status start(ht_http_server *s, ht_http_address *address)
{
    char text[HT_ADDRESS_TEXT];
    int listener;
    HT_TRY(make_refusals(s));
    HT_TRY(ht_http_listen(&listener, s->ctx, address));
    ht_http_address_print(text, address);
    snprintf(s->url, sizeof s->url, "http://%s/", text);
    s->daemon = mhd.start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, s, MHD_OPTION_LISTEN_SOCKET, listener,
                                 MHD_OPTION_CONNECTION_LIMIT, most_connections(), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                 (size_t)REQUEST_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
                                 (unsigned)ceil(s->opts.connection_seconds), MHD_OPTION_STRICT_FOR_CLIENT, 1,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_END);
    if (!s->daemon) {
        close(listener);
        HT_FAIL(s->ctx, HT_EIO, "%s: libmicrohttpd does not start", text);
    }
    const union MHD_DaemonInfo *info = mhd.get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info) HT_FAIL(s->ctx, HT_EIO, "%s: libmicrohttpd has no epoll", text);
    s->daemon_file = info->epoll_fd;
    return HT_OK;
}

ht_status ht_http_open(ht_http_server **out, ht_context *ctx, const ht_http_opts *opts)
{
    ht_http_address address;
    *out = NULL;
    HT_TRY(ht_http_address_read(&address, ctx, opts->address));
    HT_TRY(check_token(ctx, opts, &address));
    if (ht_http_missing())
        HT_FAIL(ctx, HT_ENOTSUP, "%s: there is no server here: %s", opts->address, ht_http_missing());
    if (opts->content_count > MOST_CONTENTS) HT_FAIL(ctx, HT_EINVAL, "a server has at most %d pages", MOST_CONTENTS);
    ht_http_server *s = calloc(1, sizeof *s);
    if (!s) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a server");
    s->ctx = ctx;
    s->opts = *opts;
    if (!(s->opts.connection_seconds > 0)) s->opts.connection_seconds = CONNECTION_SECONDS;
    s->loopback = address.loopback;
    for (int i = 0; i < MOST_CONNECTIONS; i++) s->connections[i].file = -1;
    s->token = opts->token ? strdup(opts->token) : NULL;
    ht_status status =
        opts->token && !s->token ? ht_fail(ctx, HT_ENOMEM, "out of memory for a server") : start(s, &address);
    if (status == HT_OK)
        *out = s;
    else
        ht_http_close(s);
    return status;
}

const char *ht_http_url(const ht_http_server *s)
{
    return s->url;
}

ht_status ht_http_run(ht_http_server *s, int until)
{
    for (;;) {
        struct pollfd files[] = {{s->daemon_file, POLLIN, 0}, {until, POLLIN, 0}};
        MHD_UNSIGNED_LONG_LONG most;
        int wait = (int)(1e3 * SWEEP_SECONDS);
        if (mhd.get_timeout(s->daemon, &most) == MHD_YES && most < (MHD_UNSIGNED_LONG_LONG)wait) wait = (int)most;
        (void)poll(files, 2, wait); /* a signal only makes it look around */
        if (files[1].revents) return HT_OK;
        if (mhd.run(s->daemon) != MHD_YES) HT_FAIL(s->ctx, HT_EIO, "%s: libmicrohttpd failed", s->url);
        sweep(s);
    }
}

void ht_http_close(ht_http_server *s)
{
    if (!s) return;
    if (s->daemon) mhd.stop_daemon(s->daemon);
    for (int i = 0; i < REFUSALS; i++) drop_response(s->refusals[i]);
    for (int i = 0; i < MOST_CONTENTS; i++) drop_response(s->kept[i].response);
    free(s->token);
    free(s);
}
