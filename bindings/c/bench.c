/*
 * Pairs of acquire and release a second through the C interface: one at a time with blocking calls,
 * and 256 at a time with callbacks. `bench.sh` runs it in turns with the same in Rust.
 *
 *   FAIRLOCK_SERVERS=127.0.0.1:7420 bench [--seconds 1]
 */

#define _POSIX_C_SOURCE 200809L

#include <fairlock.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { UNDER_WAY = 256 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void must(fairlock_status status, const char *what)
{
    if (status != FAIRLOCK_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, fairlock_status_string(status), fairlock_last_error());
        exit(1);
    }
}

static double one_at_a_time(fairlock_client *client, double seconds)
{
    double begun = now(), end = begun + seconds, time;
    uint64_t pairs = 0;
    do {
        fairlock_lock *lock;
        must(fairlock_acquire(client, "bench:one", 9, NULL, &lock), "acquire");
        must(fairlock_release(lock), "release");
        pairs += 1;
        time = now();
    } while (time < end);
    return (double)pairs / (time - begun);
}

/* One of the pairs under way. All callbacks come on the client's own thread. */
struct slot {
    struct crowd *crowd;
    char key[16];
};

struct crowd {
    fairlock_client *client;
    struct slot slots[UNDER_WAY];
    double end;
    uint64_t pairs;
    int left; /* Slots that go on. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

static void released(void *data, fairlock_status status);

static void acquired(void *data, fairlock_status status, fairlock_lock *lock)
{
    must(status, "acquire");
    must(fairlock_release_async(lock, released, data), "release");
}

static void ask(struct slot *slot)
{
    must(fairlock_acquire_async(slot->crowd->client, slot->key, strlen(slot->key), NULL, acquired,
                                slot, NULL),
         "acquire");
}

static void released(void *data, fairlock_status status)
{
    struct slot *slot = data;
    struct crowd *crowd = slot->crowd;
    must(status, "release");
    crowd->pairs += 1;
    /* A look at the clock costs as much as a tenth of a pair, so only some take it. */
    if (crowd->pairs % 64 == 0 && now() >= crowd->end)
        crowd->end = 0;
    if (crowd->end > 0) {
        ask(slot);
        return;
    }
    pthread_mutex_lock(&crowd->mutex);
    crowd->left -= 1;
    pthread_cond_signal(&crowd->changed);
    pthread_mutex_unlock(&crowd->mutex);
}

static double callbacks(fairlock_client *client, double seconds)
{
    static struct crowd crowd;
    double begun = now();
    crowd.client = client;
    crowd.end = begun + seconds;
    crowd.left = UNDER_WAY;
    pthread_mutex_init(&crowd.mutex, NULL);
    pthread_cond_init(&crowd.changed, NULL);
    for (int i = 0; i < UNDER_WAY; i++) {
        crowd.slots[i].crowd = &crowd;
        snprintf(crowd.slots[i].key, sizeof crowd.slots[i].key, "bench:%d", i);
        ask(&crowd.slots[i]);
    }
    pthread_mutex_lock(&crowd.mutex);
    while (crowd.left > 0)
        pthread_cond_wait(&crowd.changed, &crowd.mutex);
    pthread_mutex_unlock(&crowd.mutex);
    return (double)crowd.pairs / (now() - begun);
}

int main(int argc, char **argv)
{
    double seconds = argc == 3 && strcmp(argv[1], "--seconds") == 0 ? atof(argv[2]) : 1;
    fairlock_client *client;
    must(fairlock_client_open(NULL, NULL, &client), "open");
    must(fairlock_client_connected(client), "connect");
    printf("one_at_a_time %.0f\n", one_at_a_time(client, seconds));
    printf("callbacks %.0f\n", callbacks(client, seconds));
    fairlock_client_close(client);
    return 0;
}
