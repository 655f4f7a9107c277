/* A first lock: take it, do the work with its token, let it go. */

#include <fairlock.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, fairlock_last_error());
    return 1;
}

int main(void)
{
    const char *key = "example:order:42";

    /* NULL: the servers of FAIRLOCK_SERVERS, or 127.0.0.1:7420. */
    fairlock_client *client;
    if (fairlock_client_open(NULL, NULL, &client) != FAIRLOCK_OK)
        return failed("open");

    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    options.lease_ms = 30000; /* If this process dies, others wait no longer than this. */
    options.wait_ms = 5000;
    fairlock_lock *lock;
    fairlock_status status = fairlock_acquire(client, key, strlen(key), &options, &lock);
    if (status == FAIRLOCK_WAIT_TIMEOUT)
        printf("somebody else holds %s\n", key);
    if (status != FAIRLOCK_OK) {
        fairlock_client_close(client);
        return failed("acquire");
    }

    /* What is protected should be given the token, so that it can refuse an older one. */
    printf("holding %s, token %" PRIu64 "\n", key, fairlock_lock_token(lock));

    if (fairlock_release(lock) != FAIRLOCK_OK) {
        fairlock_client_close(client);
        return failed("release");
    }
    printf("released %s\n", key);
    fairlock_client_close(client);
    return 0;
}
