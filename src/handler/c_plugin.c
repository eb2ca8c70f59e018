// SPDX-License-Identifier: Apache-2.0
/* c_plugin.c - load a plugin, refuse one that does not belong here, and say so in one line.
 *
 * Keeps: a handler that comes out of here has the ABI of this pawl, and its plugin brought no
 *        second SQLite along.
 * Why:   a second SQLite in a process has its own idea of which POSIX locks the process holds: when
 *        it closes a file that both have open, the locks of the first are gone, and the database is
 *        damaged (sqlite.org/howtocorrupt.html, "multiple copies of SQLite").
 */
#include "handler/c_plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "handler/c.h"

#define SQLITE_MARK "sqlite3_libversion_number" /* every SQLite has it */
enum { NAMES_MAX = 64 };

struct load {
    const struct conf *conf;
    const struct conf_task *t;
    struct pawl_error *e;
    void *handle;
};

static __attribute__((format(printf, 2, 3))) enum pawl_rc refuse(const struct load *l,
                                                                 const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;
    enum pawl_rc rc;

    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    rc = pawl_fail(l->e, PAWL_CONFIG, "%s:%d: c = %s: %s", l->conf->path, l->t->c_line,
                   l->t->c_text, buf_str(&b));
    buf_free(&b);
    return rc;
}

/* --- the file --- */

static enum pawl_rc open_plugin(struct load *l)
{
    const char *path = l->t->plugin, *why;
    size_t n = strlen(path);
    struct stat sb;

    if (stat(path, &sb) != 0) {
        return refuse(l, "no file %s: %s; build the plugin first (a path starts at the directory "
                      "of the configuration)", path, strerror(errno));
    }
    if (!S_ISREG(sb.st_mode)) return refuse(l, "%s is not a file", path);
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (l->handle != NULL) return PAWL_OK;
    if ((why = dlerror()) == NULL) why = "cannot be loaded";
    if (strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0) why += n + 2;
    if (strstr(why, "undefined symbol") != NULL) {
        return refuse(l, "%s: %s: link the library that has it (-l...) into the plugin", path, why);
    }
    if (strstr(why, "ELF") != NULL || strstr(why, "too short") != NULL) {
        return refuse(l, "%s: %s: not a plugin; build it with cc -shared -fPIC", path, why);
    }
    return refuse(l, "%s cannot be loaded: %s", path, why);
}

/* --- no second SQLite --- */

static const char *file_of(const void *address)
{
    Dl_info info;

    return address != NULL && dladdr(address, &info) != 0 && info.dli_fname != NULL
        ? info.dli_fname : "?";
}

static enum pawl_rc check_sqlite(const struct load *l)
{
    void *theirs = dlsym(l->handle, SQLITE_MARK);
    /* Ours, when this program links the system's. One that is built in is not seen from outside. */
    void *ours = dlsym(RTLD_NEXT, SQLITE_MARK);

    if (theirs == NULL || theirs == ours) return PAWL_OK;
    return refuse(l, "the plugin brings a second SQLite into the process (%s): two of them on one "
                  "file damage it; do not link SQLite, use pawl_exec and pawl_query",
                  file_of(theirs));
}

/* --- the handler --- */

/* The number of symbols in a library's table, as its hash tables know it. */
static size_t symbols_n(const uint32_t *gnu, const uint32_t *sysv)
{
    if (sysv != NULL) return sysv[1];
    if (gnu == NULL) return 0;
    const uint32_t *buckets = gnu + 4 + gnu[2] * (sizeof(void *) / sizeof *gnu);
    const uint32_t *chain = buckets + gnu[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < gnu[0]; i++) {
        if (buckets[i] > last) last = buckets[i];
    }
    if (last < gnu[1]) return gnu[1]; /* none is hashed */
    while ((chain[last - gnu[1]] & 1) == 0) last++;
    return last + 1;
}

/* The names of what looks like handlers in the plugin. */
static size_t handlers(const struct load *l, const char **names, size_t room)
{
    struct link_map *map = NULL;
    const ElfW(Sym) *sym = NULL;
    const char *text = NULL;
    const uint32_t *gnu = NULL, *sysv = NULL;
    size_t n = 0, all;

    if (dlinfo(l->handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL) return 0;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) sym = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_STRTAB) text = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_GNU_HASH) gnu = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_HASH) sysv = (const void *)d->d_un.d_ptr;
    }
    if (sym == NULL || text == NULL) return 0;
    all = symbols_n(gnu, sysv);
    for (size_t i = 0; i < all && n < room; i++) {
        if (sym[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(sym[i].st_info) != STT_OBJECT
            || sym[i].st_size != sizeof(struct pawl_handler)) {
            continue;
        }
        names[n++] = text + sym[i].st_name;
    }
    return n;
}

static enum pawl_rc no_handler(const struct load *l)
{
    const char *names[NAMES_MAX];
    size_t n = handlers(l, names, NAMES_MAX);
    int near = n > 0 ? text_nearest(l->t->symbol, names, n) : -1;
    struct buf all = {0};
    enum pawl_rc rc;

    if (dlsym(l->handle, l->t->symbol) != NULL) {
        return refuse(l, "'%s' in %s is not a handler; define it with PAWL_HANDLER(%s, ...)",
                      l->t->symbol, l->t->plugin, l->t->symbol);
    }
    if (near >= 0) {
        return refuse(l, "no handler '%s' in %s; did you mean '%s'?", l->t->symbol, l->t->plugin,
                      names[near]);
    }
    if (n == 0) {
        return refuse(l, "no handler '%s' in %s; define it with PAWL_HANDLER(%s, ...)",
                      l->t->symbol, l->t->plugin, l->t->symbol);
    }
    for (size_t i = 0; i < n; i++) buf_printf(&all, "%s%s", i > 0 ? " " : "", names[i]);
    rc = refuse(l, "no handler '%s' in %s; it has: %s", l->t->symbol, l->t->plugin,
                buf_str(&all));
    buf_free(&all);
    return rc;
}

/* A function of the same name must not be read as a struct. Without a table to look into: it is. */
static bool is_handler(const struct load *l)
{
    const char *names[NAMES_MAX];
    size_t n = handlers(l, names, NAMES_MAX);

    if (n == 0 || n == NAMES_MAX) return n != 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], l->t->symbol) == 0) return true;
    }
    return false;
}

enum pawl_rc c_plugin_load(const struct conf *conf, struct conf_task *t,
                           const struct pawl_handler **out, struct pawl_error *e)
{
    struct load l = {.conf = conf, .t = t, .e = e};
    struct pawl_error why = {0};
    const struct pawl_handler *h;
    enum pawl_rc rc;

    *out = NULL;
    if ((rc = open_plugin(&l)) != PAWL_OK || (rc = check_sqlite(&l)) != PAWL_OK) return rc;
    h = dlsym(l.handle, t->symbol);
    if (h == NULL || !is_handler(&l)) return no_handler(&l);
    if (c_handler_check(h, t->symbol, &why) != PAWL_OK) return refuse(&l, "%s", why.msg);
    if ((rc = conf_set_mode(conf, t, c_is_prepared(h, &t->policy), e)) != PAWL_OK) return rc;
    *out = h;
    return PAWL_OK;
}

enum pawl_rc c_plugins_load(struct conf *conf, const struct pawl_handler **out,
                            struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < conf->tasks_n && rc == PAWL_OK; i++) {
        out[i] = NULL;
        if (conf->tasks[i].kind != HANDLER_C) continue;
        rc = c_plugin_load(conf, &conf->tasks[i], &out[i], e);
    }
    return rc;
}
