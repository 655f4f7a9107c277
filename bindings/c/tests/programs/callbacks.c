/* Calls with a callback: it comes exactly once, whatever happens, and may do what its comment allows. */

#define _XOPEN_SOURCE 700
#include "check.h"

/* What a callback was told. */
struct answer {
    struct event event;
    fairlock_status status;
    fairlock_lock *lock;
    char message[256];
};

#define ANSWER_INIT { EVENT_INIT, FAIRLOCK_OK, NULL, "" }

static void answered(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct answer *answer = data;
    answer->status = status;
    answer->lock = lock;
    if (status != FAIRLOCK_OK)
        snprintf(answer->message, sizeof answer->message, "%s", fairlock_last_error());
    event_happens(&answer->event);
}

static void done(void *data, fairlock_status status)
{
    answered(data, status, NULL);
}

static fairlock_options waits_at_most(uint64_t wait_ms)
{
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    return options;
}

static void a_callback_gets_the_lock(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct answer answer = ANSWER_INIT, second = ANSWER_INIT, release = ANSWER_INIT,
                  keep = ANSWER_INIT;
    char key[] = "order:42";

    OK(fairlock_acquire_async(client, key, 8, NULL, answered, &answer, NULL));
    memset(key, 'x', 8); /* The call has its own copy. */
    event_wait(&answer.event, 1);
    CHECK(answer.status == FAIRLOCK_OK && answer.lock != NULL);
    CHECK_TEXT("order:42", fairlock_lock_key(answer.lock, NULL));

    OK(fairlock_try_acquire_async(client, KEY("order:42"), NULL, answered, &second, NULL));
    event_wait(&second.event, 1);
    CHECK(second.status == FAIRLOCK_OK && second.lock == NULL);

    OK(fairlock_lock_keep_async(answer.lock, 40000, done, &keep));
    event_wait(&keep.event, 1);
    CHECK(keep.status == FAIRLOCK_OK && fairlock_lock_remaining_ms(answer.lock) > 30000);

    OK(fairlock_release_async(answer.lock, done, &release));
    event_wait(&release.event, 1);
    CHECK(release.status == FAIRLOCK_OK);
    CHECK(is_free(client, KEY("order:42")));

    OK(fairlock_try_acquire_async(client, KEY("order:42"), NULL, answered, &second, NULL));
    event_wait(&second.event, 2);
    CHECK(second.status == FAIRLOCK_OK && second.lock != NULL);
    OK(fairlock_release_async(second.lock, NULL, NULL));
    await_free(client, KEY("order:42"));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void a_callback_gets_the_error(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct answer answer = ANSWER_INIT;
    fairlock_options options = waits_at_most(30);
    fairlock_lock *lock;

    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    OK(fairlock_acquire_async(client, KEY("k"), &options, answered, &answer, NULL));
    event_wait(&answer.event, 1);
    CHECK(answer.status == FAIRLOCK_WAIT_TIMEOUT && answer.lock == NULL);
    CHECK(strlen(answer.message) > 0);

    /* What is wrong with the request itself comes to the callback too. */
    OK(fairlock_acquire_async(client, "", 0, NULL, answered, &answer, NULL));
    event_wait(&answer.event, 2);
    CHECK(answer.status == FAIRLOCK_INVALID_ARGUMENT && answer.lock == NULL);

    OK(fairlock_lock_keep_async(lock, UINT64_MAX, done, &answer));
    event_wait(&answer.event, 3);
    CHECK(answer.status == FAIRLOCK_INVALID_ARGUMENT);

    OK(fairlock_release_token(client, KEY("k"), fairlock_lock_token(lock)));
    OK(fairlock_release_async(lock, done, &answer));
    event_wait(&answer.event, 4);
    CHECK(answer.status == FAIRLOCK_LOCK_LOST);

    fairlock_client_close(client);
    CHECK(event_times(&answer.event) == 4);
    OK(fairlock_server_stop(server));
}

static void cancelling_leaves_nothing(void)
{
    enum { CALLS = 300 };
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *other = open_client(server);
    static struct answer answers[CALLS];
    fairlock_pending *pending[CALLS];
    fairlock_lock *lock;

    OK(fairlock_acquire(other, KEY("k"), NULL, &lock));
    for (int i = 0; i < CALLS; i++) {
        struct answer fresh = ANSWER_INIT;
        answers[i] = fresh;
        OK(fairlock_acquire_async(client, KEY("k"), NULL, answered, &answers[i], &pending[i]));
    }
    await_waiting(other, KEY("k"), CALLS);
    for (int i = 0; i < CALLS; i++)
        OK(fairlock_cancel(pending[i]));
    for (int i = 0; i < CALLS; i++) {
        event_wait(&answers[i].event, 1);
        CHECK(answers[i].status == FAIRLOCK_CANCELLED && answers[i].lock == NULL);
        OK(fairlock_cancel(pending[i])); /* Once more does nothing. */
        fairlock_pending_free(pending[i]);
    }
    await_waiting(other, KEY("k"), 0);
    OK(fairlock_release(lock));
    await_free(other, KEY("k"));
    fairlock_client_close(client);
    for (int i = 0; i < CALLS; i++)
        CHECK(event_times(&answers[i].event) == 1);
    fairlock_client_close(other);
    OK(fairlock_server_stop(server));
}

/* Cancels in the very moment of the grant: the callback gets one or the other, and nothing stays. */
static void cancelling_meets_the_grant(void)
{
    enum { ROUNDS = 200 };
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *other = open_client(server);
    int granted = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct answer answer = ANSWER_INIT;
        fairlock_pending *pending;
        OK(fairlock_acquire_async(client, KEY("k"), NULL, answered, &answer, &pending));
        struct timespec moment = {0, (i % 40) * 5000L};
        nanosleep(&moment, NULL);
        OK(fairlock_cancel(pending));
        event_wait(&answer.event, 1);
        if (answer.status == FAIRLOCK_OK) {
            granted += 1;
            OK(fairlock_release(answer.lock));
        } else {
            CHECK(answer.status == FAIRLOCK_CANCELLED && answer.lock == NULL);
        }
        fairlock_pending_free(pending);
    }
    await_free(other, KEY("k"));
    CHECK(waiting(other, KEY("k")) == 0);
    printf("   %d of %d were granted before they were cancelled\n", granted, ROUNDS);
    fairlock_client_close(client);
    fairlock_client_close(other);
    OK(fairlock_server_stop(server));
}

static void closing_calls_back(void)
{
    enum { CALLS = 50 };
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *other = open_client(server);
    struct answer answers[CALLS];
    fairlock_pending *pending[CALLS];
    fairlock_lock *lock;

    OK(fairlock_acquire(other, KEY("k"), NULL, &lock));
    for (int i = 0; i < CALLS; i++) {
        struct answer fresh = ANSWER_INIT;
        answers[i] = fresh;
        OK(fairlock_acquire_async(client, KEY("k"), NULL, answered, &answers[i], &pending[i]));
    }
    fairlock_client_close(client);
    /* No wait here: they have come before it returned. */
    for (int i = 0; i < CALLS; i++) {
        CHECK(event_times(&answers[i].event) == 1);
        CHECK(answers[i].status == FAIRLOCK_CLOSED && answers[i].lock == NULL);
        OK(fairlock_cancel(pending[i])); /* Harmless after the end of its client. */
        fairlock_pending_free(pending[i]);
    }
    await_waiting(other, KEY("k"), 0);
    OK(fairlock_release(lock));
    fairlock_client_close(other);
    OK(fairlock_server_stop(server));
}

/* Closes in the very moment of grants: every callback comes once, and its lock is not left behind. */
static void closing_meets_grants(void)
{
    enum { ROUNDS = 20, CALLS = 20 };
    fairlock_server *server = start_server();
    fairlock_client *other = open_client(server);

    for (int round = 0; round < ROUNDS; round++) {
        fairlock_client *client = open_client(server);
        struct answer answers[CALLS];
        OK(fairlock_client_connected(client));
        for (int i = 0; i < CALLS; i++) {
            char key[2] = {(char)('a' + i), 0};
            struct answer fresh = ANSWER_INIT;
            answers[i] = fresh;
            OK(fairlock_acquire_async(client, key, 1, NULL, answered, &answers[i], NULL));
        }
        struct timespec moment = {0, round * 20000L};
        nanosleep(&moment, NULL);
        fairlock_client_close(client);
        for (int i = 0; i < CALLS; i++) {
            CHECK(event_times(&answers[i].event) == 1);
            if (answers[i].status == FAIRLOCK_OK)
                CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(answers[i].lock));
            else
                CHECK(answers[i].status == FAIRLOCK_CLOSED);
            char key[2] = {(char)('a' + i), 0};
            await_free(other, key, 1);
        }
    }
    fairlock_client_close(other);
    OK(fairlock_server_stop(server));
}

/* What a callback does with what it was given. */
struct inner {
    struct answer answer;
    fairlock_client *client, *closes;
    fairlock_status waiting_calls[5], released;
};

#define INNER_INIT { ANSWER_INIT, NULL, NULL, \
    { FAIRLOCK_OK, FAIRLOCK_OK, FAIRLOCK_OK, FAIRLOCK_OK, FAIRLOCK_OK }, FAIRLOCK_INTERNAL }

static void calls_from_inside(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct inner *inner = data;
    fairlock_lock *none;
    fairlock_view *view;
    if (status == FAIRLOCK_OK) {
        inner->waiting_calls[0] = fairlock_acquire(inner->client, KEY("other"), NULL, &none);
        inner->waiting_calls[1] = fairlock_try_acquire(inner->client, KEY("other"), NULL, &none);
        inner->waiting_calls[2] = fairlock_lock_keep(lock, 0);
        inner->waiting_calls[3] = fairlock_inspect(inner->client, KEY("other"), &view);
        inner->waiting_calls[4] = fairlock_client_connected(inner->client);
        CHECK(fairlock_lock_held(lock));
        CHECK_TEXT("k", fairlock_lock_key(lock, NULL));
        inner->released = fairlock_release(lock);
    }
    if (inner->closes != NULL)
        fairlock_client_close(inner->closes);
    answered(&inner->answer, status, NULL);
}

static void what_a_callback_may_do(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct inner inner = INNER_INIT;

    inner.client = client;
    OK(fairlock_acquire_async(client, KEY("k"), NULL, calls_from_inside, &inner, NULL));
    event_wait(&inner.answer.event, 1);
    for (int i = 0; i < 5; i++)
        CHECK(inner.waiting_calls[i] == FAIRLOCK_WOULD_DEADLOCK);
    CHECK(inner.released == FAIRLOCK_OK);
    await_free(client, KEY("k"));
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void a_callback_may_close_its_client(void)
{
    fairlock_server *server = start_server();
    fairlock_client *other = open_client(server);
    struct inner inner = INNER_INIT;
    struct answer pending = ANSWER_INIT;
    fairlock_lock *lock;

    OK(fairlock_acquire(other, KEY("held"), NULL, &lock));
    inner.client = inner.closes = open_client(server);
    OK(fairlock_acquire_async(inner.client, KEY("held"), NULL, answered, &pending, NULL));
    OK(fairlock_acquire_async(inner.client, KEY("k"), NULL, calls_from_inside, &inner, NULL));
    event_wait(&inner.answer.event, 1);
    CHECK(inner.answer.status == FAIRLOCK_OK);
    event_wait(&pending.event, 1);
    CHECK(pending.status == FAIRLOCK_CLOSED);
    await_free(other, KEY("k"));
    await_waiting(other, KEY("held"), 0);
    OK(fairlock_release(lock));
    fairlock_client_close(other);
    OK(fairlock_server_stop(server));
}

/* A chain: each callback releases its lock and asks for the next one. */
struct chain {
    struct event finished;
    fairlock_client *client;
    int left;
};

static void next_link(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct chain *chain = data;
    CHECK_STATUS(FAIRLOCK_OK, status);
    OK(fairlock_release(lock));
    if (--chain->left == 0)
        event_happens(&chain->finished);
    else
        OK(fairlock_acquire_async(chain->client, KEY("k"), NULL, next_link, chain, NULL));
}

static void callbacks_may_ask_again(void)
{
    fairlock_server *server = start_server();
    struct chain chain = {EVENT_INIT, open_client(server), 200};

    OK(fairlock_acquire_async(chain.client, KEY("k"), NULL, next_link, &chain, NULL));
    event_wait(&chain.finished, 1);
    fairlock_client_close(chain.client);
    OK(fairlock_server_stop(server));
}

/* Asks again whenever it is told that it was in vain. */
struct stubborn {
    struct event finished;
    fairlock_client *client;
    size_t key_length;
    int left, inside;
    fairlock_status expected;
};

/* Of its first byte a key, of all of it none. */
static const char stubborn_key[513] = "k";

static void ask_again(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct stubborn *stubborn = data;
    CHECK_STATUS((int)stubborn->expected, status);
    CHECK(lock == NULL);
    CHECK(stubborn->inside++ == 0);
    if (--stubborn->left == 0)
        event_happens(&stubborn->finished);
    else
        OK(fairlock_acquire_async(stubborn->client, stubborn_key, stubborn->key_length, NULL, ask_again,
                                  stubborn, NULL));
    stubborn->inside--;
}

/* With many tries there would be no stack left, if each of them came inside the one before. */
static void callbacks_never_come_inside_each_other(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct stubborn refused = {EVENT_INIT, client, 513, 100000, 0, FAIRLOCK_INVALID_ARGUMENT};
    struct stubborn closed = {EVENT_INIT, client, 1, 100000, 0, FAIRLOCK_CLOSED};
    fairlock_lock *lock;

    OK(fairlock_acquire_async(client, stubborn_key, refused.key_length, NULL, ask_again, &refused, NULL));
    event_wait(&refused.finished, 1);

    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    OK(fairlock_acquire_async(client, KEY("k"), NULL, ask_again, &closed, NULL));
    fairlock_client_close(client);
    event_wait(&closed.finished, 1);
    fairlock_release(lock);
    OK(fairlock_server_stop(server));
}

struct lost {
    struct event event;
    fairlock_lock *lock;
    fairlock_status released, kept;
};

static void release_what_is_lost(void *data, fairlock_lost_reason reason)
{
    struct lost *lost = data;
    CHECK(reason == FAIRLOCK_LOST_EXPIRED);
    lost->kept = fairlock_lock_keep(lost->lock, 0);
    lost->released = fairlock_release(lost->lock);
    event_happens(&lost->event);
}

static void a_lost_callback_may_release(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct lost lost = {EVENT_INIT, NULL, FAIRLOCK_OK, FAIRLOCK_OK};
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;

    options.lease_ms = 300;
    OK(fairlock_acquire(client, KEY("k"), &options, &lost.lock));
    OK(fairlock_lock_on_lost(lost.lock, release_what_is_lost, &lost));
    event_wait(&lost.event, 1);
    CHECK(lost.kept == FAIRLOCK_WOULD_DEADLOCK);
    CHECK(lost.released == FAIRLOCK_LOCK_LOST);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

struct slow {
    struct event begun, ended;
};

static void slow_loss(void *data, fairlock_lost_reason reason)
{
    struct slow *slow = data;
    (void)reason;
    event_happens(&slow->begun);
    pause_ms(200);
    event_happens(&slow->ended);
}

/* After a release has returned the callback is not running, so its data can go. */
static void a_release_waits_for_the_lost_callback(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct slow slow = {EVENT_INIT, EVENT_INIT};
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock;

    options.lease_ms = 300;
    options.on_lost = slow_loss;
    options.on_lost_data = &slow;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    event_wait(&slow.begun, 1);
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    CHECK(event_times(&slow.ended) == 1);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void slow_answer(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct slow *slow = data;
    (void)status;
    event_happens(&slow->begun);
    pause_ms(200);
    fairlock_release(lock);
    event_happens(&slow->ended);
}

static void closing_waits_for_a_running_callback(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct slow slow = {EVENT_INIT, EVENT_INIT};

    OK(fairlock_acquire_async(client, KEY("k"), NULL, slow_answer, &slow, NULL));
    event_wait(&slow.begun, 1);
    fairlock_client_close(client);
    CHECK(event_times(&slow.ended) == 1);
    OK(fairlock_server_stop(server));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"a_callback_gets_the_lock", a_callback_gets_the_lock},
        {"a_callback_gets_the_error", a_callback_gets_the_error},
        {"cancelling_leaves_nothing", cancelling_leaves_nothing},
        {"cancelling_meets_the_grant", cancelling_meets_the_grant},
        {"closing_calls_back", closing_calls_back},
        {"closing_meets_grants", closing_meets_grants},
        {"what_a_callback_may_do", what_a_callback_may_do},
        {"a_callback_may_close_its_client", a_callback_may_close_its_client},
        {"callbacks_may_ask_again", callbacks_may_ask_again},
        {"callbacks_never_come_inside_each_other", callbacks_never_come_inside_each_other},
        {"a_lost_callback_may_release", a_lost_callback_may_release},
        {"a_release_waits_for_the_lost_callback", a_release_waits_for_the_lost_callback},
        {"closing_waits_for_a_running_callback", closing_waits_for_a_running_callback},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
