/* Locks by blocking calls: what a handle says, keeping, losing, releasing, looking. */

#define _XOPEN_SOURCE 700
#include "check.h"

static void a_first_lock(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    fairlock_lock *lock;
    size_t length = 99;

    OK(fairlock_client_connected(client));
    OK(fairlock_acquire(client, KEY("order:42"), NULL, &lock));
    CHECK_TEXT("order:42", fairlock_lock_key(lock, &length));
    CHECK(length == 8);
    CHECK_TEXT("order:42", fairlock_lock_key(lock, NULL));
    CHECK(fairlock_lock_token(lock) > 0 && fairlock_lock_token(lock) < (uint64_t)1 << 63);
    CHECK(fairlock_lock_lease_ms(lock) == FAIRLOCK_DEFAULT_LEASE_MS);
    CHECK(fairlock_lock_remaining_ms(lock) > 20000);
    CHECK(fairlock_lock_remaining_ms(lock) <= FAIRLOCK_DEFAULT_LEASE_MS);
    CHECK(fairlock_lock_held(lock) == 1);
    OK(fairlock_release(lock));
    CHECK(is_free(client, KEY("order:42")));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void tokens_rise(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    uint64_t last = 0;
    for (int i = 0; i < 100; i++) {
        fairlock_lock *lock;
        OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
        CHECK(fairlock_lock_token(lock) > last);
        last = fairlock_lock_token(lock);
        OK(fairlock_release(lock));
    }
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void keys_are_any_bytes(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    static const char nul[] = "a\0b", line[] = "a\nb %", latin[] = "\xff\xfe";
    char longest[512];
    memset(longest, 'x', sizeof longest);
    const struct {
        const char *key;
        size_t length;
    } keys[] = {
        {nul, 3}, {nul, 1}, {line, 5}, {latin, 2}, {longest, 512}, {longest, 511}, {"\0", 1},
    };
    enum { KEYS = sizeof keys / sizeof *keys };
    fairlock_lock *locks[KEYS];

    /* All at once: each is a key of its own. */
    for (int i = 0; i < KEYS; i++) {
        size_t length;
        OK(fairlock_try_acquire(client, keys[i].key, keys[i].length, NULL, &locks[i]));
        CHECK(locks[i] != NULL);
        const char *key = fairlock_lock_key(locks[i], &length);
        CHECK(length == keys[i].length && memcmp(key, keys[i].key, length) == 0);
        CHECK(key[length] == '\0');
    }
    for (int i = 0; i < KEYS; i++)
        OK(fairlock_release(locks[i]));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void a_try_does_not_wait(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    fairlock_lock *lock, *second = (fairlock_lock *)client;

    OK(fairlock_try_acquire(client, KEY("k"), NULL, &lock));
    CHECK(lock != NULL);
    OK(fairlock_try_acquire(client, KEY("k"), NULL, &second));
    CHECK(second == NULL);
    OK(fairlock_release(second));
    OK(fairlock_release(lock));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void keeping_by_hand(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock;

    options.lease_ms = 20000;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    OK(fairlock_lock_keep(lock, 0));
    CHECK(fairlock_lock_remaining_ms(lock) <= 20000);
    OK(fairlock_lock_keep(lock, 50000));
    CHECK(fairlock_lock_remaining_ms(lock) > 30000);
    /* The lease by which it ends: a shorter one does not put the end off. */
    CHECK(fairlock_lock_lease_ms(lock) == 50000);
    OK(fairlock_lock_keep(lock, 1000));
    CHECK(fairlock_lock_lease_ms(lock) == 50000);
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_lock_keep(lock, UINT64_MAX));

    /* By its token, as somebody else would. */
    OK(fairlock_keep_token(client, KEY("k"), fairlock_lock_token(lock), 60000));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST,
                 fairlock_keep_token(client, KEY("k"), fairlock_lock_token(lock) - 1, 1000));
    OK(fairlock_release(lock));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void keep_alive_outlives_the_lease(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *other = open_client(server);
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock, *none;

    options.lease_ms = 1000;
    options.keep_alive = 1;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    pause_ms(1600);
    CHECK(fairlock_lock_held(lock));
    OK(fairlock_try_acquire(other, KEY("k"), NULL, &none));
    CHECK(none == NULL);
    OK(fairlock_release(lock));

    fairlock_client_close(other);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void max_hold_ends_keep_alive(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *other = open_client(server);
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock, *next;

    options.lease_ms = 1000;
    options.keep_alive = 1;
    options.max_hold_ms = 100;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    OK(fairlock_acquire(other, KEY("k"), NULL, &next));
    CHECK(!fairlock_lock_held(lock));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    CHECK_TEXT("expired", fairlock_last_reason());
    OK(fairlock_release(next));

    fairlock_client_close(other);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

struct loss {
    struct event event;
    int reason;
};

static void note_loss(void *data, fairlock_lost_reason reason)
{
    struct loss *loss = data;
    loss->reason = (int)reason;
    event_happens(&loss->event);
}

static void a_loss_is_told_once(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct loss from_options = {EVENT_INIT, 0}, expired = {EVENT_INIT, 0}, late = {EVENT_INIT, 0};
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock;

    /* The lease ends. */
    options.lease_ms = 300;
    options.on_lost = note_loss;
    options.on_lost_data = &expired;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    event_wait(&expired.event, 1);
    CHECK(expired.reason == FAIRLOCK_LOST_EXPIRED);
    CHECK(!fairlock_lock_held(lock));
    CHECK(fairlock_lock_remaining_ms(lock) == 0);

    /* Who asks afterwards is told at once, and each only once. */
    OK(fairlock_lock_on_lost(lock, note_loss, &late));
    CHECK(event_times(&late.event) == 1 && late.reason == FAIRLOCK_LOST_EXPIRED);
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_lock_keep(lock, 0));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    CHECK_TEXT("expired", fairlock_last_reason());
    CHECK(event_times(&expired.event) == 1 && event_times(&late.event) == 1);

    /* An operator takes it; a renewal finds out. */
    options.lease_ms = 1000;
    options.keep_alive = 1;
    options.on_lost_data = &from_options;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    OK(fairlock_release_token(client, KEY("k"), fairlock_lock_token(lock)));
    event_wait(&from_options.event, 1);
    CHECK(from_options.reason == FAIRLOCK_LOST_TAKEN);
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    CHECK_TEXT("taken", fairlock_last_reason());

    fairlock_client_close(client);
    CHECK(event_times(&from_options.event) == 1);
    OK(fairlock_server_stop(server));
}

static void only_the_last_listener_is_told(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct loss first = {EVENT_INIT, 0}, second = {EVENT_INIT, 0}, never = {EVENT_INIT, 0};
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock, *released, *deaf;

    options.lease_ms = 400;
    options.on_lost = note_loss;
    options.on_lost_data = &first;
    OK(fairlock_acquire(client, KEY("a"), &options, &lock));
    OK(fairlock_lock_on_lost(lock, note_loss, &second));

    options.on_lost_data = &never;
    OK(fairlock_acquire(client, KEY("b"), &options, &released));
    OK(fairlock_release(released));
    OK(fairlock_acquire(client, KEY("c"), &options, &deaf));
    OK(fairlock_lock_on_lost(deaf, NULL, NULL));

    event_wait(&second.event, 1);
    while (fairlock_lock_held(deaf))
        pause_ms(1);
    CHECK(event_times(&first.event) == 0);
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(deaf));
    fairlock_client_close(client);
    CHECK(event_times(&first.event) == 0 && event_times(&second.event) == 1);
    CHECK(event_times(&never.event) == 0);
    OK(fairlock_server_stop(server));
}

static void closing_tells_locks(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *other = open_client(server);
    struct loss loss = {EVENT_INIT, 0};
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock;

    options.on_lost = note_loss;
    options.on_lost_data = &loss;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    fairlock_client_close(client);
    event_wait(&loss.event, 1);
    CHECK(loss.reason == FAIRLOCK_LOST_CLOSED);
    CHECK(!fairlock_lock_held(lock));
    await_free(other, KEY("k"));
    /* The handle outlives its client. */
    CHECK_TEXT("k", fairlock_lock_key(lock, NULL));
    CHECK(fairlock_lock_token(lock) != 0);
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    CHECK_TEXT("closed", fairlock_last_reason());
    CHECK(event_times(&loss.event) == 1);

    fairlock_client_close(other);
    OK(fairlock_server_stop(server));
}

static void a_lock_can_be_left_held(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    fairlock_lock *lock, *none;

    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    uint64_t token = fairlock_lock_token(lock);
    CHECK(fairlock_lock_leave_held(lock) == token);
    OK(fairlock_try_acquire(client, KEY("k"), NULL, &none));
    CHECK(none == NULL);
    OK(fairlock_release_token(client, KEY("k"), token));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release_token(client, KEY("k"), token));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void *wait_for_lock(void *data)
{
    fairlock_lock *lock;
    OK(fairlock_acquire(data, KEY("page:0"), NULL, &lock));
    OK(fairlock_release(lock));
    return NULL;
}

static void what_operators_see(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client;
    fairlock_client_options named = FAIRLOCK_CLIENT_OPTIONS_INIT;
    named.name = "operator";
    named.connect_timeout_ms = LIMIT_SECONDS * 1000;
    OK(fairlock_client_open(fairlock_server_address(server), &named, &client));

    enum { LOCKS = 5, PAGE = 2 };
    fairlock_lock *locks[LOCKS];
    fairlock_view *view;
    for (int i = 0; i < LOCKS; i++) {
        char key[] = "page:0";
        key[5] = (char)('0' + i);
        OK(fairlock_acquire(client, key, 6, NULL, &locks[i]));
    }
    pthread_t waiter;
    pthread_create(&waiter, NULL, wait_for_lock, client);
    await_waiting(client, KEY("page:0"), 1);

    OK(fairlock_inspect(client, KEY("page:0"), &view));
    const fairlock_held_lock *held = fairlock_view_lock(view, 0);
    CHECK(held != NULL && fairlock_view_lock(view, 1) == NULL);
    CHECK_TEXT("page:0", held->key);
    CHECK(held->key_length == 6 && held->token == fairlock_lock_token(locks[0]));
    CHECK(held->remaining_ms > 20000 && held->waiters == 1);
    CHECK_TEXT("operator", held->name);
    CHECK(strncmp(held->address, "127.0.0.1:", 10) == 0);
    CHECK(fairlock_view_waiter(view, 0) == NULL && fairlock_view_node(view) == NULL);
    fairlock_view_free(view);

    OK(fairlock_waiters(client, KEY("page:0"), 10, &view));
    const fairlock_waiter *first = fairlock_view_waiter(view, 0);
    CHECK(first != NULL && fairlock_view_waiter(view, 1) == NULL);
    CHECK(first->position == 1 && first->waited_ms < LIMIT_SECONDS * 1000);
    CHECK_TEXT("operator", first->name);
    CHECK(fairlock_view_waiting(view) == 1);
    fairlock_view_free(view);

    int seen = 0, pages = 0;
    char after[512];
    size_t after_length = 0;
    do {
        OK(fairlock_locks(client, KEY("page:"), pages == 0 ? NULL : after, after_length, PAGE,
                          &view));
        for (size_t i = 0; fairlock_view_lock(view, i) != NULL; i++) {
            CHECK(i < PAGE);
            seen += 1;
        }
        pages += 1;
        CHECK(pages <= LOCKS);
        const void *next = fairlock_view_next(view, &after_length);
        if (next != NULL)
            memcpy(after, next, after_length);
        else
            after_length = 0;
        fairlock_view_free(view);
    } while (after_length > 0);
    CHECK(seen == LOCKS && pages >= 3);

    OK(fairlock_server_status(client, &view));
    const fairlock_node_status *node = fairlock_view_node(view);
    CHECK(node != NULL && node->held == LOCKS && node->waiting == 1 && node->connections >= 1);
    CHECK_TEXT("active", node->role);
    CHECK_TEXT(fairlock_server_address(server), node->node);
    CHECK_TEXT("", node->standbys);
    CHECK_TEXT(node->node, node->peers);
    fairlock_view_free(view);

    for (int i = 0; i < LOCKS; i++)
        OK(fairlock_release(locks[i]));
    pthread_join(waiter, NULL);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void a_fence_refuses_older_tokens(void)
{
    fairlock_fence *fence = fairlock_fence_new();
    CHECK(fence != NULL);
    CHECK(fairlock_fence_highest(fence, KEY("k")) == 0);
    OK(fairlock_fence_check(fence, KEY("k"), 5));
    OK(fairlock_fence_check(fence, KEY("k"), 5));
    OK(fairlock_fence_check(fence, KEY("other"), 3));
    CHECK_STATUS(FAIRLOCK_STALE_TOKEN, fairlock_fence_check(fence, KEY("k"), 4));
    CHECK(fairlock_fence_highest(fence, KEY("k")) == 5);
    OK(fairlock_fence_forget(fence, KEY("k")));
    OK(fairlock_fence_check(fence, KEY("k"), 4));
    fairlock_fence_free(fence);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"a_first_lock", a_first_lock},
        {"tokens_rise", tokens_rise},
        {"keys_are_any_bytes", keys_are_any_bytes},
        {"a_try_does_not_wait", a_try_does_not_wait},
        {"keeping_by_hand", keeping_by_hand},
        {"keep_alive_outlives_the_lease", keep_alive_outlives_the_lease},
        {"max_hold_ends_keep_alive", max_hold_ends_keep_alive},
        {"a_loss_is_told_once", a_loss_is_told_once},
        {"only_the_last_listener_is_told", only_the_last_listener_is_told},
        {"closing_tells_locks", closing_tells_locks},
        {"a_lock_can_be_left_held", a_lock_can_be_left_held},
        {"what_operators_see", what_operators_see},
        {"a_fence_refuses_older_tokens", a_fence_refuses_older_tokens},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
