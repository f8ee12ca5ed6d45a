/* libFuzzer target: any bytes as what a client says to the server, which asks for a token if the first byte is odd. It
 * answers in HTTP or not at all, gives nothing away without the token, and goes on. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SERVERS = 2, PATIENCE_MS = 20, ANSWER = 4096 };
static const char secret[] = "what nobody may read", token[] = "0123456789abcdef";

typedef struct served {
    ht_context ctx;
    ht_http_server *server;
    pthread_t thread;
    int stop[2];
    struct sockaddr_in address;
} served;
static served servers[SERVERS];

static ht_status make_page(void *arg, ht_text *out)
{
    (void)arg;
    ht_text_add(out, "%s", secret);
    return HT_OK;
}

static const ht_http_content contents[] = {{"/", "text/plain", make_page}, {"/metrics", "text/plain", make_page}};

static void *run_server(void *arg)
{
    served *s = arg;
    if (ht_http_run(s->server, s->stop[0]) != HT_OK) abort();
    return NULL;
}

static void start(served *s, bool asks)
{
    ht_http_opts opts = {.address = "127.0.0.1:0",
                         .token = asks ? token : NULL,
                         .contents = contents,
                         .content_count = 2,
                         .connection_seconds = 1};
    if (ht_http_open(&s->server, &s->ctx, &opts) != HT_OK || pipe(s->stop) != 0) abort();
    s->address.sin_family = AF_INET;
    s->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->address.sin_port = htons((uint16_t)atoi(strrchr(ht_http_url(s->server), ':') + 1));
    if (pthread_create(&s->thread, NULL, run_server, s) != 0) abort();
}

static void stop_all(void)
{
    for (int i = 0; i < SERVERS; i++) {
        close(servers[i].stop[1]);
        pthread_join(servers[i].thread, NULL);
        ht_http_close(servers[i].server);
        close(servers[i].stop[0]);
    }
}

/* What comes within a short time: a request that is not whole gets no answer. */
static size_t hear(int file, char answer[ANSWER])
{
    size_t length = 0;
    while (length < ANSWER - 1) {
        struct pollfd wait = {file, POLLIN, 0};
        ssize_t got = poll(&wait, 1, PATIENCE_MS) == 1 ? recv(file, answer + length, ANSWER - 1 - length, 0) : 0;
        if (got <= 0) break;
        length += (size_t)got;
    }
    answer[length] = '\0';
    return length;
}

static void ask(const served *s, const uint8_t *data, size_t size, char answer[ANSWER])
{
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0 || connect(file, (const struct sockaddr *)&s->address, sizeof s->address) != 0) abort();
    for (size_t said = 0; said < size;) {
        ssize_t now = send(file, data + said, size - said, MSG_NOSIGNAL);
        if (now <= 0) break;
        said += (size_t)now;
    }
    hear(file, answer);
    close(file);
}

static bool holds(const uint8_t *data, size_t size, const char *text)
{
    for (size_t i = 0; i + strlen(text) <= size; i++)
        if (memcmp(data + i, text, strlen(text)) == 0) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    char answer[ANSWER];
    if (ht_http_missing() || size < 1) return 0;
    if (!started) {
        for (int i = 0; i < SERVERS; i++) start(&servers[i], i == 1);
        atexit(stop_all);
        started = true;
    }
    const served *s = &servers[data[0] % SERVERS];
    ask(s, data + 1, size - 1, answer);
    if (answer[0] && strncmp(answer, "HTTP/1.", 7) != 0) abort();
    /* The token may be written with escapes of its digits: then it is let in, and rightly. */
    bool escaped = holds(data, size, "%");
    if (data[0] % SERVERS == 1 && strstr(answer, secret) && !holds(data, size, token) && !escaped) abort();
    return 0;
}
