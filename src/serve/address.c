/* Addresses to listen on, and who may ask. */
#include "serve/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 256 };

static bool is_loopback(const ht_http_address *a)
{
    static const uint8_t own[16] = {[15] = 1}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (!a->v6) return a->bytes[0] == 127;
    if (memcmp(a->bytes, mapped, sizeof mapped) == 0) return a->bytes[12] == 127;
    return memcmp(a->bytes, own, sizeof own) == 0;
}

static bool read_port(const char *text, uint16_t *port)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] || atoi(text) > UINT16_MAX) return false;
    *port = (uint16_t)atoi(text);
    return true;
}

/* The part before the port. */
static bool read_host(const char *text, size_t length, ht_http_address *out)
{
    char host[INET6_ADDRSTRLEN];
    if (length >= sizeof host) return false;
    memcpy(host, text, length);
    host[length] = '\0';
    if (length == 0 || strcasecmp(host, "localhost") == 0) snprintf(host, sizeof host, "127.0.0.1");
    out->v6 = host[0] == '[';
    if (!out->v6) return inet_pton(AF_INET, host, out->bytes) == 1;
    size_t inside = strlen(host) - 1;
    if (inside < 1 || host[inside] != ']') return false;
    host[inside] = '\0';
    return inet_pton(AF_INET6, host + 1, out->bytes) == 1;
}

ht_status ht_http_address_read(ht_http_address *out, ht_context *ctx, const char *text)
{
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    *out = (ht_http_address){0};
    if (!read_port(port, &out->port) || !read_host(text, colon ? (size_t)(colon - text) : 0, out))
        HT_FAIL(ctx, HT_EINVAL, "%s: not an address to listen on, such as 127.0.0.1:8080, [::1]:8080 or 8080", text);
    out->loopback = is_loopback(out);
    return HT_OK;
}

void ht_http_address_print(char out[HT_ADDRESS_TEXT], const ht_http_address *a)
{
    char host[INET6_ADDRSTRLEN];
    if (!inet_ntop(a->v6 ? AF_INET6 : AF_INET, a->bytes, host, sizeof host)) host[0] = '\0';
    snprintf(out, HT_ADDRESS_TEXT, a->v6 ? "[%s]:%" PRIu16 : "%s:%" PRIu16, host, a->port);
}

bool ht_http_host_is_local(const char *host)
{
    ht_http_address address;
    const char *bracket = strchr(host, ']'), *colon = strchr(bracket ? bracket : host, ':');
    uint16_t port;
    size_t length = colon ? (size_t)(colon - host) : strlen(host);
    if (length == 0 || (colon && !read_port(colon + 1, &port))) return false;
    return read_host(host, length, &address) && is_loopback(&address);
}

bool ht_http_token_is(const char *token, const char *given)
{
    size_t length = strlen(token), has = strlen(given);
    unsigned differs = length != has;
    for (size_t i = 0; i < has; i++) differs |= (unsigned char)(given[i] ^ token[length ? i % length : 0]);
    return differs == 0;
}

/* ---- listening ---- */

typedef union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} any_address;

static socklen_t system_address(any_address *to, const ht_http_address *a)
{
    memset(to, 0, sizeof *to);
    if (a->v6) {
        to->v6.sin6_family = AF_INET6;
        to->v6.sin6_port = htons(a->port);
        memcpy(&to->v6.sin6_addr, a->bytes, sizeof to->v6.sin6_addr);
        return sizeof to->v6;
    }
    to->v4.sin_family = AF_INET;
    to->v4.sin_port = htons(a->port);
    memcpy(&to->v4.sin_addr, a->bytes, sizeof to->v4.sin_addr);
    return sizeof to->v4;
}

/* On failure errno has the reason. */
static bool bind_to(int file, ht_http_address *a)
{
    any_address at;
    socklen_t length = system_address(&at, a);
    int yes = 1;
    /* The port of a run that has just ended can be taken again at once. */
    if (setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 || bind(file, &at.any, length) != 0 ||
        listen(file, BACKLOG) != 0 || getsockname(file, &at.any, &length) != 0)
        return false;
    a->port = ntohs(a->v6 ? at.v6.sin6_port : at.v4.sin_port);
    return true;
}

ht_status ht_http_listen(int *out, ht_context *ctx, ht_http_address *a)
{
    char text[HT_ADDRESS_TEXT];
    ht_http_address_print(text, a);
    *out = socket(a->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*out >= 0 && bind_to(*out, a)) return HT_OK;
    int error = errno;
    if (*out >= 0) close(*out);
    *out = -1;
    HT_FAIL(ctx, HT_EIO, "%s: it cannot be listened on: %s", text, strerror(error));
}
