/* Commands as data. A command is one cli_command; its options and arguments are rows of a table. The parser, --help and
 * the man page all read these rows, so a new option is one row. */
#ifndef HT_CLI_OPTION_TABLE_H
#define HT_CLI_OPTION_TABLE_H

#include "cli/cli.h"

#include <stddef.h>

typedef enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char *, of at most `most` bytes where that is given */
    CLI_WHOLE,    /* int64_t from `least` to `most` */
    CLI_NUMBER,   /* double from `least` to `most` */
    CLI_CHOICE,   /* const char *, one of `choices` */
    CLI_TAKEN,    /* by the function `take` */
    CLI_ARGUMENT, /* const char *, or what `take` makes of it: a word without a name, in the order of the rows */
    CLI_GROUP     /* the rows of `group`, stored from `offset` on */
} cli_kind;

enum cli_option_flags {
    CLI_REPEATED = 1, /* may come several times; of arguments the last one, with a `take` */
    CLI_OPTIONAL = 2, /* an argument that may be left out */
    CLI_NEEDED = 4,   /* usage shows it without brackets; the command itself sees to it */
    CLI_INSTEAD = 8,  /* with this option the command needs no arguments */
    CLI_STDIN = 16,   /* the argument may be -: standard input or output */
    CLI_FILLED = 32   /* the text may not be empty */
};

typedef struct cli_command cli_command;
typedef struct cli_option cli_option;

/* One option of the command line while it is stored. */
typedef struct cli_given {
    const cli_command *command;
    const cli_option *option;
    void *at; /* its place in the command's struct */
} cli_given;

/* Rows end with an empty one. The first five fields are those that every row has. */
struct cli_option {
    const char *name;  /* "--set"; of an argument, as usage shows it: "JOB.json" */
    const char *value; /* "KEY=VALUE", NULL for a flag; of an argument, what it is: "job", for "which job?" */
    cli_kind kind;
    size_t offset; /* in the command's struct */
    const char *help;

    char letter; /* 'o' for -o; 0: none */
    unsigned flags;
    int form;             /* the line of usage that it belongs to, from 1; 0: every line */
    int choice;           /* of the rows with the same number at most one may be given; 0: none */
    const char *standard; /* the default, as it would be given */
    const char *bare;     /* the value behind the name alone, when a value comes only with "=" */
    const char *takes;    /* "a file", for messages and where the kind does not say it */
    double least, most;
    const char *const *choices; /* NULL ends them */
    /* The value is part of argv and may be cut. Returns how the program ends, or CLI_DONE. */
    int (*take)(const cli_given *given, char *value);
    const cli_option *group;
};

/* A name and what it is about. Lists end with an empty one. */
typedef struct cli_entry {
    const char *name, *text;
} cli_entry;

struct cli_command {
    const char *name;
    const char *summary;     /* one line */
    const char *description; /* paragraphs, with an empty line between them */
    const cli_option *options;
    size_t size; /* of the struct that options are stored in; zero before their defaults are */
    int (*run)(void *options);
    void (*release)(void *options); /* what `take` functions allocated; NULL: nothing */
    bool stops;                     /* it may end with CLI_STOPPED */
    bool alone; /* of ranks that a launcher has started the first one does it, and the others have nothing to do */
    const cli_entry *examples, *files, *environment;
    const char *see_also; /* commands, with spaces between them */
    /* A list behind the rest, a line per row. */
    const char *appendix_title;
    void (*appendix)(ht_text *text);
};

extern const cli_command cli_program_command; /* halftone itself, for its own help and man page */
extern const cli_command *const cli_commands[];
extern const size_t cli_command_count;
const cli_command *cli_find_command(const char *name);
/* Complains, with the nearest name. */
int cli_no_such_command(const char *name);

/* Parses the words behind argv[0] into a struct of the command and runs it, or prints its help. */
int cli_run_command(const cli_command *command, int argc, char **argv);
/* "train: --numerics takes a whole number from 1 to 9, not 'x'"; the value may be NULL. */
int cli_bad_value(const cli_given *given, const char *value);

/* All rows of a command, those of its groups and --help included, with offsets in the command's struct. */
enum { CLI_MOST_OPTIONS = 48 };
typedef struct cli_rows {
    cli_option list[CLI_MOST_OPTIONS];
    size_t count;
} cli_rows;
void cli_rows_of(cli_rows *rows, const cli_command *command);

/* What --help prints, and the man page. */
void cli_add_help(ht_text *text, const cli_command *command);
void cli_add_man(ht_text *text, const cli_command *command);

/* For both: words at lines of at most `width` bytes, from the second line on behind `indent` spaces. */
void cli_add_wrapped(ht_text *text, const char *words, size_t width, size_t column, size_t indent);
/* The line of usage number `form`, as items that are not cut: "halftone train", "JOB.json", "[--resume | --force]". */
enum { CLI_MOST_ITEMS = 48, CLI_ITEM_LENGTH = 160 };
typedef struct cli_usage {
    char items[CLI_MOST_ITEMS][CLI_ITEM_LENGTH];
    size_t count;
} cli_usage;
int cli_usage_forms(const cli_rows *rows);
void cli_usage_of(cli_usage *usage, const cli_command *command, const cli_rows *rows, int form);

typedef struct cli_exit {
    int status;
    const char *meaning;
} cli_exit;
extern const cli_exit cli_exits[CLI_ENDS];

#endif
