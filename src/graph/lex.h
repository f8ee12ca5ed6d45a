/* The lexer of the text form, shared by the graph parser and the sample parser. Every failure names "file:line:column".
 */
#ifndef HT_GRAPH_LEX_H
#define HT_GRAPH_LEX_H

#include "graph/opdef.h"

typedef struct ht_lex_place {
    const char *at, *line_start;
    int line;
} ht_lex_place;

typedef struct ht_lex {
    ht_context *ctx;
    ht_arena *arena; /* strings and lists */
    const char *file;
    const char *at, *end, *line_start;
    int line;
    ht_status status;  /* latched */
    ht_lex_place word; /* where the last name, number or type began */
} ht_lex;

typedef struct ht_slice {
    const char *text;
    size_t length;
} ht_slice;

/* Latches a failure at the current place. */
void ht_lex_fail(ht_lex *lex, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for the last name, number or type that was taken, and for a place that was kept. */
void ht_lex_fail_word(ht_lex *lex, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ht_lex_fail_at(ht_lex *lex, ht_lex_place place, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The place of the next token, after white space and comments. */
ht_lex_place ht_lex_here(ht_lex *lex);
/* Skips white space and comments; false at the end of the text or after a failure. */
bool ht_lex_more(ht_lex *lex);
/* Takes the character if it is next. */
bool ht_lex_take(ht_lex *lex, char c);
/* The same, and fails if it is not. */
bool ht_lex_need(ht_lex *lex, char c);
/* Does a word or name begin here? Consumes nothing. */
bool ht_lex_peek_word(ht_lex *lex);
bool ht_lex_peek(ht_lex *lex, char c);
/* A run of name characters (letters, digits, _ . - / :); fails on an empty one. */
ht_slice ht_lex_name(ht_lex *lex, const char *what);
bool ht_slice_is(ht_slice s, const char *text);
/* How much of it a message shows, for %.*s. */
int ht_slice_shown(ht_slice s);
/* Numbers; an integer must fit into 64 bits. */
int64_t ht_lex_int(ht_lex *lex);
double ht_lex_float(ht_lex *lex);
/* "quoted", unescaped into the arena. */
const char *ht_lex_string(ht_lex *lex);
/* f32[2,3]@host. */
ht_type ht_lex_type(ht_lex *lex);
/* The value after `key=`, by the kind in the op's table; the key is already consumed. */
ht_attr ht_lex_attr(ht_lex *lex, const ht_op *op, ht_slice key);

#endif
