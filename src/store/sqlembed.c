// SPDX-License-Identifier: Apache-2.0
/* sqlembed.c - what the names and first lines of embedded SQL files say. */
#include <stdlib.h>
#include <string.h>
#include "store/sqlembed.h"

bool sql_is_breaking(const char *text)
{
    return strncmp(text, "-- pawl: breaking", 17) == 0;
}

int sql_number(const char *name)
{
    return name[0] >= '0' && name[0] <= '9' ? (int)strtol(name, NULL, 10) : 0;
}

int sql_newest(const struct sql_file *files, size_t n)
{
    int max = 0;

    for (size_t i = 0; i < n; i++)
        if (sql_number(files[i].name) > max)
            max = sql_number(files[i].name);
    return max;
}
