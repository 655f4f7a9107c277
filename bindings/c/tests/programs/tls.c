/* TLS through the real library, with the certificates in the folder that FAIRLOCK_TEST_CERTIFICATES names: what
 * the options do is proved in the core, here that they arrive. */

#define _XOPEN_SOURCE 700
#include "check.h"

/* The path of a file in the folder, in one of a few places that are used in turn. */
static const char *file(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    const char *folder = getenv("FAIRLOCK_TEST_CERTIFICATES");
    CHECK(folder != NULL);
    CHECK(snprintf(path, sizeof paths[0], "%s/%s", folder, name) < (int)sizeof paths[0]);
    return path;
}

static fairlock_server *start_with(const char *certificate, const char *key, const char *client_ca)
{
    fairlock_server *server;
    fairlock_setting settings[4] = {
        {"tls_cert", certificate}, {"tls_key", key}, {NULL, NULL}, {NULL, NULL}};
    if (client_ca != NULL) {
        settings[2].name = "tls_client_ca";
        settings[2].value = client_ca;
    }
    OK(fairlock_server_start(NULL, settings, &server));
    return server;
}

/* Why a client cannot connect. */
static fairlock_status connects(const fairlock_server *server, fairlock_client_options options,
                                const char *words)
{
    fairlock_client *client;
    OK(fairlock_client_open(fairlock_server_address(server), &options, &client));
    fairlock_status status = fairlock_client_connected(client);
    if (words != NULL)
        check(strstr(fairlock_last_error(), words) != NULL, fairlock_last_error(), __FILE__,
              __LINE__);
    fairlock_client_close(client);
    return status;
}

static fairlock_client_options trusting(const char *ca)
{
    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    options.ca_file = ca;
    /* Valgrind takes seconds to begin. */
    options.connect_timeout_ms = LIMIT_SECONDS * 1000;
    return options;
}

static void a_lock_over_tls(void)
{
    fairlock_server *server = start_with(file("server.pem"), file("server.key"), NULL);
    fairlock_client_options options = trusting(file("ca.pem"));
    options.server_name = "localhost";
    fairlock_client *client;
    fairlock_lock *lock;
    OK(fairlock_client_open(fairlock_server_address(server), &options, &client));
    for (int i = 0; i < 50; i++) {
        OK(fairlock_acquire(client, KEY("order:42"), NULL, &lock));
        CHECK(fairlock_lock_token(lock) > 0);
        OK(fairlock_release(lock));
    }
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void both_sides_show_a_certificate(void)
{
    fairlock_server *server =
        start_with(file("server.pem"), file("server.key"), file("ca.pem"));
    fairlock_client_options options = trusting(file("ca.pem"));
    options.cert_file = file("client.pem");
    options.key_file = file("client.key");
    OK(connects(server, options, NULL));
    options = trusting(file("ca.pem"));
    options.connect_timeout_ms = 3000;
    CHECK(connects(server, options, "") == FAIRLOCK_CONNECTION_FAILED);
    OK(fairlock_server_stop(server));
}

static void wrong_partners_are_told_apart(void)
{
    fairlock_server *stranger = start_with(file("stranger.pem"), file("stranger.key"), NULL);
    fairlock_client_options options = trusting(file("ca.pem"));
    options.connect_timeout_ms = 3000;
    CHECK(connects(stranger, options, "no CA that is known here has signed it") ==
          FAIRLOCK_CONNECTION_FAILED);
    options = trusting(NULL);
    options.tls = FAIRLOCK_TLS_OFF;
    CHECK(connects(stranger, options, "this port speaks TLS") == FAIRLOCK_REFUSED);
    OK(fairlock_server_stop(stranger));
    fairlock_server *plain = start_server();
    options = trusting(file("ca.pem"));
    options.connect_timeout_ms = 3000;
    CHECK(connects(plain, options, "does not speak TLS") == FAIRLOCK_CONNECTION_FAILED);
    OK(fairlock_server_stop(plain));
}

static void files_that_cannot_be_used_are_named(void)
{
    fairlock_client *client;
    fairlock_client_options options = trusting(file("no-such.pem"));
    CHECK(fairlock_client_open("localhost", &options, &client) == FAIRLOCK_INVALID_ARGUMENT);
    CHECK(strstr(fairlock_last_error(), "no-such.pem") != NULL);
    options = trusting(NULL);
    options.tls = 7;
    CHECK(fairlock_client_open("localhost", &options, &client) == FAIRLOCK_INVALID_ARGUMENT);
    CHECK(strstr(fairlock_last_error(), "`tls`") != NULL);
    fairlock_server *server;
    fairlock_setting settings[] = {
        {"tls_cert", file("expired.pem")}, {"tls_key", file("expired.key")}, {NULL, NULL}};
    CHECK(fairlock_server_start(NULL, settings, &server) == FAIRLOCK_SERVER_FAILED);
    CHECK(strstr(fairlock_last_error(), "it expired") != NULL);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"a_lock_over_tls", a_lock_over_tls},
        {"both_sides_show_a_certificate", both_sides_show_a_certificate},
        {"wrong_partners_are_told_apart", wrong_partners_are_told_apart},
        {"files_that_cannot_be_used_are_named", files_that_cannot_be_used_are_named},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
