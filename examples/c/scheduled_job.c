/*
 * A scheduled job that must run once: the same schedule wakes three workers, as it would on three
 * machines. Each takes the lock; the first one runs the job and leaves a note that it has; the
 * others find the note. A worker that dies on the way leaves no note, and the next one runs the job.
 */

#include <fairlock.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 3 };

/* Stands for a row in the database, or a file beside the report. Only the holder touches it. */
static struct {
    int done;
    int runs;
} report;

static void *worker(void *unused)
{
    static const char key[] = "example:nightly-report";
    fairlock_client *client = NULL;
    fairlock_lock *lock = NULL;
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    options.lease_ms = 10000;
    options.keep_alive = 1; /* However long the job takes. */

    if (fairlock_client_open(NULL, NULL, &client) != FAIRLOCK_OK
        || fairlock_acquire(client, key, strlen(key), &options, &lock) != FAIRLOCK_OK) {
        fprintf(stderr, "nightly report: %s\n", fairlock_last_error());
    } else if (report.done) {
        printf("nightly report: has run already, nothing to do\n");
    } else {
        printf("nightly report: running it\n");
        report.runs += 1;
        report.done = 1;
    }

    fairlock_release(lock); /* NULL is fine here and below. */
    fairlock_client_close(client);
    return unused;
}

int main(void)
{
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&workers[i], NULL, worker, NULL);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    printf("runs: %d\n", report.runs);
    return report.runs == 1 ? 0 : 1;
}
