/* Storage as a device: the memory @disk. Its bytes lie in files of one folder, its addresses are numbers that stand for
 * bytes of these files, and its queues only copy: from a file to memory and back, or within the files. A session has a
 * disk of its own; no job binds @main to it. */
#ifndef HT_DEVICE_DISK_DEVICE_H
#define HT_DEVICE_DISK_DEVICE_H

struct ht_disk_opts; /* <halftone/session.h> */

/* Who copies from and to it. */
typedef struct ht_disk_user {
    /* The device of @main. Where the host cannot use its addresses, copies go through memory of the host, in pieces. */
    ht_device *main;
    /* The tensor at an address, for messages; NULL: there is none. In any thread. */
    const char *(*name)(void *arg, const void *address);
    void *arg;
} ht_disk_user;

/* The options are read here and not kept; NULL: the standard ones. Checks them and the folder, allocates nothing yet. */
ht_status ht_disk_open(ht_device **out, ht_context *ctx, const char *folder, const struct ht_disk_opts *opts,
                       const ht_disk_user *user);

extern const ht_device_class ht_device_disk;

#endif
