/* Serves until its standard input ends; for the examples. Prints where. */

#include <fairlock.h>
#include <stdio.h>

int main(void)
{
    fairlock_server *server;
    if (fairlock_server_start(NULL, NULL, &server) != FAIRLOCK_OK) {
        fprintf(stderr, "%s\n", fairlock_last_error());
        return 1;
    }
    printf("%s\n", fairlock_server_address(server));
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return fairlock_server_stop(server) == FAIRLOCK_OK ? 0 : 1;
}
