/* The program from outside: what it prints, where, and how it ends. */
#include <unistd.h>

#include "cli_case.h"

static void help__lists_commands_and_goes_to_stdout(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" help 2>/dev/null", 0, "run passes on a graph");
    expect(NULL, "\"$H\" --help 2>/dev/null", 0, "Exit status: 0 done");
    expect(NULL, "\"$H\" help opt 2>/dev/null", 0, "usage: halftone opt");
    expect(NULL, "\"$H\" --version 2>/dev/null", 0, "halftone ");
}

/* For each line of `halftone help` that names a command. */
#define EVERY_COMMAND "for c in $(\"$H\" help | sed -n 's/^    \\([a-z]*\\) .*/\\1/p'); do "

static void every_command__has_help(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" ops --help", 0, "usage: halftone ops");
    expect(NULL, EVERY_COMMAND "\"$H\" $c --help | grep -q \"^usage: halftone $c\" || exit 1; done; echo all", 0,
           "all");
    expect(NULL, EVERY_COMMAND "\"$H\" help $c | grep -q \"^Examples:\" || exit 1; done; echo all", 0, "all");
}

/* --help and the man page are made from the same rows. */
static void man_pages__have_every_option_of_the_help(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" help --man", 0, ".SH COMMANDS");
    expect(NULL, "\"$H\" help --man opz", 2, "did you mean 'ops'?");
    expect(NULL,
           EVERY_COMMAND "for o in $(\"$H\" $c --help | sed -n 's/^    \\(--[a-z-]*\\).*/\\1/p'); do "
                         "\"$H\" help --man $c | sed 's/\\\\-/-/g' | grep -q -e \"^.fB$o.fR\" || "
                         "{ echo $c $o; exit 1; }; done; done; echo all",
           0, "all");
}

static void options__take_values_in_every_form(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" demo --output=''", 2, "demo: --output takes a folder, not ''");
    expect(NULL, "\"$H\" demo --output ''", 2, "demo: --output takes a folder, not ''");
    expect(NULL, "\"$H\" demo -o ''", 2, "demo: --output takes a folder, not ''");
    expect(NULL, "\"$H\" demo -o", 2, "demo: --output takes a folder\n");
    expect(NULL, "\"$H\" train job.json --log-ranks", 2, "--log-ranks takes all, or numbers of ranks as in 1,3\n");
    expect(NULL,
           EVERY_COMMAND
           "for o in $(\"$H\" $c --help | sed -n 's/^    \\(-., \\)\\{0,1\\}\\(--[a-z-]*\\) [A-Z].*/\\2/p'); do "
           "\"$H\" $c $o 2>&1 | grep -e \"$o takes\" | grep -v 'from 0 to 0' >> /dev/null || "
           "{ echo $c $o; exit 1; }; done; done; echo all",
           0, "all");
    expect(NULL, "\"$H\" demo --json=yes", 2, "'--json=yes' is not understood");
    expect(NULL, "\"$H\" eval run --bleu 14a", 2, "eval: --bleu takes 13a or none, not '14a'");
    expect(NULL, "\"$H\" explain a.json --dot --json", 2,
           "explain: --graph, --dot, --html, --svg or --json: one of them");
}

static void wrong_commands__end_with_2_and_a_hint_on_stderr(void **state)
{
    (void)state;
    expect(NULL, "\"$H\"", 2, "usage: halftone COMMAND");
    expect(NULL, "test -z \"$(\"$H\" 2>/dev/null)\"", 0, "");
    expect(NULL, "\"$H\" opz >/dev/null", 2, "halftone: there is no command 'opz'; did you mean 'ops'?");
    expect(NULL, "\"$H\" zzzzzzzzz", 2, "see halftone help");
    expect(NULL, "\"$H\" help opz", 2, "did you mean 'ops'?");
    expect(NULL, "\"$H\" ops --jsn", 2, "halftone: ops: '--jsn' is not understood");
    expect(NULL, "\"$H\" probe there", 2, "'there' is not understood");
    expect(NULL, "HALFTONE_ISA=sse9 \"$H\" ops", 2, "halftone: ISA 'sse9': portable, avx2 or avx512");
}

static void a_full_disk__is_a_failed_run(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    expect(NULL, "\"$H\" ops >/dev/full", 1, "halftone: standard output: ");
}

static void ops__prints_table_samples_and_json(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" ops", 0, "gradient\n");
    expect(NULL, "\"$H\" ops | grep '^conv2d '", 0, "dot          2        1  yes");
    expect(NULL, "\"$H\" ops --samples | grep '^conv2d_grad_input '", 0,
           "conv2d_grad_input (f32[2,4,4,3], f32[4,3,3,3])");
    expect(NULL, "\"$H\" ops --json", 0,
           "\"name\": \"softmax\", \"class\": \"reduce\", \"inputs\": [1, 1], \"results\": 1");
}

static void probe__describes_what_opt_reads(void **state)
{
    (void)state;
    expect(NULL, "HALFTONE_ISA=portable OMP_NUM_THREADS=3 \"$H\" probe --describe", 0,
           "\"isa\": \"portable\",\n  \"threads\": 3");
    expect(NULL,
           "f=$(mktemp) && \"$H\" probe --describe >$f && echo 'segment a (%x f32[2]) -> (%x) {\n}' | \"$H\" opt "
           "--target $f -; "
           "s=$?; rm -f $f; exit $s",
           0, "segment a");
    expect(NULL,
           "f=$(mktemp) && echo '{\"thread\": 2}' >$f && \"$H\" opt --target=$f /dev/null; s=$?; rm -f $f; exit $s", 2,
           ":1:12: a target has no key \"thread\"; did you mean \"threads\"?");
}

static void opt__runs_passes_in_order(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" opt --list", 0, "autodiff ");
    expect(NULL, "\"$H\" opt --list --json", 0, "{\"name\": \"autodiff\", \"help\": ");
    expect(NULL,
           "echo 'segment a (%x f32[2]) -> (%y) {\n  %y = exp f32[2] (%x)\n  %z = exp f32[2] (%x)\n}' | "
           "\"$H\" opt --pass=cse --pass dce -",
           0, "%y = exp f32[2] (%x)\n}");
}

static void opt__refuses_wrong_input_with_2(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" opt", 2, "halftone: opt: which file?");
    expect(NULL, "\"$H\" opt a.ht b.ht", 2, "one file at a time");
    expect(NULL, "\"$H\" opt /nowhere/graph.ht", 2, "halftone: /nowhere/graph.ht: ");
    expect(NULL, "\"$H\" opt --pass dec /dev/null", 2, "there is no pass 'dec'; did you mean 'dce'?");
    expect(NULL, "\"$H\" opt --pass dce, /dev/null", 2, "there is no pass ''");
    expect(NULL, "\"$H\" opt /dev/null --pass", 2, "--pass takes the name of a pass");
    expect(NULL, "\"$H\" opt --set precision /dev/null", 2, "--set takes KEY=VALUE, not 'precision'");
    expect(NULL, "\"$H\" opt --json /dev/null", 2, "--json goes with --list");
    expect(NULL, "echo 'segment {' | \"$H\" opt -", 2, "halftone: standard input:1:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help__lists_commands_and_goes_to_stdout),
        cmocka_unit_test(every_command__has_help),
        cmocka_unit_test(man_pages__have_every_option_of_the_help),
        cmocka_unit_test(options__take_values_in_every_form),
        cmocka_unit_test(wrong_commands__end_with_2_and_a_hint_on_stderr),
        cmocka_unit_test(a_full_disk__is_a_failed_run),
        cmocka_unit_test(ops__prints_table_samples_and_json),
        cmocka_unit_test(probe__describes_what_opt_reads),
        cmocka_unit_test(opt__runs_passes_in_order),
        cmocka_unit_test(opt__refuses_wrong_input_with_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
