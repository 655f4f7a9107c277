/* Many threads share one client; locks move between threads. */

#define _XOPEN_SOURCE 700
#include "check.h"

enum { THREADS = 8, ROUNDS = 50 };

struct shared {
    fairlock_client *client;
    long counter; /* Guarded by the lock alone. */
};

static void *count(void *data)
{
    struct shared *shared = data;
    for (int i = 0; i < ROUNDS; i++) {
        fairlock_lock *lock;
        OK(fairlock_acquire(shared->client, KEY("counter"), NULL, &lock));
        long seen = shared->counter;
        if (i % 8 == 0)
            pause_ms(1);
        shared->counter = seen + 1;
        OK(fairlock_release(lock));
    }
    return NULL;
}

static void one_holder_at_a_time(void)
{
    fairlock_server *server = start_server();
    struct shared shared = {open_client(server), 0};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, count, &shared);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(shared.counter == THREADS * ROUNDS);
    CHECK(is_free(shared.client, KEY("counter")));

    fairlock_client_close(shared.client);
    OK(fairlock_server_stop(server));
}

static void *release_it(void *lock)
{
    OK(fairlock_release(lock));
    return NULL;
}

static void another_thread_releases(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    fairlock_lock *lock;
    pthread_t thread;

    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    pthread_create(&thread, NULL, release_it, lock);
    /* This one waits while the other one, on the same client, lets go. */
    fairlock_lock *next;
    OK(fairlock_acquire(client, KEY("k"), NULL, &next));
    pthread_join(thread, NULL);
    OK(fairlock_release(next));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void *read_lock(void *lock)
{
    for (int i = 0; i < 200; i++) {
        CHECK_TEXT("shared", fairlock_lock_key(lock, NULL));
        CHECK(fairlock_lock_token(lock) != 0);
        CHECK(fairlock_lock_held(lock));
        CHECK(fairlock_lock_remaining_ms(lock) > 0);
        if (i % 50 == 0)
            OK(fairlock_lock_keep(lock, 0));
    }
    return NULL;
}

static void threads_share_a_lock(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    fairlock_lock *lock;
    pthread_t threads[4];

    OK(fairlock_acquire(client, KEY("shared"), NULL, &lock));
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, read_lock, lock);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    OK(fairlock_release(lock));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void *open_and_close(void *server)
{
    for (int i = 0; i < 10; i++) {
        fairlock_client *client = open_client(server);
        fairlock_lock *lock;
        OK(fairlock_acquire(client, KEY("short"), NULL, &lock));
        if (i % 2 == 0)
            OK(fairlock_release(lock));
        fairlock_client_close(client);
        if (i % 2 != 0)
            CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    }
    return NULL;
}

static void clients_come_and_go(void)
{
    fairlock_server *server = start_server();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, open_and_close, server);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    OK(fairlock_server_stop(server));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"one_holder_at_a_time", one_holder_at_a_time},
        {"another_thread_releases", another_thread_releases},
        {"threads_share_a_lock", threads_share_a_lock},
        {"clients_come_and_go", clients_come_and_go},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
