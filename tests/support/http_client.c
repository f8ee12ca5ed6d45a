#include "http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int http_connect(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file >= 0 && connect(file, (struct sockaddr *)&at, sizeof at) == 0) return file;
    if (file >= 0) close(file);
    return -1;
}

void http_say(int file, const char *bytes, size_t length)
{
    for (size_t said = 0; said < length;) {
        ssize_t now = send(file, bytes + said, length - said, MSG_NOSIGNAL);
        if (now <= 0) return;
        said += (size_t)now;
    }
}

const char *http_hear(int file)
{
    static char answer[HTTP_ANSWER];
    size_t length = 0;
    while (length + 1 < sizeof answer) {
        ssize_t got = recv(file, answer + length, sizeof answer - 1 - length, 0);
        if (got <= 0) break;
        length += (size_t)got;
    }
    answer[length] = '\0';
    close(file);
    return answer;
}

const char *http_ask(int port, const char *bytes, size_t length)
{
    int file = http_connect(port);
    if (file < 0) return NULL;
    http_say(file, bytes, length);
    shutdown(file, SHUT_WR);
    return http_hear(file);
}

int http_get(int port, const char *path, const char *headers, const char **body)
{
    char request[4096];
    int length =
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n", path, port, headers);
    int file = http_connect(port);
    if (file < 0) return 0;
    http_say(file, request, (size_t)length);
    const char *answer = http_hear(file), *blank = strstr(answer, "\r\n\r\n");
    if (body) *body = blank ? blank + 4 : answer + strlen(answer);
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

int http_port_in(const char *text)
{
    static const char url[] = "http://127.0.0.1:";
    const char *at = strstr(text, url);
    return at ? atoi(at + strlen(url)) : 0;
}

bool http_allow_files(int count)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
    if (files.rlim_cur >= (rlim_t)count) return true;
    files.rlim_cur = (rlim_t)count;
    return files.rlim_cur <= files.rlim_max && setrlimit(RLIMIT_NOFILE, &files) == 0;
}
