/*
 * fairlock: fair distributed locks with leases and fencing tokens.
 *
 * Written by cbindgen from bindings/c/src; do not edit. The README beside it shows the way in.
 *
 * Rules that hold for every function, where its comment says nothing else:
 *
 * - Threads: any thread may call it, also several at once on the same handle. A function that frees
 *   a handle must be the last one to use it.
 * - NULL where a pointer is needed gives FAIRLOCK_INVALID_ARGUMENT, or 0 or NULL where a function
 *   returns no status. Functions that free a handle accept NULL and do nothing.
 * - A status other than FAIRLOCK_OK leaves a message for the calling thread: fairlock_last_error().
 *   What a function was to give back is then NULL or 0.
 * - Strings are UTF-8 and end with NUL; keys have a length and may hold any bytes.
 * - Times are in milliseconds.
 * - No function unwinds into its caller or ends the process.
 */


#ifndef FAIRLOCK_H
#define FAIRLOCK_H

#include <stddef.h>
#include <stdint.h>
/** The version of this header; that of the library is fairlock_version(). */
#define FAIRLOCK_VERSION "0.1.0"

/** fairlock_client_options with every default. */
#define FAIRLOCK_CLIENT_OPTIONS_INIT \
  { sizeof(fairlock_client_options), NULL, NULL, NULL, FAIRLOCK_DEFAULT_CONNECT_TIMEOUT_MS, 0, \
    FAIRLOCK_FOLLOW_ANY, FAIRLOCK_TLS_AUTO, NULL, NULL, NULL, NULL }

/** fairlock_options with every default. */
#define FAIRLOCK_OPTIONS_INIT \
  { sizeof(fairlock_options), FAIRLOCK_DEFAULT_LEASE_MS, 0, 0, 0, NULL, NULL }

/**
 * The lease of a lock for which none is given.
 */
#define FAIRLOCK_DEFAULT_LEASE_MS 30000

/**
 * How long one try of a connection may take unless the client is told otherwise.
 */
#define FAIRLOCK_DEFAULT_CONNECT_TIMEOUT_MS 3000

/**
 * `follow_moves`: go to any address that a server names.
 */
#define FAIRLOCK_FOLLOW_ANY 0

/**
 * `follow_moves`: go only to addresses of the client's own list, compared as text.
 */
#define FAIRLOCK_FOLLOW_LISTED 1

/**
 * `tls`: with TLS where `FAIRLOCK_TLS` is `true`, and as soon as one of the files or the name is
 * given, here or in the environment.
 */
#define FAIRLOCK_TLS_AUTO 0

/**
 * `tls`: with TLS.
 */
#define FAIRLOCK_TLS_ON 1

/**
 * `tls`: surely without TLS.
 */
#define FAIRLOCK_TLS_OFF 2

/**
 * How many bytes an address of fairlock_server_free_address() takes at most.
 */
#define FAIRLOCK_FREE_ADDRESS_SIZE 32

/**
 * What became of a call. The numbers are fixed; later versions may add some.
 */
typedef enum fairlock_status {
  /**
   * It is done.
   */
  FAIRLOCK_OK = 0,
  /**
   * The lock was not had within `wait_ms`.
   */
  FAIRLOCK_WAIT_TIMEOUT = 1,
  /**
   * No server could be reached, or none of them is active.
   */
  FAIRLOCK_CONNECTION_FAILED = 2,
  /**
   * An argument cannot be used; nothing was sent, unless it is a lease above the server's `max_lease`.
   */
  FAIRLOCK_INVALID_ARGUMENT = 3,
  /**
   * The server refused; fairlock_last_reason() says why in a word ("auth", "denied", "busy" …).
   */
  FAIRLOCK_REFUSED = 4,
  /**
   * The lock was lost before; fairlock_last_reason() says how ("expired", "taken",
   * "unconfirmed", "closed").
   */
  FAIRLOCK_LOCK_LOST = 5,
  /**
   * No server answered the release for five seconds; the lease will free the lock.
   */
  FAIRLOCK_RELEASE_UNCONFIRMED = 6,
  /**
   * The fence has seen a newer token of this key: the caller is not the holder any more.
   */
  FAIRLOCK_STALE_TOKEN = 7,
  /**
   * The client was closed.
   */
  FAIRLOCK_CLOSED = 8,
  /**
   * The handle belongs to the process that this one was forked from.
   */
  FAIRLOCK_FORKED = 9,
  /**
   * The call was cancelled by fairlock_cancel().
   */
  FAIRLOCK_CANCELLED = 10,
  /**
   * A node could not be started, or had ended by itself.
   */
  FAIRLOCK_SERVER_FAILED = 100,
  /**
   * A blocking call was made inside a callback, where it would wait for itself.
   */
  FAIRLOCK_WOULD_DEADLOCK = 101,
  /**
   * A bug of the library; please report the message.
   */
  FAIRLOCK_INTERNAL = 102,
} fairlock_status;

/**
 * How a lock was lost.
 */
typedef enum fairlock_lost_reason {
  /**
   * Its lease is nearly over: an eighth of it is left.
   */
  FAIRLOCK_LOST_EXPIRED = 1,
  /**
   * The server says that the token does not hold the key: an operator released it, or the grant
   * did not survive a change of the active node.
   */
  FAIRLOCK_LOST_TAKEN = 2,
  /**
   * Renewals were sent, and none was confirmed in time.
   */
  FAIRLOCK_LOST_UNCONFIRMED = 3,
  /**
   * The client was closed.
   */
  FAIRLOCK_LOST_CLOSED = 4,
} fairlock_lost_reason;

/**
 * A client of a server or of a cluster. One is enough for a process: any thread may use it, also
 * several at once. However many there are, they share one background thread.
 *
 * After fork() the child may use it too: it then has an identity and connections of its own. The
 * child never releases its parent's locks.
 */
typedef struct fairlock_client fairlock_client;

/**
 * Remembers the highest token seen of each key and refuses smaller ones; for the protected
 * resource. It lives in memory: where the resource outlives the process, keep the mark in the
 * resource itself, as examples/c/protected_resource.c does.
 */
typedef struct fairlock_fence fairlock_fence;

/**
 * A lock that this process holds, or held. It belongs to no thread: any thread may use it and
 * release it.
 *
 * In a process forked from the holder fairlock_lock_held() says 0, calls that would change the lock
 * return FAIRLOCK_FORKED, and releasing it only frees the handle.
 */
typedef struct fairlock_lock fairlock_lock;

/**
 * A call that has been started and can be cancelled.
 */
typedef struct fairlock_pending fairlock_pending;

/**
 * A node that runs inside the process, on a thread of its own.
 */
typedef struct fairlock_server fairlock_server;

/**
 * What a server has told: held locks, waiters, its status. Nothing in it changes any more, and any
 * thread may read it.
 */
typedef struct fairlock_view fairlock_view;

/**
 * What a client is told when it is made. Always begin with
 * `fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;`. Strings are copied.
 */
typedef struct fairlock_client_options {
  /**
   * Set by the macro, so that later versions can add fields.
   */
  size_t size;
  /**
   * Shown to operators who ask who holds a lock, 1 to 128 bytes. NULL: host name and process id.
   */
  const char *name;
  /**
   * What the servers want to hear before they serve: their secret, or `name:secret` of a user. NULL: `FAIRLOCK_SECRET`, if it is set.
   */
  const char *secret;
  /**
   * A file with the secret. NULL: `FAIRLOCK_SECRET_FILE`, if it is set.
   */
  const char *secret_file;
  /**
   * How long one try of a connection may take, and how long a call waits when none is up; it also waits
   * until each server has been tried once more, which is every three seconds.
   */
  uint64_t connect_timeout_ms;
  /**
   * How long an acquire goes on trying after its tries are used up.
   */
  uint64_t retry_for_ms;
  /**
   * FAIRLOCK_FOLLOW_ANY or FAIRLOCK_FOLLOW_LISTED.
   */
  int follow_moves;
  /**
   * FAIRLOCK_TLS_AUTO, FAIRLOCK_TLS_ON or FAIRLOCK_TLS_OFF.
   */
  int tls;
  /**
   * A PEM file with the CAs that have to have signed the servers' certificates. NULL:
   * `FAIRLOCK_CA_FILE`, if it is set, and else the CAs that the system trusts.
   */
  const char *ca_file;
  /**
   * A PEM file with the certificate that this client shows where a server asks for one, and one
   * with its key. NULL: `FAIRLOCK_CERT_FILE` and `FAIRLOCK_KEY_FILE`, if they are set. All files
   * are read again for new connections when they have changed.
   */
  const char *cert_file;
  /**
   * See `cert_file`.
   */
  const char *key_file;
  /**
   * The name that the servers' certificates have to be for. NULL: `FAIRLOCK_SERVER_NAME`, if it
   * is set, and else the host of each address.
   */
  const char *server_name;
} fairlock_client_options;

/**
 * Told that a lock is lost; see fairlock_lock_on_lost().
 */
typedef void (*fairlock_lost_callback)(void *data, enum fairlock_lost_reason reason);

/**
 * How a lock is asked for. Always begin with `fairlock_options options = FAIRLOCK_OPTIONS_INIT;`.
 */
typedef struct fairlock_options {
  /**
   * Set by the macro, so that later versions can add fields.
   */
  size_t size;
  /**
   * How long the lock stays held if nobody keeps or releases it. Be generous, but no longer than a
   * dead client may block the others. Default: 30 s.
   */
  uint64_t lease_ms;
  /**
   * How long to wait for the lock; 0, the default, without limit. Not waiting at all is
   * fairlock_try_acquire(), which does not look at this.
   */
  uint64_t wait_ms;
  /**
   * Not 0: renew the lease in the background, at a third of it, until the lock is released. Needs
   * a lease of at least a second.
   */
  int keep_alive;
  /**
   * The longest time that `keep_alive` goes on; 0, the default, without limit.
   */
  uint64_t max_hold_ms;
  /**
   * Told once if the lock is lost before it is released; see fairlock_lock_on_lost(). May be NULL.
   */
  fairlock_lost_callback on_lost;
  /**
   * Given to `on_lost`.
   */
  void *on_lost_data;
} fairlock_options;

/**
 * Told how a release or a keep ended.
 */
typedef void (*fairlock_done_callback)(void *data, enum fairlock_status status);

/**
 * Who holds a key. Strings belong to the view that it was taken from.
 */
typedef struct fairlock_held_lock {
  /**
   * What is locked; a NUL stands behind its last byte.
   */
  const char *key;
  /**
   * Its length.
   */
  size_t key_length;
  /**
   * The fencing token.
   */
  uint64_t token;
  /**
   * What is left of the lease.
   */
  uint64_t remaining_ms;
  /**
   * How many wait for the key.
   */
  uint64_t waiters;
  /**
   * The name that the holder gave itself; NULL if it gave none.
   */
  const char *name;
  /**
   * The network address of the holder, as the server saw it.
   */
  const char *address;
} fairlock_held_lock;

/**
 * One who waits for a key. Strings belong to the view that it was taken from.
 */
typedef struct fairlock_waiter {
  /**
   * The place in the queue, from 1.
   */
  uint64_t position;
  /**
   * For how long already.
   */
  uint64_t waited_ms;
  /**
   * The name that the client gave itself; NULL if it gave none.
   */
  const char *name;
  /**
   * The network address of the client, as the server saw it.
   */
  const char *address;
} fairlock_waiter;

/**
 * What a server says of itself. Strings belong to the view that it was taken from.
 */
typedef struct fairlock_node_status {
  /**
   * "starting", "standby", "active" or "leaving".
   */
  const char *role;
  /**
   * Its own address.
   */
  const char *node;
  /**
   * The address of the active node; NULL if it knows of none.
   */
  const char *active;
  /**
   * The addresses of the standbys that have a copy of its state, with commas between them.
   */
  const char *standbys;
  /**
   * The addresses of all nodes of its cluster in the order of their priority, with commas between them.
   */
  const char *peers;
  /**
   * The term of its tokens.
   */
  uint32_t term;
  /**
   * How many keys are held.
   */
  uint64_t held;
  /**
   * How many requests wait.
   */
  uint64_t waiting;
  /**
   * How many connections there are.
   */
  uint64_t connections;
} fairlock_node_status;

/**
 * Told how an acquire ended; see fairlock_acquire_async(). With FAIRLOCK_OK the lock belongs to the
 * callback, which must see to it that it is released; it is NULL after a try of a held key, and with
 * every other status.
 */
typedef void (*fairlock_acquired_callback)(void *data,
                                           enum fairlock_status status,
                                           struct fairlock_lock *lock);

/**
 * One setting of a node. The names, and how the values are written, are those of the settings file;
 * durations are in seconds, as there.
 */
typedef struct fairlock_setting {
  /**
   * As in "data_dir" or "max_lease".
   */
  const char *name;
  /**
   * As in "/var/lib/fairlock" or "60".
   */
  const char *value;
} fairlock_setting;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, as in "0.1.0". The string lives as long as the library.
 */
const char *fairlock_version(void);

/**
 * Makes a client. Does not wait for the network: connections come up in the background, and the
 * first call waits for them, at most `connect_timeout_ms`.
 *
 * `servers` is one address or several, with commas between them, in any order; a port that is left
 * out is 7420. NULL stands for the environment's FAIRLOCK_SERVERS, or else 127.0.0.1:7420. `options`
 * may be NULL. Strings are copied. The caller closes the client with fairlock_client_close().
 *
 * FAIRLOCK_INVALID_ARGUMENT: an address that is none, an option out of its limits, a secret file
 * that cannot be read.
 */
enum fairlock_status fairlock_client_open(const char *servers,
                                          const struct fairlock_client_options *options,
                                          struct fairlock_client **client);

/**
 * Waits until a connection is up, at most `connect_timeout_ms`; for programs that want to know at
 * once whether there is a server.
 *
 * FAIRLOCK_CONNECTION_FAILED: none; the message names each address and why it failed.
 * FAIRLOCK_REFUSED: the servers do not want this client. FAIRLOCK_WOULD_DEADLOCK: in a callback.
 */
enum fairlock_status fairlock_client_connected(const struct fairlock_client *client);

/**
 * Closes a client and frees the handle. Does nothing with NULL.
 *
 * What is under way ends with FAIRLOCK_CLOSED at once, blocking calls of other threads too. Locks
 * are told that they are lost, and those still held are released, for at most a second; their
 * handles stay the caller's, to be freed with fairlock_release(). When this returns, every callback
 * of the client's calls has come and returned, and with the last client the background thread has
 * ended. It therefore waits for a callback that is running: hold no mutex that one of them takes.
 *
 * Inside a callback it does not wait: the rest goes on in the background, and callbacks may come
 * after it has returned.
 */
void fairlock_client_close(struct fairlock_client *client);

/**
 * Waits in line for a lock and takes it. The caller ends it with fairlock_release().
 *
 * `key` is any `key_length` bytes, 1 to 512. `options` may be NULL. Other threads can use the client
 * meanwhile. To be able to stop waiting, use fairlock_acquire_async() and fairlock_cancel().
 *
 * FAIRLOCK_WAIT_TIMEOUT: not had within `wait_ms`; nothing is left behind.
 * FAIRLOCK_CONNECTION_FAILED: no server; the message names each address and why it failed.
 * FAIRLOCK_REFUSED, FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_CLOSED.
 * FAIRLOCK_WOULD_DEADLOCK: in a callback.
 */
enum fairlock_status fairlock_acquire(const struct fairlock_client *client,
                                      const void *key,
                                      size_t key_length,
                                      const struct fairlock_options *options,
                                      struct fairlock_lock **lock);

/**
 * Takes a lock if it is free at this moment. If somebody else holds it: FAIRLOCK_OK and a NULL
 * `lock`. Everything else is as with fairlock_acquire(); `wait_ms` does not count.
 */
enum fairlock_status fairlock_try_acquire(const struct fairlock_client *client,
                                          const void *key,
                                          size_t key_length,
                                          const struct fairlock_options *options,
                                          struct fairlock_lock **lock);

/**
 * Makes a fence that has seen nothing. The caller frees it with fairlock_fence_free().
 */
struct fairlock_fence *fairlock_fence_new(void);

/**
 * Lets a token pass that is at least the highest one seen of the key, and remembers it.
 *
 * FAIRLOCK_STALE_TOKEN: a higher one has been seen; who comes with this one no longer holds the
 * lock and must not write. FAIRLOCK_INVALID_ARGUMENT: NULL, or 0 as a token.
 */
enum fairlock_status fairlock_fence_check(const struct fairlock_fence *fence,
                                          const void *key,
                                          size_t key_length,
                                          uint64_t token);

/**
 * The highest token seen of the key; 0 if none has been, or for NULL.
 */
uint64_t fairlock_fence_highest(const struct fairlock_fence *fence,
                                const void *key,
                                size_t key_length);

/**
 * Forgets the key, for a resource that is gone. A token of it that comes later passes.
 */
enum fairlock_status fairlock_fence_forget(const struct fairlock_fence *fence,
                                           const void *key,
                                           size_t key_length);

/**
 * Frees a fence. Does nothing with NULL.
 */
void fairlock_fence_free(struct fairlock_fence *fence);

/**
 * The key. `length`, which may be NULL, gets its length; a NUL stands behind its last byte. It
 * belongs to the handle and lives as long. NULL for NULL.
 */
const char *fairlock_lock_key(const struct fairlock_lock *lock, size_t *length);

/**
 * The fencing token: of two locks of a key the later one has the higher token. Give it to what the
 * lock protects, so that it can refuse an older one; see fairlock_fence_check(). 0 for NULL.
 */
uint64_t fairlock_lock_token(const struct fairlock_lock *lock);

/**
 * The lease by which the lock ends: that of the acquire, or of the latest keep that has put its end
 * off. 0 for NULL.
 */
uint64_t fairlock_lock_lease_ms(const struct fairlock_lock *lock);

/**
 * How long the lock surely stays held without being kept, by a clock that goes on while the machine
 * sleeps: never too long, 0 when it is lost. 0 for NULL.
 */
uint64_t fairlock_lock_remaining_ms(const struct fairlock_lock *lock);

/**
 * 1 while the lock is held, 0 when it is lost, or for NULL. A short look that asks no server.
 */
int fairlock_lock_held(const struct fairlock_lock *lock);

/**
 * Renews the lease: it ends `lease_ms` from now, or later if it would have anyway; 0 stands for
 * fairlock_lock_lease_ms(). Waits for the answer.
 *
 * FAIRLOCK_LOCK_LOST: the lock was lost. FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_REFUSED,
 * FAIRLOCK_FORKED. FAIRLOCK_WOULD_DEADLOCK: in a callback; fairlock_lock_keep_async() works there.
 */
enum fairlock_status fairlock_lock_keep(const struct fairlock_lock *lock, uint64_t lease_ms);

/**
 * As fairlock_lock_keep(), without waiting: `callback` is told how it ended, under the rules of
 * fairlock_acquire_async(). The handle may be released before.
 */
enum fairlock_status fairlock_lock_keep_async(const struct fairlock_lock *lock,
                                              uint64_t lease_ms,
                                              fairlock_done_callback callback,
                                              void *data);

/**
 * Says whom to tell if the lock is lost before it is released, in place of whom it was before; NULL
 * for nobody. If it has been lost already, `callback` is called before this returns, on this thread.
 *
 * A callback comes once, at the latest when an eighth of the lease is left, so before anybody else can
 * have the lock; with FAIRLOCK_LOST_CLOSED when the client is closed. For it the rules of
 * fairlock_acquire_async() hold: it comes on the client's own thread, or on any thread that is inside
 * a call of this library, so hold no mutex during such a call that it takes.
 *
 * After this, or after fairlock_release(), has returned, the callback that was there before is not
 * running and never will be: its data can be freed. Both therefore wait for one that is running.
 * Called by the callback itself they do not wait.
 */
enum fairlock_status fairlock_lock_on_lost(const struct fairlock_lock *lock,
                                           fairlock_lost_callback callback,
                                           void *data);

/**
 * Releases a lock, waits for the answer, and frees the handle, whatever it returns. Does nothing
 * with NULL and returns FAIRLOCK_OK.
 *
 * FAIRLOCK_LOCK_LOST: the lock had been lost before, fairlock_last_reason() says how.
 * FAIRLOCK_RELEASE_UNCONFIRMED: no server answered for five seconds; its lease will free the lock.
 * FAIRLOCK_FORKED: the lock is the parent's and stays held.
 *
 * Inside a callback it does not wait for the answer: the release goes on in the background, and
 * FAIRLOCK_OK says that the lock was held so far.
 */
enum fairlock_status fairlock_release(struct fairlock_lock *lock);

/**
 * As fairlock_release(), without waiting: `callback`, which may be NULL, is told how it ended, under
 * the rules of fairlock_acquire_async(). Frees the handle.
 */
enum fairlock_status fairlock_release_async(struct fairlock_lock *lock,
                                            fairlock_done_callback callback,
                                            void *data);

/**
 * Gives a lock up without releasing it, frees the handle and returns the token, with which somebody
 * can release or keep the lock: fairlock_release_token(). It stays held until its lease ends and is
 * no longer renewed. 0 for NULL.
 */
uint64_t fairlock_lock_leave_held(struct fairlock_lock *lock);

/**
 * Asks who holds a key: the view has one held lock, or none if the key is free, and the number of
 * waiters. The caller frees the view with fairlock_view_free().
 *
 * FAIRLOCK_CONNECTION_FAILED, FAIRLOCK_REFUSED, FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_CLOSED.
 * FAIRLOCK_WOULD_DEADLOCK: in a callback.
 */
enum fairlock_status fairlock_inspect(const struct fairlock_client *client,
                                      const void *key,
                                      size_t key_length,
                                      struct fairlock_view **view);

/**
 * Asks who waits for a key: the view has the first `limit` of them (1 to 100,000) in their order,
 * and how many there are in all. Everything else is as with fairlock_inspect().
 */
enum fairlock_status fairlock_waiters(const struct fairlock_client *client,
                                      const void *key,
                                      size_t key_length,
                                      uint32_t limit,
                                      struct fairlock_view **view);

/**
 * Asks for the held keys that begin with `prefix` (length 0 for all; it may then be NULL), at most
 * `limit` (1 to 100,000), in an order of the server's own. For the next page give what
 * fairlock_view_next() says as `after`; NULL for the first one. Everything else is as with
 * fairlock_inspect().
 */
enum fairlock_status fairlock_locks(const struct fairlock_client *client,
                                    const void *prefix,
                                    size_t prefix_length,
                                    const void *after,
                                    size_t after_length,
                                    uint32_t limit,
                                    struct fairlock_view **view);

/**
 * Asks the node that serves this client for a line about itself: fairlock_view_node(). Everything
 * else is as with fairlock_inspect().
 */
enum fairlock_status fairlock_server_status(const struct fairlock_client *client,
                                            struct fairlock_view **view);

/**
 * The held lock at `index`, from 0; NULL behind the last one, and for NULL. Belongs to the view.
 */
const struct fairlock_held_lock *fairlock_view_lock(const struct fairlock_view *view, size_t index);

/**
 * The waiter at `index`, from 0; NULL behind the last one, and for NULL. Belongs to the view.
 */
const struct fairlock_waiter *fairlock_view_waiter(const struct fairlock_view *view, size_t index);

/**
 * How many wait for the key that was asked about. 0 for NULL.
 */
uint64_t fairlock_view_waiting(const struct fairlock_view *view);

/**
 * The status of the node; NULL if the view is of something else, and for NULL. Belongs to the view.
 */
const struct fairlock_node_status *fairlock_view_node(const struct fairlock_view *view);

/**
 * What to give to fairlock_locks() as `after` for the next page, with its length; NULL if this was
 * the last page, and for NULL. Belongs to the view.
 */
const void *fairlock_view_next(const struct fairlock_view *view, size_t *length);

/**
 * Frees a view and everything in it. Does nothing with NULL.
 */
void fairlock_view_free(struct fairlock_view *view);

/**
 * Releases whatever holds the key with this token, also a lock of another client, and waits for the
 * answer. The holder is told "taken".
 *
 * FAIRLOCK_LOCK_LOST: the token does not hold the key. FAIRLOCK_RELEASE_UNCONFIRMED: it was sent, and
 * no server answered for five seconds. FAIRLOCK_CONNECTION_FAILED: there was none to send it to.
 * FAIRLOCK_REFUSED, FAIRLOCK_INVALID_ARGUMENT, FAIRLOCK_CLOSED. FAIRLOCK_WOULD_DEADLOCK: in a callback.
 */
enum fairlock_status fairlock_release_token(const struct fairlock_client *client,
                                            const void *key,
                                            size_t key_length,
                                            uint64_t token);

/**
 * Lets the lease of whatever holds the key with this token end no earlier than `lease_ms` from now,
 * and waits for the answer. As fairlock_release_token(), with FAIRLOCK_CONNECTION_FAILED if no
 * server answered.
 */
enum fairlock_status fairlock_keep_token(const struct fairlock_client *client,
                                         const void *key,
                                         size_t key_length,
                                         uint64_t token,
                                         uint64_t lease_ms);

/**
 * Asks for a lock without waiting: `callback` is told how it ended.
 *
 * With FAIRLOCK_OK `callback` comes exactly once, also when the call is cancelled or the client is
 * closed; it may come before this returns, but never inside another one: what has ended at once is told
 * when the callback that asked for it has returned. With every other status it never comes:
 * FAIRLOCK_INVALID_ARGUMENT for NULL or wrong `options`. Everything else that fairlock_acquire() can
 * return comes to the callback. `key`, `options` and what they point to may go when this returns.
 *
 * `pending`, if it is not NULL, gets a handle for fairlock_cancel(), which the caller frees with
 * fairlock_pending_free().
 *
 * A callback comes on the client's own thread, or on any thread that is inside a call of this library,
 * whatever that call is about and whether or not it waits; only those that look at a handle, such as
 * fairlock_lock_held(), never call back. Hold no mutex during such a call that a callback takes. It
 * holds up every other call of the process, so it should be short. Inside it, calls that wait return
 * FAIRLOCK_WOULD_DEADLOCK, but fairlock_release(), fairlock_client_close() and everything that does
 * not wait are allowed. It must not throw or longjmp. After fork() it comes in the parent only. One that
 * forks has to end the child, by exec or _exit(): where it returns, the library's own thread ends, and
 * with its last thread the child; a call on any other thread goes on as after any fork(). On the library's
 * own thread signals are blocked, and stay so in a program that is started there.
 */
enum fairlock_status fairlock_acquire_async(const struct fairlock_client *client,
                                            const void *key,
                                            size_t key_length,
                                            const struct fairlock_options *options,
                                            fairlock_acquired_callback callback,
                                            void *data,
                                            struct fairlock_pending **pending);

/**
 * As fairlock_acquire_async() for a lock that is free at this moment: if somebody else holds it,
 * `callback` gets FAIRLOCK_OK and NULL.
 */
enum fairlock_status fairlock_try_acquire_async(const struct fairlock_client *client,
                                                const void *key,
                                                size_t key_length,
                                                const struct fairlock_options *options,
                                                fairlock_acquired_callback callback,
                                                void *data,
                                                struct fairlock_pending **pending);

/**
 * Stops a call that has been started, if it has not ended: its callback gets FAIRLOCK_CANCELLED, and
 * nothing is left behind on the server, also where the lock was on its way. If it has ended, nothing
 * happens. Does not free the handle and does not wait. May be called several times.
 */
enum fairlock_status fairlock_cancel(const struct fairlock_pending *pending);

/**
 * Frees the handle of a call, without cancelling it. Does nothing with NULL.
 */
void fairlock_pending_free(struct fairlock_pending *pending);

/**
 * What went wrong in the last call on this thread that failed, for people: one sentence without a
 * line end; "" if none has failed. In a callback that is given a status, the message of that
 * status. The string lives until the next call on this thread that fails.
 */
const char *fairlock_last_error(void);

/**
 * The word that goes with the last failure on this thread, for programs: with FAIRLOCK_REFUSED the
 * code of the refusal ("auth", "denied", "busy", "version", "internal", or one of a later server),
 * with FAIRLOCK_LOCK_LOST how the lock was lost ("expired", "taken", "unconfirmed", "closed"), else
 * "". The string lives until the next call on this thread that fails.
 */
const char *fairlock_last_reason(void);

/**
 * Starts a node inside the process and waits until it serves, which takes milliseconds.
 *
 * `listen` is the address, as in "127.0.0.1:7420"; NULL stands for the setting "node" or else for
 * "127.0.0.1:0", a free port of this machine. With "peers" and "node" it is one node of a cluster, and
 * the call waits until it takes connections. `settings` ends with {NULL, NULL}; NULL stands for none. Without "data_dir" the node
 * is ephemeral, as suits tests. Strings are copied. The caller ends the node with
 * fairlock_server_stop().
 *
 * FAIRLOCK_INVALID_ARGUMENT: a setting cannot be used; the message names it.
 * FAIRLOCK_SERVER_FAILED: the address, the folder or the term file cannot be used.
 */
enum fairlock_status fairlock_server_start(const char *listen,
                                           const struct fairlock_setting *settings,
                                           struct fairlock_server **server);

/**
 * Where the node listens, as in "127.0.0.1:40123". The string belongs to the handle and lives as
 * long. NULL for NULL.
 */
const char *fairlock_server_address(const struct fairlock_server *server);

/**
 * Stops a node in order, waits until it has ended, and frees the handle, whatever it returns. Does
 * nothing with NULL and returns FAIRLOCK_OK.
 *
 * FAIRLOCK_SERVER_FAILED: the node had ended before; the message says why.
 * FAIRLOCK_FORKED: the node runs in the process that this one was forked from, and goes on there.
 */
enum fairlock_status fairlock_server_stop(struct fairlock_server *server);

/**
 * Ends a node at once, as if its process had been killed, and frees the handle, whatever it returns:
 * nobody is told and nothing is handed over to another node of its cluster. For tests. Does nothing with
 * NULL and returns FAIRLOCK_OK.
 *
 * FAIRLOCK_SERVER_FAILED: the node had ended before; the message says why.
 * FAIRLOCK_FORKED: the node runs in the process that this one was forked from, and goes on there.
 */
enum fairlock_status fairlock_server_kill(struct fairlock_server *server);

/**
 * Writes an address of this machine, as in "127.0.0.1:40123", that nobody else gets until a node of
 * this process listens there, so that the nodes of a cluster can be told of each other before the
 * first one starts. Another one each time. `address` has room for FAIRLOCK_FREE_ADDRESS_SIZE bytes,
 * the zero at the end included.
 *
 * FAIRLOCK_SERVER_FAILED: this machine has no address to give; the message says why.
 */
enum fairlock_status fairlock_server_free_address(char *address);

/**
 * The name of a status, as in "FAIRLOCK_WAIT_TIMEOUT"; "FAIRLOCK_UNKNOWN" for a number that is
 * none. The string lives as long as the library.
 */
const char *fairlock_status_string(int status);

/**
 * The word for a reason: "expired", "taken", "unconfirmed", "closed"; "unknown" for a number that
 * is none. The string lives as long as the library.
 */
const char *fairlock_lost_reason_string(int reason);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FAIRLOCK_H */
