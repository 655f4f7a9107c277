/* fork(): the child's calls work anew, its parent's locks stay its parent's, and nothing hangs. */

#define _XOPEN_SOURCE 700
#include "check.h"

#include <sys/wait.h>

/* Runs `body` in a child, which has to end well and soon. */
static void in_child(void (*body)(void *), void *data)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(LIMIT_SECONDS);
        body(data);
        _exit(0);
    }
    int result;
    CHECK(waitpid(child, &result, 0) == child);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) {
        fprintf(stderr, "the child ended with %#x\n", (unsigned)result);
        abort();
    }
}

struct family {
    fairlock_server *server;
    char address[64];
    fairlock_client *client;
    fairlock_lock *lock;
    fairlock_pending *pending;
    struct event told;
};

static void count_answer(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct family *family = data;
    (void)status;
    fairlock_release(lock);
    event_happens(&family->told);
}

static void start(struct family *family)
{
    struct event fresh = EVENT_INIT;
    family->server = start_server();
    snprintf(family->address, sizeof family->address, "%s",
             fairlock_server_address(family->server));
    family->client = open_client(family->server);
    family->told = fresh;
    OK(fairlock_acquire(family->client, KEY("parent"), NULL, &family->lock));
    OK(fairlock_acquire_async(family->client, KEY("parent"), NULL, count_answer, family,
                              &family->pending));
    await_waiting(family->client, KEY("parent"), 1);
}

/* The parent's lock and its waiting call were not touched. */
static void end(struct family *family)
{
    CHECK(fairlock_lock_held(family->lock));
    CHECK(waiting(family->client, KEY("parent")) == 1);
    CHECK(event_times(&family->told) == 0);
    OK(fairlock_release(family->lock));
    event_wait(&family->told, 1);
    fairlock_pending_free(family->pending);
    fairlock_client_close(family->client);
    CHECK(event_times(&family->told) == 1);
    OK(fairlock_server_stop(family->server));
}

static void new_client(void *data)
{
    struct family *family = data;
    fairlock_client *client = open_client_at(family->address);
    fairlock_lock *lock, *none;
    OK(fairlock_acquire(client, KEY("child"), NULL, &lock));
    OK(fairlock_try_acquire(client, KEY("parent"), NULL, &none));
    CHECK(none == NULL);
    OK(fairlock_release(lock));
    fairlock_client_close(client);
}

static void a_new_client_in_the_child(void)
{
    struct family family;
    start(&family);
    in_child(new_client, &family);
    end(&family);
}

static void old_client(void *data)
{
    struct family *family = data;
    fairlock_lock *lock, *none;
    OK(fairlock_acquire(family->client, KEY("child"), NULL, &lock));
    OK(fairlock_try_acquire(family->client, KEY("parent"), NULL, &none));
    CHECK(none == NULL);
    OK(fairlock_release(lock));
    OK(fairlock_acquire_async(family->client, KEY("child"), NULL, count_answer, family, NULL));
    event_wait(&family->told, 1);
    fairlock_client_close(family->client);
    CHECK(event_times(&family->told) == 1);
}

static void the_old_client_in_the_child(void)
{
    struct family family;
    start(&family);
    in_child(old_client, &family);
    end(&family);
}

static void old_handles(void *data)
{
    struct family *family = data;
    CHECK_TEXT("parent", fairlock_lock_key(family->lock, NULL));
    CHECK(fairlock_lock_token(family->lock) != 0);
    CHECK(!fairlock_lock_held(family->lock));
    CHECK(fairlock_lock_remaining_ms(family->lock) == 0);
    CHECK_STATUS(FAIRLOCK_FORKED, fairlock_lock_keep(family->lock, 0));
    OK(fairlock_cancel(family->pending));
    fairlock_pending_free(family->pending);
    CHECK_STATUS(FAIRLOCK_FORKED, fairlock_release(family->lock));
    fairlock_client_close(family->client);
    CHECK(event_times(&family->told) == 0);
    CHECK_STATUS(FAIRLOCK_FORKED, fairlock_server_stop(family->server));
}

static void old_handles_in_the_child(void)
{
    struct family family;
    start(&family);
    in_child(old_handles, &family);
    end(&family);
}

static void nothing(void *data)
{
    (void)data;
}

static void exit_in_child(void *data)
{
    (void)data;
    exit(0); /* With all that runs at exit. */
}

static void a_child_that_only_ends(void)
{
    struct family family;
    start(&family);
    for (int i = 0; i < 10; i++) {
        in_child(nothing, NULL);
        in_child(exit_in_child, NULL);
    }
    end(&family);
}

static void *keep_busy(void *data)
{
    struct family *family = data;
    while (event_times(&family->told) == 0) {
        fairlock_lock *lock;
        OK(fairlock_acquire(family->client, KEY("busy"), NULL, &lock));
        OK(fairlock_release(lock));
    }
    return NULL;
}

/* Forks while other threads are in the middle of calls. */
static void forks_under_load(void)
{
    struct family family;
    struct event fresh = EVENT_INIT;
    pthread_t threads[2];
    family.server = start_server();
    snprintf(family.address, sizeof family.address, "%s", fairlock_server_address(family.server));
    family.client = open_client(family.server);
    family.told = fresh;
    OK(fairlock_acquire(family.client, KEY("parent"), NULL, &family.lock));
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, keep_busy, &family);
    for (int i = 0; i < 20; i++)
        in_child(new_client, &family);
    event_happens(&family.told);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(fairlock_lock_held(family.lock));
    OK(fairlock_release(family.lock));
    fairlock_client_close(family.client);
    OK(fairlock_server_stop(family.server));
}

struct forking {
    struct event forked, answered;
    pid_t child;
};

static void fork_and_return(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct forking *forking = data;
    CHECK_STATUS(FAIRLOCK_OK, status);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(LIMIT_SECONDS);
        CHECK_STATUS(FAIRLOCK_FORKED, fairlock_release(lock));
        return;
    }
    OK(fairlock_release(lock));
    forking->child = child;
    event_happens(&forking->forked);
}

static void release_answer(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct forking *forking = data;
    CHECK_STATUS(FAIRLOCK_OK, status);
    OK(fairlock_release(lock));
    event_happens(&forking->answered);
}

/* A child that goes on where its parent's thread was would read what is sent to its parent. */
static void a_callback_that_returns_in_a_child_takes_nothing_of_its_parents(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    struct forking forking = {EVENT_INIT, EVENT_INIT, 0};
    int result;
    OK(fairlock_acquire_async(client, KEY("k"), NULL, fork_and_return, &forking, NULL));
    event_wait(&forking.forked, 1);
    for (int i = 1; i <= 100; i++) {
        OK(fairlock_acquire_async(client, KEY("k"), NULL, release_answer, &forking, NULL));
        event_wait(&forking.answered, i);
    }
    CHECK(waitpid(forking.child, &result, 0) == forking.child);
    CHECK(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"a_new_client_in_the_child", a_new_client_in_the_child},
        {"the_old_client_in_the_child", the_old_client_in_the_child},
        {"old_handles_in_the_child", old_handles_in_the_child},
        {"a_child_that_only_ends", a_child_that_only_ends},
        {"forks_under_load", forks_under_load},
        {"a_callback_that_returns_in_a_child_takes_nothing_of_its_parents",
         a_callback_that_returns_in_a_child_takes_nothing_of_its_parents},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
