/* For tests of the config: a job's text read with a few blocks of keys, and what is said of its values. */
#ifndef HT_TESTS_CONFIG_FIXTURE_H
#define HT_TESTS_CONFIG_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/config.h"

extern ht_context ctx;
extern ht_config *config;   /* what was read last */
extern const char *sets[8]; /* --set, as many as request.set_count says */
extern ht_config_request request;

int set_up(void **state);
int tear_down(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

ht_status read_text(const char *text);
void reads(const char *text);
void refused(const char *text, const char *message);
void warned(const char *part);
void not_warned(const char *part);
/* The value as JSON and its origin, with a bar between. */
void is(const char *block, const char *name, const char *wanted);

#define MODEL     "\"model\": {\"type\": \"mlp\"}, \"data\": {\"format\": \"text\", \"train\": \"a\"}"
#define JOB(rest) "{" MODEL rest "}"

#endif
