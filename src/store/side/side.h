// SPDX-License-Identifier: Apache-2.0
/* side.h - the files beside the database (PATH-pawl/): the lock that pawl processes queue on,
 * the wake file, and one file per worker that survives SIGKILL of everything.
 *
 * lock     flock: held by a pawl process around each writing transaction. Its first page is shared
 *          memory: pacing (gaps for foreign writers) and whose turn it is (turn.c).
 * lock-N   the same lock, after N times a process was killed that held it and had a forked child
 * mail     requests of processes that found the lock taken, for whoever holds it (mail.h)
 * wake     written after a commit; idle workers watch it with inotify
 * w-<id>   one per worker: flock held while it lives; boot id, beat, blame record
 */
#ifndef SL_SIDE_H
#define SL_SIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "core/limits.h"
#include "pawl.h"
#include "store/side/mail.h"
#include "store/side/pace.h"
#include "store/side/who.h"

#define SIDE_MAGIC 0x5041574c53494432ULL /* "PAWLSID2" */
#define SIDE_ID_BYTES 24
#define SIDE_MISSING_MAX 2048 /* as many as one look at the workers lists */

enum blame_phase { BLAME_IDLE = 0, BLAME_HAND = 1, BLAME_COMMIT = 2 };
/* What the list of a blame record is: an effect batch, whose jobs wait in ready; or leased jobs
 * that are prepared one after the other (before the one in hand: prepared; behind it: untouched);
 * or prepared ones that are applied in one transaction. */
enum blame_kind { BLAME_EFFECT = 0, BLAME_PREPARE = 1, BLAME_APPLY = 2 };
struct side_blame {
    _Atomic uint32_t phase;      /* written last */
    uint32_t n, hand, alone;     /* hand == n: none of them is in hand */
    uint32_t kind;               /* enum blame_kind */
    uint64_t nonce;              /* random per batch */
    _Atomic int64_t hand_us;     /* monotonic: since when this one is in hand */
    struct { int64_t id, runs; } jobs[LIMIT_BATCH];
};
/* The content of a worker's file. */
struct side_worker {
    uint64_t magic;
    char boot_id[40];
    char host[64];
    int64_t pid;
    int64_t lease_us;
    _Atomic int64_t beat_boot_us;
    uint32_t serial;             /* its leased jobs run one at a time: blame says which */
    char parent[SIDE_ID_BYTES];  /* a runner of that worker; "": a worker of its own */
    _Atomic uint32_t orderly;    /* it was told to stop, and could not hand its jobs back in time */
    struct side_blame blame;
};
struct side_page {
    struct pace pace;
    _Atomic int64_t waiting_us;     /* when somebody last found it taken */
    _Atomic uint64_t last;          /* who let it go last */
    _Atomic uint64_t turn;          /* which lock file it is, and who holds it (turn.c) */
    _Atomic int64_t frames;         /* WAL frames after the last commit of a pawl process */
};
struct side_share { unsigned mode, gid; };
struct side {
    int dir_fd, lock_fd, wake_fd, ino_fd, worker_fd;
    bool held;
    bool long_turn;                 /* what comes next is no short transaction */
    int64_t gap_used_us;            /* the end of the gap in which we wrote */
    struct side_page *page;
    uint64_t who;                   /* this process: who.h */
    uint64_t tag;                   /* this handle of it, in the bits above */
    int turn_fd;                    /* the lock file that is in use, if it is not lock_fd */
    uint64_t turn_gen;              /* its number */
    uint64_t held_gen;              /* held: of the lock file that we hold */
    struct { uint64_t word; int64_t since_us, judged_us, last_us; } seen; /* while we wait */
    struct mail *mail;              /* NULL: none could be made */
    char boot[40];                  /* "": not asked yet */
    struct side_worker *w;
    char id[SIDE_ID_BYTES];
    bool runner;                    /* attached: shares the supervisor's file */
    struct side_crew *crew;         /* files made for our runners */
    size_t crew_n;
    struct { char id[SIDE_ID_BYTES]; int64_t since_us; } missing[SIDE_MISSING_MAX];
    struct side_share share;
};

/* Give a side file the group and mode of the database: whoever may write it may write beside it,
 * whatever our umask. Best effort: the file's owner is another user at times. */
void side_share(int fd, struct side_share how);

void side_init(struct side *s);
enum pawl_rc side_open(struct side *s, const char *db_path, struct pawl_error *e) PAWL_MUST_USE;
void side_close(struct side *s);
bool side_room(int fd, size_t n);       /* allocate the first n bytes; false: errno */
/* Take the side lock within wait_us; leaves gaps for foreign writers. OK | BUSY | IO. */
enum pawl_rc side_lock(struct side *s, int64_t wait_us, struct pawl_error *e) PAWL_MUST_USE;
/* The same, now or not at all. BUSY: it is worth another look after *look_us. sure: ask the kernel,
 * and do not stand back for others. ERROR: errno. */
enum side_turn { TURN_TAKEN, TURN_BUSY, TURN_ERROR };
enum side_turn side_try(struct side *s, bool sure, int64_t *look_us);
enum pawl_rc side_busy(const struct side *s, int64_t wait_us, struct pawl_error *e);
void side_unlock(struct side *s);
void side_held(struct side *s, int64_t us);    /* the database's own write lock was held so long */
void side_saw_foreign(struct side *s);         /* a foreign commit was seen */
int64_t side_turn_us(const struct side *s);    /* how long the next transaction should take */
void side_wake(struct side *s);
int side_watch(struct side *s);         /* inotify descriptor, -1 if it cannot be had */
bool side_watch_clear(struct side *s);  /* true: it was written to */

enum pawl_rc side_join(struct side *s, int64_t lease_us, uint64_t rnd, int64_t boot_us,
                       struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc side_attach(struct side *s, const char *id, int fd,
                         struct pawl_error *e) PAWL_MUST_USE;
/* stamp boot time; the runner leaves that to its supervisor */
void side_beat(const struct side *s);
void side_leave(struct side *s);
bool side_there(const struct side *s); /* our worker file still has its name */

/* Another worker's file, looked at. */
enum side_life { SIDE_ALIVE, SIDE_GONE /* lock is ours now */, SIDE_MISSING, SIDE_OLD_BOOT,
    SIDE_FROZEN, SIDE_UNHEARD /* elsewhere, and it does not beat (engines that know, only) */ };
struct side_peer { char id[SIDE_ID_BYTES]; int fd; enum side_life life; struct side_worker *w; };
/* Ids of all worker files. */
enum pawl_rc side_list(struct side *s, struct arena *a, char (**ids)[SIDE_ID_BYTES], size_t *n,
                       struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc side_look(struct side *s, const char *id, int64_t boot_us, struct side_peer *out,
                       struct pawl_error *e) PAWL_MUST_USE;
/* A worker without a file: no evidence of a death, perhaps the directory was removed. True once it
 * has been missing for as long as a lease, by this process's own watch. */
bool side_missing_long(struct side *s, const char *id, int64_t boot_us, int64_t lease_us);
bool side_still_frozen(const struct side_peer *p, int64_t boot_us);
void side_forget(struct side *s, struct side_peer *p, bool unlink_it);

/* Files for runners of ours that lease by themselves (verb/crew.c). The locked descriptor is held
 * by both: free means that runner and supervisor are gone. */
struct side_crew { char id[SIDE_ID_BYTES]; int fd; struct side_worker *w; };
enum pawl_rc side_crew_join(struct side *s, int64_t lease_us, uint64_t rnd, int64_t boot_us,
                            struct side_crew **out, struct pawl_error *e) PAWL_MUST_USE;
struct side_crew *side_crew_find(struct side *s, const char *id); /* NULL: not of ours */
void side_crew_leave(struct side *s, const char *id);
void side_crew_close(struct side *s); /* ours go with us; the files stay, for whoever recovers */

void side_blame_batch(struct side *s, enum blame_kind kind, uint64_t nonce, bool alone);
void side_blame_job(struct side *s, uint32_t i, int64_t id, int64_t runs); /* fills the list */
void side_blame_hand(struct side *s, uint32_t i);
/* The job in hand of our worker's runner: its id and since when (monotonic); 0: none. */
int64_t side_in_hand(const struct side_worker *w, int64_t *since_us);
void side_blame_commit(struct side *s);
void side_blame_clear(struct side *s);

#endif
