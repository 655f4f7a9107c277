/*
 * A protected resource that checks the token. A lock alone cannot stop a holder that stood still past
 * the end of its lease and writes on when it wakes. The resource can: it keeps the highest token it
 * has seen beside what it stores, and refuses a lower one. Here the resource is a file.
 */

#define _XOPEN_SOURCE 700

#include <fairlock.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char key[] = "example:resource";

/*
 * Writes if the token is not older than the mark in the file: 1 written, 0 refused, -1 failed. Reading
 * the mark and writing are one step, because nobody else has the file locked meanwhile.
 */
static int write_fenced(const char *path, uint64_t token, const char *text)
{
    FILE *file = fopen(path, "r+");
    struct flock whole = {0};
    uint64_t mark = 0;
    int result = -1;
    whole.l_type = F_WRLCK;

    if (file == NULL || fcntl(fileno(file), F_SETLKW, &whole) != 0) {
        perror(path);
    } else if (fscanf(file, "%" SCNu64, &mark) == 1 && token < mark) {
        printf("%s: refused, a newer token has been here\n", text);
        result = 0;
    } else {
        rewind(file);
        result = ftruncate(fileno(file), 0) == 0
            && fprintf(file, "%" PRIu64 " %s\n", token, text) > 0 && fflush(file) == 0
            && fsync(fileno(file)) == 0 ? 1 : -1;
        if (result == 1)
            printf("%s: written\n", text);
    }
    if (file != NULL)
        fclose(file); /* Unlocks. */
    return result;
}

static fairlock_lock *acquire(fairlock_client *client, const char *who, uint64_t lease_ms)
{
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock;
    options.lease_ms = lease_ms;
    if (fairlock_acquire(client, key, strlen(key), &options, &lock) != FAIRLOCK_OK) {
        fprintf(stderr, "%s: %s\n", who, fairlock_last_error());
        exit(1);
    }
    printf("%s: token %" PRIu64 "\n", who, fairlock_lock_token(lock));
    return lock;
}

int main(void)
{
    char path[] = "/tmp/fairlock-resource-XXXXXX";
    int made = mkstemp(path);
    fairlock_client *client;
    if (made < 0 || fairlock_client_open(NULL, NULL, &client) != FAIRLOCK_OK) {
        fprintf(stderr, "start: %s\n", made < 0 ? path : fairlock_last_error());
        return 1;
    }
    close(made);

    /* The slow writer stands still until its lease is over, and the fast one gets the lock. */
    fairlock_lock *slow = acquire(client, "slow writer", 200);
    fairlock_lock *fast = acquire(client, "fast writer", 30000);

    int fast_wrote = write_fenced(path, fairlock_lock_token(fast), "fast writer");
    int slow_wrote = write_fenced(path, fairlock_lock_token(slow), "slow writer");

    fairlock_release(fast);
    if (fairlock_release(slow) == FAIRLOCK_LOCK_LOST)
        printf("slow writer: had lost the lock (%s)\n", fairlock_last_reason());
    fairlock_client_close(client);
    unlink(path);
    return fast_wrote == 1 && slow_wrote == 0 ? 0 : 1;
}
