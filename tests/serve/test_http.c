/* The server: pages, refusals, and clients that are slow, hostile or many. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "http_client.h"
#include "serve/serve.h"

enum { LONG_PAGE = 648890 };
static const char secret[] = "a secret of many characters";

typedef struct fixture {
    ht_context ctx;
    ht_http_server *server;
    pthread_t thread;
    int stop[2];
    int port;
    atomic_int made; /* how often the page was */
} fixture;

static ht_status make_page(void *arg, ht_text *out)
{
    fixture *f = arg;
    ht_text_add(out, "<p>page %d</p>", ++f->made);
    return HT_OK;
}

static ht_status make_long(void *arg, ht_text *out)
{
    (void)arg;
    for (int i = 0; i < 60000; i++) ht_text_add(out, "line %d\n", i);
    return HT_OK;
}

static ht_status make_huge(void *arg, ht_text *out)
{
    enum { BYTES = 16 << 20 };
    (void)arg;
    out->data = calloc(1, BYTES + 1);
    out->length = out->data ? BYTES : 0;
    return HT_OK;
}

static ht_status make_nothing(void *arg, ht_text *out)
{
    fixture *f = arg;
    (void)out;
    HT_FAIL(&f->ctx, HT_EIO, "it is broken");
}

static const ht_http_content contents[] = {
    {"/", "text/html; charset=utf-8", make_page},
    {"/long", "text/plain", make_long},
    {"/huge", "application/octet-stream", make_huge},
    {"/broken", "text/plain", make_nothing},
};

static void *serve(void *arg)
{
    fixture *f = arg;
    return ht_http_run(f->server, f->stop[0]) == HT_OK ? NULL : f;
}

static ht_http_opts opts_of(fixture *f, const char *address, const char *token)
{
    return (ht_http_opts){.address = address,
                          .token = token,
                          .contents = contents,
                          .content_count = sizeof contents / sizeof contents[0],
                          .arg = f};
}

static void begin_with(fixture *f, const ht_http_opts *opts)
{
    if (ht_http_missing()) skip();
    *f = (fixture){.port = 0};
    if (ht_http_open(&f->server, &f->ctx, opts) != HT_OK) fail_msg("%s", f->ctx.message);
    f->port = atoi(strrchr(ht_http_url(f->server), ':') + 1);
    assert_true(f->port > 0);
    assert_int_equal(pipe(f->stop), 0);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
}

static void begin(fixture *f, const char *address, const char *token)
{
    ht_http_opts opts = opts_of(f, address, token);
    begin_with(f, &opts);
}

static void end(fixture *f)
{
    void *failed;
    close(f->stop[1]);
    assert_int_equal(pthread_join(f->thread, &failed), 0);
    assert_null(failed);
    ht_http_close(f->server);
    close(f->stop[0]);
}

static const char *ask(const fixture *f, const char *request)
{
    const char *answer = http_ask(f->port, request, strlen(request));
    assert_non_null(answer);
    return answer;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- pages and refusals ---- */

static void http__pages_are_served_and_nothing_else(void **state)
{
    fixture f;
    const char *body;
    (void)state;
    begin(&f, "127.0.0.1:0", NULL);
    assert_int_equal(http_get(f.port, "/", "", &body), 200);
    assert_string_equal(body, "<p>page 1</p>");
    assert_int_equal(http_get(f.port, "/?a=1&b", "", NULL), 200);
    assert_int_equal(http_get(f.port, "/other", "", NULL), 404);
    assert_int_equal(http_get(f.port, "//", "", NULL), 404);
    assert_int_equal(http_get(f.port, "/../../etc/passwd", "", NULL), 404);
    assert_int_equal(http_get(f.port, "/long", "", &body), 200);
    assert_int_equal(strlen(body), LONG_PAGE);
    const char *head = ask(&f, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(begins(head, "HTTP/1.1 200"));
    assert_non_null(strstr(head, "Content-Length: 13\r\n"));
    assert_null(strstr(head, "<p>"));
    end(&f);
}

static void http__answers_say_that_they_are_not_to_be_kept_or_framed(void **state)
{
    static const char *const headers[] = {"Content-Type: text/html; charset=utf-8\r\n",
                                          "Cache-Control: no-store\r\n",
                                          "Connection: close\r\n",
                                          "X-Frame-Options: DENY\r\n",
                                          "Content-Security-Policy: default-src 'none'",
                                          "Referrer-Policy: no-referrer\r\n"};
    fixture f;
    (void)state;
    begin(&f, "127.0.0.1:0", NULL);
    const char *answer = ask(&f, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        if (!strstr(answer, headers[i])) fail_msg("no '%s' in %s", headers[i], answer);
    end(&f);
}

static void http__only_get_and_head_are_allowed(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"};
    fixture f;
    (void)state;
    begin(&f, "127.0.0.1:0", NULL);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        char request[256];
        snprintf(request, sizeof request, "%s / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody",
                 methods[i]);
        const char *answer = ask(&f, request);
        if (!begins(answer, "HTTP/1.1 405")) fail_msg("%s: %s", methods[i], answer);
    }
    assert_int_equal(f.made, 0);
    end(&f);
}

/* A name that leads to 127.0.0.1 is not enough: DNS rebinding. */
static void http__a_foreign_name_is_refused_on_loopback(void **state)
{
    fixture f;
    (void)state;
    begin(&f, "127.0.0.1:0", NULL);
    assert_true(begins(ask(&f, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), "HTTP/1.1 421"));
    assert_true(begins(ask(&f, "GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80\r\n\r\n"), "HTTP/1.1 421"));
    assert_true(begins(ask(&f, "GET / HTTP/1.1\r\nHost: localhost:99\r\n\r\n"), "HTTP/1.1 200"));
    assert_true(begins(ask(&f, "GET / HTTP/1.1\r\nHost: [::1]:99\r\n\r\n"), "HTTP/1.1 200"));
    assert_true(begins(ask(&f, "GET / HTTP/1.0\r\n\r\n"), "HTTP/1.1 200") ||
                begins(ask(&f, "GET / HTTP/1.0\r\n\r\n"), "HTTP/1.0 200"));
    assert_true(begins(ask(&f, "GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 400"));
    end(&f);
}

static void http__a_token_is_asked_for(void **state)
{
    fixture f;
    (void)state;
    begin(&f, "0.0.0.0:0", secret);
    assert_int_equal(http_get(f.port, "/", "", NULL), 401);
    assert_int_equal(http_get(f.port, "/other", "", NULL), 401);
    assert_int_equal(http_get(f.port, "/", "Authorization: Bearer a secret of many character\r\n", NULL), 401);
    assert_int_equal(http_get(f.port, "/", "Authorization: Bearer a secret of many characters\r\n", NULL), 200);
    assert_int_equal(http_get(f.port, "/", "Authorization: bearer  a secret of many characters\r\n", NULL), 200);
    assert_int_equal(http_get(f.port, "/", "Authorization: Basic a secret of many characters\r\n", NULL), 401);
    assert_int_equal(http_get(f.port, "/?token=a%20secret%20of%20many%20characters", "", NULL), 200);
    assert_int_equal(http_get(f.port, "/?token=", "", NULL), 401);
    assert_int_equal(http_get(f.port, "/?token", "", NULL), 401);
    /* Who has the token may call the machine by any name. */
    assert_true(begins(ask(&f, "GET /?token=a+secret+of+many+characters HTTP/1.1\r\nHost: big.example\r\n\r\n"),
                       "HTTP/1.1 200"));
    end(&f);
}

static void http__what_cannot_be_served_is_refused_by_its_address(void **state)
{
    static const struct {
        const char *address, *token, *says;
        ht_status status;
    } cases[] = {
        {"0.0.0.0:0", NULL, "0.0.0.0:0: other machines can reach this address", HT_EINVAL},
        {"[::]:0", NULL, "[::]:0: other machines", HT_EINVAL},
        {"192.0.2.1:80", secret, "192.0.2.1:80: it cannot be listened on", HT_EIO},
        {"0.0.0.0:0", "short", "0.0.0.0:0: a token of 5 characters is too short", HT_EINVAL},
        {"127.0.0.1:0", "short", "127.0.0.1:0: a token of 5 characters", HT_EINVAL},
        {"127.0.0.1:99999", NULL, "127.0.0.1:99999: not an address", HT_EINVAL},
        {"example.org:80", NULL, "example.org:80: not an address", HT_EINVAL},
    };
    fixture f;
    (void)state;
    begin(&f, "127.0.0.1:0", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_context ctx = {0};
        ht_http_server *server;
        ht_http_opts opts = opts_of(&f, cases[i].address, cases[i].token);
        assert_int_equal(ht_http_open(&server, &ctx, &opts), cases[i].status);
        assert_null(server);
        if (!strstr(ctx.message, cases[i].says)) fail_msg("%s: %s", cases[i].address, ctx.message);
    }
    char taken[64];
    ht_context ctx = {0};
    ht_http_server *server;
    snprintf(taken, sizeof taken, "127.0.0.1:%d", f.port);
    ht_http_opts opts = opts_of(&f, taken, NULL);
    assert_int_equal(ht_http_open(&server, &ctx, &opts), HT_EIO);
    assert_non_null(strstr(ctx.message, taken));
    end(&f);
}

static void http__a_page_that_cannot_be_made_is_an_error_of_its_own(void **state)
{
    fixture f;
    (void)state;
    begin(&f, "localhost:0", NULL);
    assert_int_equal(http_get(f.port, "/broken", "", NULL), 500);
    assert_int_equal(http_get(f.port, "/", "", NULL), 200);
    end(&f);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void http__a_page_is_made_once_a_second_at_most(void **state)
{
    fixture f;
    (void)state;
    begin(&f, "127.0.0.1:0", NULL);
    double start = now();
    for (int i = 0; i < 500; i++) assert_int_equal(http_get(f.port, "/", "", NULL), 200);
    assert_true(f.made <= 1 + (int)(now() - start));
    end(&f);
}

static void http__ipv6_is_served_where_there_is_any(void **state)
{
    fixture f;
    ht_context ctx = {0};
    ht_http_server *server;
    ht_http_opts opts = opts_of(&f, "[::1]:0", NULL);
    (void)state;
    if (ht_http_missing() || ht_http_open(&server, &ctx, &opts) != HT_OK) skip();
    assert_true(begins(ht_http_url(server), "http://[::1]:"));
    ht_http_close(server);
}

/* ---- slow, hostile, many ---- */

static void http__half_requests_do_not_keep_others_out(void **state)
{
    enum { MANY = 1000 };
    static int slow[MANY];
    fixture f;
    (void)state;
    if (!http_allow_files(MANY + 700)) skip();
    begin(&f, "127.0.0.1:0", NULL);
    for (int i = 0; i < MANY; i++) {
        slow[i] = http_connect(f.port);
        assert_true(slow[i] >= 0);
        if (i % 3) http_say(slow[i], "GET / HTTP/1.1\r\nHo", 18);
        if (i % 100 == 99) assert_int_equal(http_get(f.port, "/", "", NULL), 200);
    }
    assert_int_equal(http_get(f.port, "/", "", NULL), 200);
    for (int i = 0; i < MANY; i++) close(slow[i]);
    end(&f);
}

static void http__a_connection_does_not_live_longer_by_a_byte_now_and_then(void **state)
{
    fixture f;
    ht_http_opts opts = opts_of(&f, "127.0.0.1:0", NULL);
    (void)state;
    opts.connection_seconds = 1;
    begin_with(&f, &opts);
    int file = http_connect(f.port);
    assert_true(file >= 0);
    bool closed = false;
    for (int i = 0; i < 600 && !closed; i++) { /* a minute: then it would live for ever */
        char byte;
        http_say(file, i ? "a" : "GET /a", i ? 1 : 6);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        closed = recv(file, &byte, 1, MSG_DONTWAIT) == 0;
    }
    assert_true(closed);
    close(file);
    end(&f);
}

static void http__a_client_that_does_not_read_is_left(void **state)
{
    static char bytes[1 << 16];
    fixture f;
    ht_http_opts opts = opts_of(&f, "127.0.0.1:0", NULL);
    size_t all = 0;
    (void)state;
    opts.connection_seconds = 0.5;
    begin_with(&f, &opts);
    int file = http_connect(f.port);
    http_say(file, "GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n", 39);
    assert_int_equal(http_get(f.port, "/", "", NULL), 200);
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    for (ssize_t got; (got = recv(file, bytes, sizeof bytes, 0)) > 0;) all += (size_t)got;
    assert_true(all > 0 && all < 16 << 20); /* what lay in the kernel's buffers */
    close(file);
    end(&f);
}

static void http__requests_that_are_too_large_are_refused(void **state)
{
    enum { LARGE = 1 << 20 };
    fixture f;
    (void)state;
    begin(&f, "127.0.0.1:0", NULL);
    char *request = malloc(LARGE);
    assert_non_null(request);
    memset(request, 'a', LARGE);
    memcpy(request, "GET /", 5);
    const char *answer = http_ask(f.port, request, LARGE);
    assert_true(!begins(answer, "HTTP/1.1 200"));
    memcpy(request, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ", 36);
    answer = http_ask(f.port, request, LARGE);
    assert_true(!begins(answer, "HTTP/1.1 200"));
    int length = snprintf(request, LARGE, "GET / HTTP/1.1\r\nHost: localhost\r\n");
    for (int i = 0; length < LARGE - 32; i++)
        length += snprintf(request + length, LARGE - (size_t)length, "X%d: y\r\n", i);
    answer = http_ask(f.port, request, (size_t)length);
    assert_true(!begins(answer, "HTTP/1.1 200"));
    free(request);
    assert_int_equal(http_get(f.port, "/", "", NULL), 200);
    end(&f);
}

/* ---- malformed requests, from a seeded mutator ---- */

static uint64_t seed = 2026;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* A good request with some of its bytes changed, doubled, removed or replaced by what parsers stumble over. */
static size_t mutate(char *out, size_t capacity)
{
    static const char *const good[] = {
        "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
        "GET /?token=x&y=%41%2 HTTP/1.1\r\nHost: [::1]:80\r\nAuthorization: Bearer abc\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HEAD /long HTTP/1.0\r\nContent-Length: 10\r\n\r\n0123456789GET / HTTP/1.1\r\n\r\n",
    };
    static const char *const odd[] = {"\r\n",
                                      "\n",
                                      "\r",
                                      " ",
                                      "\t",
                                      ":",
                                      "%",
                                      "%00",
                                      "\xff",
                                      "HTTP/9.9",
                                      "Content-Length: -1\r\n",
                                      "Content-Length: 99999999999999999999\r\n",
                                      "Host: a\r\nHost: b\r\n",
                                      "?&&=&",
                                      "Transfer-Encoding: gzip, chunked\r\n",
                                      "\r\n folded\r\n",
                                      "Cookie: a=\"b;c\r\n"};
    const char *from = good[draw(4)];
    size_t length = strlen(from);
    memcpy(out, from, length);
    for (uint32_t i = 0, changes = 1 + draw(8); i < changes && length > 0; i++) {
        size_t at = draw((uint32_t)length), part = 1 + draw(8);
        const char *piece = odd[draw(sizeof odd / sizeof odd[0])];
        if (part > length - at) part = length - at;
        switch (draw(4)) {
        case 0: out[at] = (char)draw(256); break;
        case 1: memmove(out + at, out + at + part, length - at - part), length -= part; break;
        case 2:
            if (length + part > capacity) break;
            memmove(out + at + part, out + at, length - at), length += part;
            break;
        default:
            part = strlen(piece);
            if (length + part > capacity) break;
            memmove(out + at + part, out + at, length - at);
            memcpy(out + at, piece, part), length += part;
        }
    }
    return length;
}

static void http__malformed_requests_get_an_answer_or_an_end(void **state)
{
    fixture f;
    char request[4096];
    ht_http_opts opts = opts_of(&f, "127.0.0.1:0", NULL);
    (void)state;
    opts.connection_seconds = 0.1; /* half requests end by it */
    begin_with(&f, &opts);
    for (int round = 0; round < 20; round++) {
        int files[150];
        for (int i = 0; i < 150; i++) {
            size_t length = mutate(request, sizeof request);
            files[i] = http_connect(f.port);
            assert_true(files[i] >= 0);
            http_say(files[i], request, length);
            if (i % 2) shutdown(files[i], SHUT_WR);
        }
        for (int i = 0; i < 150; i++) {
            const char *answer = http_hear(files[i]);
            if (answer[0] && !begins(answer, "HTTP/1.")) fail_msg("request %d of round %d: %s", i, round, answer);
        }
    }
    assert_int_equal(http_get(f.port, "/", "", NULL), 200);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http__pages_are_served_and_nothing_else),
        cmocka_unit_test(http__answers_say_that_they_are_not_to_be_kept_or_framed),
        cmocka_unit_test(http__only_get_and_head_are_allowed),
        cmocka_unit_test(http__a_foreign_name_is_refused_on_loopback),
        cmocka_unit_test(http__a_token_is_asked_for),
        cmocka_unit_test(http__what_cannot_be_served_is_refused_by_its_address),
        cmocka_unit_test(http__a_page_that_cannot_be_made_is_an_error_of_its_own),
        cmocka_unit_test(http__a_page_is_made_once_a_second_at_most),
        cmocka_unit_test(http__ipv6_is_served_where_there_is_any),
        cmocka_unit_test(http__half_requests_do_not_keep_others_out),
        cmocka_unit_test(http__a_connection_does_not_live_longer_by_a_byte_now_and_then),
        cmocka_unit_test(http__a_client_that_does_not_read_is_left),
        cmocka_unit_test(http__requests_that_are_too_large_are_refused),
        cmocka_unit_test(http__malformed_requests_get_an_answer_or_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
