/* A client that says any bytes to a server on this machine. */
#ifndef HT_TESTS_HTTP_CLIENT_H
#define HT_TESTS_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

enum { HTTP_ANSWER = 1 << 20 };

/* A connection to 127.0.0.1; -1: refused. */
int http_connect(int port);
/* Says all of it, as far as the server listens. */
void http_say(int file, const char *bytes, size_t length);
/* What comes until the server closes, zero-terminated, in static memory; the connection is closed. */
const char *http_hear(int file);
/* One request with these bytes. NULL: refused. */
const char *http_ask(int port, const char *bytes, size_t length);
/* GET of a path, with more header lines or "". The status of the answer, 0: none; *body may be NULL. */
int http_get(int port, const char *path, const char *headers, const char **body);
/* Of "http://127.0.0.1:8080/" inside a text; 0: there is none. */
int http_port_in(const char *text);
/* So many open files, if the system allows it. */
bool http_allow_files(int count);

#endif
