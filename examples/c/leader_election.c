/*
 * Leader election: who holds the lock leads, and keep-alive holds it for as long as the leader
 * lives. A leader that loses the lock is told before anybody else can have it, and stops leading.
 */

#define _POSIX_C_SOURCE 200809L

#include <fairlock.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LEASE_MS = 1000, TURN_MS = 50 };

struct candidate {
    const char *name;
    int turns; /* How long it wants to lead. */
    struct candidate *rival; /* Who stands for election once this one leads. */
    pthread_t thread;
    pthread_mutex_t mutex; /* The loss is told by another thread. */
    int leads;
};

static void set_leads(struct candidate *candidate, int leads)
{
    pthread_mutex_lock(&candidate->mutex);
    candidate->leads = leads;
    pthread_mutex_unlock(&candidate->mutex);
}

static int leads(struct candidate *candidate)
{
    pthread_mutex_lock(&candidate->mutex);
    int answer = candidate->leads;
    pthread_mutex_unlock(&candidate->mutex);
    return answer;
}

static void lost(void *data, fairlock_lost_reason reason)
{
    struct candidate *candidate = data;
    printf("%s has lost the lead: %s\n", candidate->name, fairlock_lost_reason_string(reason));
    set_leads(candidate, 0);
}

/* One turn of what only a leader does. */
static void lead(void)
{
    struct timespec turn = {0, TURN_MS * 1000000L};
    nanosleep(&turn, NULL);
}

static void *campaign(void *data)
{
    static const char key[] = "example:leader";
    struct candidate *candidate = data;
    fairlock_client *client = NULL;
    fairlock_lock *lock = NULL;
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    options.lease_ms = LEASE_MS; /* How long nobody leads if the leader dies. */
    options.keep_alive = 1;
    options.on_lost = lost;
    options.on_lost_data = candidate;

    set_leads(candidate, 1); /* Before the lock is had: it can be lost as soon as it is. */
    if (fairlock_client_open(NULL, NULL, &client) != FAIRLOCK_OK
        || fairlock_acquire(client, key, strlen(key), &options, &lock) != FAIRLOCK_OK) {
        fprintf(stderr, "%s: %s\n", candidate->name, fairlock_last_error());
        fairlock_client_close(client);
        return NULL;
    }
    printf("%s leads\n", candidate->name);
    if (candidate->rival != NULL)
        pthread_create(&candidate->rival->thread, NULL, campaign, candidate->rival);

    int turn = 0;
    while (turn < candidate->turns && leads(candidate)) {
        lead();
        turn += 1;
    }
    if (leads(candidate)) {
        if (turn * TURN_MS > LEASE_MS)
            printf("%s still leads after more than a lease\n", candidate->name);
        printf("%s steps down\n", candidate->name);
    }
    fairlock_release(lock); /* The next in line leads at once. */
    fairlock_client_close(client);
    return NULL;
}

int main(void)
{
    struct candidate beta = {"beta", 1, NULL, pthread_self(), PTHREAD_MUTEX_INITIALIZER, 0};
    struct candidate alpha = {"alpha", 25, &beta, pthread_self(), PTHREAD_MUTEX_INITIALIZER, 0};

    campaign(&alpha);
    if (pthread_equal(beta.thread, pthread_self()))
        return 1; /* Alpha never led. */
    pthread_join(beta.thread, NULL);
    return 0;
}
