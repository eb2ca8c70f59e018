// SPDX-License-Identifier: Apache-2.0
/* worker.c - this process as a worker: its side file, its beat, and how it is woken. */
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "store/verb/db.h"

enum pawl_rc db_worker_join(struct store *st, char *id_out, int *fd_out, struct pawl_error *e)
{
    struct db *db = db_of(st);
    const enum pawl_rc rc = side_join(&db->side, db->lease_us, st->env->random(st->env->ctx),
                                      st->env->boot_us(st->env->ctx), e);

    if (rc != PAWL_OK)
        return rc;
    snprintf(id_out, SIDE_ID_BYTES, "%s", db->side.id);
    if (fd_out != NULL)
        *fd_out = db->side.worker_fd;
    return PAWL_OK;
}

enum pawl_rc db_worker_attach(struct store *st, const char *id, int fd, struct pawl_error *e)
{
    return side_attach(&db_of(st)->side, id, fd, e);
}

bool db_worker_beat(struct store *st)
{
    struct db *db = db_of(st);

    if (db->side.w == NULL)
        return true;
    atomic_store(&db->side.w->beat_boot_us, st->env->boot_us(st->env->ctx));
    return side_there(&db->side);
}

int64_t db_worker_stamp(struct store *st)
{
    struct db *db = db_of(st);

    return db->side.w != NULL ? atomic_load(&db->side.w->beat_boot_us) : 0;
}

void db_worker_orderly(struct store *st)
{
    struct db *db = db_of(st);

    if (db->side.w == NULL)
        return;
    atomic_store(&db->side.w->orderly, 1);
    for (size_t i = 0; i < db->side.crew_n; i++)
        atomic_store(&db->side.crew[i].w->orderly, 1);
    side_blame_clear(&db->side);
}

enum pawl_rc db_worker_leave(struct store *st, struct pawl_error *e)
{
    struct db *db = db_of(st);
    int64_t id = 0;
    size_t n = 0;
    enum pawl_rc rc = db_held(st, &id, 1, &n, e);

    if (rc != PAWL_OK)
        return rc;
    if (n > 0)
        return pawl_fail(e, PAWL_BUG, "worker %s leaves while it holds job %lld", db->side.id,
                         (long long)id);
    side_leave(&db->side);
    return PAWL_OK;
}

int64_t db_in_hand(struct store *st, const char *crew, int64_t *since_us)
{
    struct side *s = &db_of(st)->side;
    const struct side_crew *c = crew != NULL ? side_crew_find(s, crew) : NULL;

    return side_in_hand(c != NULL ? c->w : crew == NULL ? s->w : NULL, since_us);
}

int db_wake_fd(struct store *st) { return side_watch(&db_of(st)->side); }
void db_wake_clear(struct store *st) { (void)side_watch_clear(&db_of(st)->side); }
void db_poke(struct store *st) { db_wake(db_of(st)); }
