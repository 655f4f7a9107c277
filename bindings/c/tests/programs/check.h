/* What the test programs share: checks that name their place, events with a limit, a server. */

#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fairlock.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Long enough for valgrind on a busy machine; only a failing test takes it. */
#define LIMIT_SECONDS 60

#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
#define CHECK_STATUS(expected, call) check_status((expected), (call), #call, __FILE__, __LINE__)
#define OK(call) CHECK_STATUS(FAIRLOCK_OK, call)
#define CHECK_TEXT(expected, text) check_text((expected), (text), #text, __FILE__, __LINE__)

/* A key written as a string, with its length. */
#define KEY(text) (text), sizeof(text) - 1

static inline void check(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", file, line, what,
                fairlock_last_error());
        abort();
    }
}

static inline void check_status(int expected, int status, const char *what, const char *file,
                                int line)
{
    if (status != expected) {
        fprintf(stderr, "%s:%d: %s gave %s, not %s; last error: %s\n", file, line, what,
                fairlock_status_string(status), fairlock_status_string(expected),
                fairlock_last_error());
        abort();
    }
}

static inline void check_text(const char *expected, const char *text, const char *what,
                              const char *file, int line)
{
    if (text == NULL || strcmp(expected, text) != 0) {
        fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", file, line, what,
                text == NULL ? "(NULL)" : text, expected);
        abort();
    }
}

/* Something that happens a number of times, on any thread. */
struct event {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int times;
};

#define EVENT_INIT { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 }

static inline void event_happens(struct event *event)
{
    pthread_mutex_lock(&event->mutex);
    event->times += 1;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->mutex);
}

static inline int event_times(struct event *event)
{
    pthread_mutex_lock(&event->mutex);
    int times = event->times;
    pthread_mutex_unlock(&event->mutex);
    return times;
}

/* Waits until it has happened that many times in all; whether it did within a limit. */
static inline int event_within(struct event *event, int times, double seconds)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    long nanoseconds = limit.tv_nsec + (long)((seconds - (double)(long)seconds) * 1e9);
    limit.tv_sec += (time_t)seconds + nanoseconds / 1000000000L;
    limit.tv_nsec = nanoseconds % 1000000000L;
    int result = 0;
    pthread_mutex_lock(&event->mutex);
    while (event->times < times && result == 0)
        result = pthread_cond_timedwait(&event->changed, &event->mutex, &limit);
    int happened = event->times >= times;
    pthread_mutex_unlock(&event->mutex);
    return happened;
}

static inline void event_wait(struct event *event, int times)
{
    check(event_within(event, times, LIMIT_SECONDS), "an event within its limit", __FILE__,
          __LINE__);
}

static inline double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void pause_ms(long ms)
{
    struct timespec time;
    time.tv_sec = ms / 1000;
    time.tv_nsec = ms % 1000 * 1000000L;
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

static inline fairlock_server *start_server(void)
{
    fairlock_server *server;
    OK(fairlock_server_start(NULL, NULL, &server));
    return server;
}

/* A client that is as patient as the tests are: valgrind takes seconds to begin. */
static inline fairlock_client *open_client_at(const char *address)
{
    fairlock_client *client;
    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    options.connect_timeout_ms = LIMIT_SECONDS * 1000;
    OK(fairlock_client_open(address, &options, &client));
    return client;
}

static inline fairlock_client *open_client(const fairlock_server *server)
{
    return open_client_at(fairlock_server_address(server));
}

static inline uint64_t waiting(fairlock_client *client, const void *key, size_t length)
{
    fairlock_view *view;
    OK(fairlock_inspect(client, key, length, &view));
    uint64_t count = fairlock_view_waiting(view);
    fairlock_view_free(view);
    return count;
}

static inline int is_free(fairlock_client *client, const void *key, size_t length)
{
    fairlock_view *view;
    OK(fairlock_inspect(client, key, length, &view));
    int nobody = fairlock_view_lock(view, 0) == NULL;
    fairlock_view_free(view);
    return nobody;
}

/* Waits until that many wait for the key. */
static inline void await_waiting(fairlock_client *client, const void *key, size_t length,
                                 uint64_t count)
{
    double limit = seconds_now() + LIMIT_SECONDS;
    while (waiting(client, key, length) != count) {
        CHECK(seconds_now() < limit);
        pause_ms(1);
    }
}

/* Waits until nobody holds the key. */
static inline void await_free(fairlock_client *client, const void *key, size_t length)
{
    double limit = seconds_now() + LIMIT_SECONDS;
    while (!is_free(client, key, length)) {
        CHECK(seconds_now() < limit);
        pause_ms(1);
    }
}

struct test {
    const char *name;
    void (*run)(void);
};

/* Runs all tests of a program, or the ones named on its command line. */
static inline int run_tests(const struct test *tests, int argc, char **argv)
{
    for (const struct test *test = tests; test->name != NULL; test++) {
        int wanted = argc < 2;
        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], test->name) == 0;
        if (!wanted)
            continue;
        double begun = seconds_now();
        test->run();
        printf("ok %s (%.2f s)\n", test->name, seconds_now() - begun);
        fflush(stdout);
    }
    return 0;
}

#endif
