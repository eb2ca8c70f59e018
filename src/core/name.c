// SPDX-License-Identifier: Apache-2.0
/* name.c - the one rule for names and the one rule for keys, said in words when broken. */
#include "core/rules.h"

#include <string.h>
#include "base/json.h"

static bool refuse(const char **why, const char *rule)
{
    if (why != NULL) *why = rule;
    return false;
}

bool name_ok(const char *s, const char **why)
{
    static const char rule[] =
        "a name is 1 to 64 of a-z 0-9 . _ - and begins with a letter or digit";
    size_t n = 0;

    for (; s[n] != '\0'; n++) {
        bool alnum = (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= '0' && s[n] <= '9');
        bool mark = s[n] == '.' || s[n] == '_' || s[n] == '-';
        if (n >= LIMIT_NAME_BYTES || !(alnum || (mark && n > 0))) return refuse(why, rule);
    }
    return n > 0 ? true : refuse(why, rule);
}

bool key_ok(const char *s, const char **why)
{
    size_t n = strnlen(s, LIMIT_KEY_BYTES + 1);

    if (n > LIMIT_KEY_BYTES) return refuse(why, "at most 255 bytes are allowed");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return refuse(why, "control characters are not allowed");
    return utf8_ok(s, n) ? true : refuse(why, "the text must be UTF-8");
}
