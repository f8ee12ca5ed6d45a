/* A shared object that is no plugin. */
int plugin_empty(void);

int plugin_empty(void)
{
    return 0;
}
