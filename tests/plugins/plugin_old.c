/* A plugin of an interface that there never was. */
#include <halftone/plugin.h>

const ht_plugin *halftone_plugin(void)
{
    static const ht_plugin plugin = {sizeof plugin, 999, "old", NULL};
    return &plugin;
}
