/* Every row of the table of errors, and every argument that cannot be used. */

#define _XOPEN_SOURCE 700
#include "scripted.h"

static void wait_timeout(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server);
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    fairlock_lock *lock, *none = (fairlock_lock *)client;

    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    options.wait_ms = 50;
    double begun = seconds_now();
    CHECK_STATUS(FAIRLOCK_WAIT_TIMEOUT, fairlock_acquire(client, KEY("k"), &options, &none));
    CHECK(seconds_now() - begun >= 0.05);
    CHECK(none == NULL);
    CHECK(strlen(fairlock_last_error()) > 0);
    CHECK_TEXT("", fairlock_last_reason());
    OK(fairlock_release(lock));
    CHECK(waiting(client, KEY("k")) == 0 && is_free(client, KEY("k")));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

/* An address where nobody listens. */
static void dead_address(char *address, size_t size)
{
    fairlock_server *server = start_server();
    snprintf(address, size, "%s", fairlock_server_address(server));
    OK(fairlock_server_stop(server));
}

static void connection_failed(void)
{
    char address[64];
    fairlock_client *client;
    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    fairlock_lock *lock;

    dead_address(address, sizeof address);
    options.connect_timeout_ms = 500;
    OK(fairlock_client_open(address, &options, &client));
    double begun = seconds_now();
    CHECK_STATUS(FAIRLOCK_CONNECTION_FAILED, fairlock_acquire(client, KEY("k"), NULL, &lock));
    CHECK(lock == NULL);
    CHECK(seconds_now() - begun < LIMIT_SECONDS);
    CHECK(strstr(fairlock_last_error(), address) != NULL);
    CHECK_STATUS(FAIRLOCK_CONNECTION_FAILED, fairlock_client_connected(client));
    fairlock_client_close(client);
}

static void answer_refuse(FILE *out, char op, const char *key, const char *tag)
{
    /* The key names the code. */
    fprintf(out, "E %c %s %s %s because the test wants it\n", op, key, key, tag);
}

static void refused(void)
{
    struct scripted server;
    fairlock_client *client;
    fairlock_lock *lock;
    static const char *const codes[] = {"denied", "busy", "internal", "syntax", "quota"};

    scripted_start(&server, answer_refuse);
    client = open_client_at(server.address);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        CHECK_STATUS(FAIRLOCK_REFUSED,
                     fairlock_acquire(client, codes[i], strlen(codes[i]), NULL, &lock));
        CHECK_TEXT(codes[i], fairlock_last_reason());
        CHECK(strstr(fairlock_last_error(), "because the test wants it") != NULL);
    }
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_acquire(client, KEY("lease"), NULL, &lock));
    fairlock_client_close(client);
    scripted_stop(&server);
}

static void refused_for_the_secret(void)
{
    static const fairlock_setting settings[] = {{"secret", "right"}, {NULL, NULL}};
    fairlock_server *server;
    fairlock_client *client;
    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    fairlock_lock *lock;

    OK(fairlock_server_start(NULL, settings, &server));
    options.secret = "right";
    options.connect_timeout_ms = LIMIT_SECONDS * 1000;
    OK(fairlock_client_open(fairlock_server_address(server), &options, &client));
    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    OK(fairlock_release(lock));
    fairlock_client_close(client);

    options.secret = "wrong";
    OK(fairlock_client_open(fairlock_server_address(server), &options, &client));
    CHECK_STATUS(FAIRLOCK_REFUSED, fairlock_acquire(client, KEY("k"), NULL, &lock));
    CHECK_TEXT("auth", fairlock_last_reason());
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void answer_grant_only(FILE *out, char op, const char *key, const char *tag)
{
    if (op == 'A')
        fprintf(out, "A %s 7 %s\n", key, tag);
}

static void release_unconfirmed(void)
{
    struct scripted server;
    fairlock_client *client;
    fairlock_lock *lock;

    scripted_start(&server, answer_grant_only);
    client = open_client_at(server.address);
    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    CHECK(fairlock_lock_token(lock) == 7);
    double begun = seconds_now();
    CHECK_STATUS(FAIRLOCK_RELEASE_UNCONFIRMED, fairlock_release(lock));
    CHECK(seconds_now() - begun >= 4.9);
    fairlock_client_close(client);
    scripted_stop(&server);
}

static void answer_stale(FILE *out, char op, const char *key, const char *tag)
{
    if (op == 'A')
        fprintf(out, "A %s 7 %s\n", key, tag);
    else
        fprintf(out, "%c %s stale %s\n", op, key, tag);
}

static void lock_lost(void)
{
    struct scripted server;
    fairlock_client *client;
    fairlock_lock *lock;

    scripted_start(&server, answer_stale);
    client = open_client_at(server.address);
    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    CHECK_TEXT("taken", fairlock_last_reason());
    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_lock_keep(lock, 0));
    CHECK(!fairlock_lock_held(lock));
    CHECK_STATUS(FAIRLOCK_LOCK_LOST, fairlock_release(lock));
    fairlock_client_close(client);
    scripted_stop(&server);
}

static void stale_token(void)
{
    fairlock_fence *fence = fairlock_fence_new();
    OK(fairlock_fence_check(fence, KEY("k"), 2));
    CHECK_STATUS(FAIRLOCK_STALE_TOKEN, fairlock_fence_check(fence, KEY("k"), 1));
    CHECK(strlen(fairlock_last_error()) > 0);
    fairlock_fence_free(fence);
}

static void *closed_while_waiting(void *client)
{
    fairlock_lock *lock;
    CHECK_STATUS(FAIRLOCK_CLOSED, fairlock_acquire(client, KEY("k"), NULL, &lock));
    CHECK(lock == NULL);
    return NULL;
}

static void closed(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *holder = open_client(server);
    fairlock_lock *lock;
    pthread_t thread;

    OK(fairlock_acquire(holder, KEY("k"), NULL, &lock));
    pthread_create(&thread, NULL, closed_while_waiting, client);
    await_waiting(holder, KEY("k"), 1);
    fairlock_client_close(client);
    pthread_join(thread, NULL);
    await_waiting(holder, KEY("k"), 0);
    OK(fairlock_release(lock));
    fairlock_client_close(holder);
    OK(fairlock_server_stop(server));
}

static void server_failed(void)
{
    fairlock_server *server = start_server(), *second = server;
    CHECK_STATUS(FAIRLOCK_SERVER_FAILED,
                 fairlock_server_start(fairlock_server_address(server), NULL, &second));
    CHECK(second == NULL);
    CHECK(strstr(fairlock_last_error(), fairlock_server_address(server)) != NULL);
    OK(fairlock_server_stop(server));
}

static void settings_of_a_server(void)
{
    fairlock_server *server;
    fairlock_client *client;
    fairlock_lock *lock;
    static const fairlock_setting unknown[] = {{"colour", "blue"}, {NULL, NULL}};
    static const fairlock_setting wrong[] = {{"max_lease", "-1"}, {NULL, NULL}};
    static const fairlock_setting none[] = {{"max_lease", NULL}, {NULL, NULL}};
    static const fairlock_setting empty[] = {{NULL, NULL}};
    static const fairlock_setting short_lease[] = {{"max_lease", "60"}, {NULL, NULL}};

    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_server_start(NULL, unknown, &server));
    CHECK(strstr(fairlock_last_error(), "colour") != NULL);
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_server_start(NULL, wrong, &server));
    CHECK(strstr(fairlock_last_error(), "max_lease") != NULL);
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_server_start(NULL, none, &server));
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_server_start("nonsense", NULL, &server));
    OK(fairlock_server_start(NULL, empty, &server));
    OK(fairlock_server_stop(server));

    /* A setting counts: this server allows no lease of more than a minute. */
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    OK(fairlock_server_start(NULL, short_lease, &server));
    client = open_client(server);
    options.lease_ms = 61000;
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_acquire(client, KEY("k"), &options, &lock));
    options.lease_ms = 60000;
    OK(fairlock_acquire(client, KEY("k"), &options, &lock));
    OK(fairlock_release(lock));
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void never_told(void *data, fairlock_status status, fairlock_lock *lock)
{
    (void)data, (void)status, (void)lock;
    CHECK(!"a callback after a call that was refused");
}

static void done_never(void *data, fairlock_status status)
{
    (void)data, (void)status;
    CHECK(!"a callback after a call that was refused");
}

#define INVALID(call) CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, call)

static void null_everywhere(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *no_client = client;
    fairlock_fence *fence = fairlock_fence_new();
    fairlock_lock *lock, *none;
    fairlock_view *view;
    fairlock_pending *pending;
    size_t length = 99;
    OK(fairlock_acquire(client, KEY("held"), NULL, &lock));

    INVALID(fairlock_client_open("127.0.0.1:1", NULL, NULL));
    INVALID(fairlock_client_open("", NULL, &no_client));
    CHECK(no_client == NULL);
    INVALID(fairlock_client_connected(NULL));
    fairlock_client_close(NULL);

    INVALID(fairlock_acquire(NULL, KEY("k"), NULL, &none));
    INVALID(fairlock_acquire(client, NULL, 1, NULL, &none));
    INVALID(fairlock_acquire(client, NULL, 0, NULL, &none));
    INVALID(fairlock_acquire(client, KEY("k"), NULL, NULL));
    INVALID(fairlock_try_acquire(NULL, KEY("k"), NULL, &none));
    INVALID(fairlock_try_acquire(client, NULL, 1, NULL, &none));
    INVALID(fairlock_try_acquire(client, KEY("k"), NULL, NULL));
    INVALID(fairlock_acquire_async(NULL, KEY("k"), NULL, never_told, NULL, &pending));
    CHECK(pending == NULL);
    INVALID(fairlock_acquire_async(client, NULL, 1, NULL, never_told, NULL, &pending));
    INVALID(fairlock_acquire_async(client, KEY("k"), NULL, NULL, NULL, &pending));
    INVALID(fairlock_try_acquire_async(NULL, KEY("k"), NULL, never_told, NULL, NULL));
    INVALID(fairlock_try_acquire_async(client, NULL, 1, NULL, never_told, NULL, NULL));
    INVALID(fairlock_try_acquire_async(client, KEY("k"), NULL, NULL, NULL, NULL));
    INVALID(fairlock_cancel(NULL));
    fairlock_pending_free(NULL);

    CHECK(fairlock_lock_key(NULL, &length) == NULL && length == 0);
    CHECK(fairlock_lock_key(NULL, NULL) == NULL);
    CHECK(fairlock_lock_token(NULL) == 0);
    CHECK(fairlock_lock_lease_ms(NULL) == 0);
    CHECK(fairlock_lock_remaining_ms(NULL) == 0);
    CHECK(fairlock_lock_held(NULL) == 0);
    CHECK(fairlock_lock_leave_held(NULL) == 0);
    INVALID(fairlock_lock_keep(NULL, 0));
    INVALID(fairlock_lock_keep_async(NULL, 0, done_never, NULL));
    INVALID(fairlock_lock_keep_async(lock, 0, NULL, NULL));
    INVALID(fairlock_lock_on_lost(NULL, NULL, NULL));
    OK(fairlock_release(NULL));
    INVALID(fairlock_release_async(NULL, done_never, NULL));

    INVALID(fairlock_inspect(NULL, KEY("k"), &view));
    CHECK(view == NULL);
    INVALID(fairlock_inspect(client, NULL, 1, &view));
    INVALID(fairlock_inspect(client, KEY("k"), NULL));
    INVALID(fairlock_waiters(NULL, KEY("k"), 1, &view));
    INVALID(fairlock_waiters(client, NULL, 1, 1, &view));
    INVALID(fairlock_waiters(client, KEY("k"), 1, NULL));
    INVALID(fairlock_waiters(client, KEY("k"), 0, &view));
    INVALID(fairlock_locks(NULL, NULL, 0, NULL, 0, 1, &view));
    INVALID(fairlock_locks(client, NULL, 1, NULL, 0, 1, &view));
    INVALID(fairlock_locks(client, NULL, 0, NULL, 0, 1, NULL));
    INVALID(fairlock_locks(client, NULL, 0, NULL, 0, 100001, &view));
    INVALID(fairlock_server_status(NULL, &view));
    INVALID(fairlock_server_status(client, NULL));
    CHECK(fairlock_view_lock(NULL, 0) == NULL);
    CHECK(fairlock_view_waiter(NULL, 0) == NULL);
    CHECK(fairlock_view_waiting(NULL) == 0);
    CHECK(fairlock_view_node(NULL) == NULL);
    CHECK(fairlock_view_next(NULL, &length) == NULL);
    OK(fairlock_locks(client, NULL, 0, NULL, 0, 10, &view));
    CHECK(fairlock_view_next(view, NULL) == NULL);
    CHECK(fairlock_view_next(view, &length) == NULL && length == 0);
    fairlock_view_free(view);
    fairlock_view_free(NULL);
    INVALID(fairlock_release_token(NULL, KEY("k"), 1));
    INVALID(fairlock_release_token(client, NULL, 1, 1));
    INVALID(fairlock_release_token(client, KEY("k"), 0));
    INVALID(fairlock_release_token(client, KEY("k"), UINT64_MAX));
    INVALID(fairlock_keep_token(NULL, KEY("k"), 1, 1000));
    INVALID(fairlock_keep_token(client, NULL, 1, 1, 1000));
    INVALID(fairlock_keep_token(client, KEY("k"), 0, 1000));
    INVALID(fairlock_keep_token(client, KEY("k"), 1, 0));

    INVALID(fairlock_fence_check(NULL, KEY("k"), 1));
    INVALID(fairlock_fence_check(fence, NULL, 1, 1));
    INVALID(fairlock_fence_check(fence, KEY("k"), 0));
    CHECK(fairlock_fence_highest(NULL, KEY("k")) == 0);
    CHECK(fairlock_fence_highest(fence, NULL, 1) == 0);
    INVALID(fairlock_fence_forget(NULL, KEY("k")));
    INVALID(fairlock_fence_forget(fence, NULL, 1));
    fairlock_fence_free(NULL);

    INVALID(fairlock_server_start(NULL, NULL, NULL));
    CHECK(fairlock_server_address(NULL) == NULL);
    OK(fairlock_server_stop(NULL));

    OK(fairlock_release(lock));
    fairlock_fence_free(fence);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void options_that_cannot_be_used(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client = open_client(server), *none;
    const char *address = fairlock_server_address(server);
    fairlock_lock *lock;
    char too_long[513];
    memset(too_long, 'x', sizeof too_long);

    INVALID(fairlock_acquire(client, "", 0, NULL, &lock));
    INVALID(fairlock_acquire(client, too_long, sizeof too_long, NULL, &lock));
    INVALID(fairlock_acquire(client, "k", SIZE_MAX, NULL, &lock));

    static const struct {
        uint64_t lease_ms, wait_ms, max_hold_ms;
        int keep_alive;
    } wrong[] = {
        {0, 0, 0, 0},
        {UINT64_MAX, 0, 0, 0},
        {999, 0, 0, 1},
        {30000, UINT64_MAX, 0, 0},
        {30000, 31536000001u, 0, 0},
        {30000, 0, UINT64_MAX, 0},
    };
    static const char *const said[] = {
        "lease_ms is 0; give a time from a millisecond to a year",
        "lease_ms is 18446744073709551615; give a time from a millisecond to a year",
        "lease_ms is 999; give at least a second, or no keep_alive",
        "wait_ms is 18446744073709551615; give a time from a millisecond to a year, or 0 to wait without limit",
        "wait_ms is 31536000001; give a time from a millisecond to a year, or 0 to wait without limit",
        "max_hold_ms is 18446744073709551615; give a time from a millisecond to a year",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fairlock_options options = FAIRLOCK_OPTIONS_INIT;
        options.lease_ms = wrong[i].lease_ms;
        options.wait_ms = wrong[i].wait_ms;
        options.max_hold_ms = wrong[i].max_hold_ms;
        options.keep_alive = wrong[i].keep_alive;
        INVALID(fairlock_acquire(client, KEY("k"), &options, &lock));
        CHECK_TEXT(said[i], fairlock_last_error());
        CHECK(lock == NULL && strlen(fairlock_last_error()) > 0);
    }

    /* Options without the macro, and options of a later version. */
    fairlock_options zero;
    memset(&zero, 0, sizeof zero);
    INVALID(fairlock_acquire(client, KEY("k"), &zero, &lock));
    CHECK(strstr(fairlock_last_error(), "size") != NULL);
    struct {
        fairlock_options known;
        uint64_t later;
    } newer = {FAIRLOCK_OPTIONS_INIT, 0};
    newer.known.size = sizeof newer;
    OK(fairlock_acquire(client, KEY("k"), &newer.known, &lock));
    OK(fairlock_release(lock));
    newer.later = 1;
    INVALID(fairlock_acquire(client, KEY("k"), &newer.known, &lock));
    newer.known.size = SIZE_MAX;
    INVALID(fairlock_acquire(client, KEY("k"), &newer.known, &lock));

    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    options.connect_timeout_ms = 0;
    INVALID(fairlock_client_open(address, &options, &none));
    CHECK(none == NULL);
    options.connect_timeout_ms = UINT64_MAX;
    INVALID(fairlock_client_open(address, &options, &none));
    options.connect_timeout_ms = 1000;
    options.retry_for_ms = UINT64_MAX;
    INVALID(fairlock_client_open(address, &options, &none));
    options.retry_for_ms = 0;
    options.follow_moves = 7;
    INVALID(fairlock_client_open(address, &options, &none));
    options.follow_moves = FAIRLOCK_FOLLOW_LISTED;
    options.name = "";
    INVALID(fairlock_client_open(address, &options, &none));
    options.name = "\xff";
    INVALID(fairlock_client_open(address, &options, &none));
    options.name = NULL;
    options.secret_file = "/no/such/file";
    INVALID(fairlock_client_open(address, &options, &none));
    CHECK(strstr(fairlock_last_error(), "/no/such/file") != NULL);
    options.secret_file = NULL;
    options.size = 1;
    INVALID(fairlock_client_open(address, &options, &none));
    INVALID(fairlock_client_open("not an address", NULL, &none));
    INVALID(fairlock_client_open("\xff", NULL, &none));
    INVALID(fairlock_client_open("a:99999", NULL, &none));

    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void servers_from_the_environment(void)
{
    fairlock_server *server = start_server();
    fairlock_client *client;
    CHECK(setenv("FAIRLOCK_SERVERS", fairlock_server_address(server), 1) == 0);
    OK(fairlock_client_open(NULL, NULL, &client));
    OK(fairlock_client_connected(client));
    CHECK(unsetenv("FAIRLOCK_SERVERS") == 0);
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void what_the_environment_says_is_never_passed_over(void)
{
    fairlock_client *none;
    CHECK(setenv("FAIRLOCK_TLS", "perhaps", 1) == 0);
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_client_open("127.0.0.1:1", NULL, &none));
    CHECK(strstr(fairlock_last_error(), "FAIRLOCK_TLS") != NULL);
    CHECK(unsetenv("FAIRLOCK_TLS") == 0);
    CHECK(setenv("FAIRLOCK_SERVER", "127.0.0.1:1", 1) == 0);
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_client_open(NULL, NULL, &none));
    CHECK(strstr(fairlock_last_error(), "FAIRLOCK_SERVERS") != NULL);
    CHECK(unsetenv("FAIRLOCK_SERVER") == 0);
}

/* Programs in C leave SIGPIPE as it is, and a library must not end them by it. */
static void a_broken_connection_is_no_signal(void)
{
    struct scripted scripted;
    fairlock_client *client;
    fairlock_lock *lock;
    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    struct sockaddr_in address;
    static const char requests[] = "A k 30 0 #1\nA k 30 0 #2\nS\nS\nS\n";
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);

    /* The client writes to a server that has gone. */
    options.connect_timeout_ms = 1000;
    scripted_start(&scripted, answer_grant_only);
    OK(fairlock_client_open(scripted.address, &options, &client));
    OK(fairlock_acquire(client, KEY("k"), NULL, &lock));
    scripted_stop(&scripted);
    for (int i = 0; i < 3; i++) {
        fairlock_lock *none;
        CHECK_STATUS(FAIRLOCK_CONNECTION_FAILED, fairlock_acquire(client, KEY("j"), NULL, &none));
    }
    OK(fairlock_release_async(lock, NULL, NULL));
    fairlock_client_close(client);

    /* The server writes to a client that has gone. */
    fairlock_server *server = start_server();
    const char *colon = strrchr(fairlock_server_address(server), ':');
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    for (int i = 0; i < 20; i++) {
        struct linger reset = {1, 0};
        int gone = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(gone, (struct sockaddr *)&address, sizeof address) == 0);
        CHECK(setsockopt(gone, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
        CHECK(write(gone, requests, sizeof requests - 1) > 0);
        close(gone);
    }
    client = open_client(server);
    OK(fairlock_client_connected(client));
    fairlock_client_close(client);
    OK(fairlock_server_stop(server));
}

static void *own_message(void *unused)
{
    CHECK_TEXT("", fairlock_last_error());
    CHECK_TEXT("", fairlock_last_reason());
    fairlock_cancel(NULL);
    CHECK(strstr(fairlock_last_error(), "pending") != NULL);
    return unused;
}

static void messages_belong_to_a_thread(void)
{
    pthread_t thread;
    fairlock_client_connected(NULL);
    CHECK(strstr(fairlock_last_error(), "client") != NULL);
    pthread_create(&thread, NULL, own_message, NULL);
    pthread_join(thread, NULL);
    CHECK(strstr(fairlock_last_error(), "client") != NULL);
}

static void names_of_numbers(void)
{
    static const struct {
        int status;
        const char *name;
    } names[] = {
        {0, "FAIRLOCK_OK"},
        {1, "FAIRLOCK_WAIT_TIMEOUT"},
        {2, "FAIRLOCK_CONNECTION_FAILED"},
        {3, "FAIRLOCK_INVALID_ARGUMENT"},
        {4, "FAIRLOCK_REFUSED"},
        {5, "FAIRLOCK_LOCK_LOST"},
        {6, "FAIRLOCK_RELEASE_UNCONFIRMED"},
        {7, "FAIRLOCK_STALE_TOKEN"},
        {8, "FAIRLOCK_CLOSED"},
        {9, "FAIRLOCK_FORKED"},
        {10, "FAIRLOCK_CANCELLED"},
        {100, "FAIRLOCK_SERVER_FAILED"},
        {101, "FAIRLOCK_WOULD_DEADLOCK"},
        {102, "FAIRLOCK_INTERNAL"},
        {-1, "FAIRLOCK_UNKNOWN"},
        {11, "FAIRLOCK_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_TEXT(names[i].name, fairlock_status_string(names[i].status));
    CHECK_TEXT("expired", fairlock_lost_reason_string(FAIRLOCK_LOST_EXPIRED));
    CHECK_TEXT("taken", fairlock_lost_reason_string(FAIRLOCK_LOST_TAKEN));
    CHECK_TEXT("unconfirmed", fairlock_lost_reason_string(FAIRLOCK_LOST_UNCONFIRMED));
    CHECK_TEXT("closed", fairlock_lost_reason_string(FAIRLOCK_LOST_CLOSED));
    CHECK_TEXT("unknown", fairlock_lost_reason_string(0));
    CHECK_TEXT(FAIRLOCK_VERSION, fairlock_version());
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"messages_belong_to_a_thread", messages_belong_to_a_thread},
        {"names_of_numbers", names_of_numbers},
        {"wait_timeout", wait_timeout},
        {"connection_failed", connection_failed},
        {"refused", refused},
        {"refused_for_the_secret", refused_for_the_secret},
        {"release_unconfirmed", release_unconfirmed},
        {"lock_lost", lock_lost},
        {"stale_token", stale_token},
        {"closed", closed},
        {"server_failed", server_failed},
        {"settings_of_a_server", settings_of_a_server},
        {"null_everywhere", null_everywhere},
        {"options_that_cannot_be_used", options_that_cannot_be_used},
        {"servers_from_the_environment", servers_from_the_environment},
        {"what_the_environment_says_is_never_passed_over", what_the_environment_says_is_never_passed_over},
        {"a_broken_connection_is_no_signal", a_broken_connection_is_no_signal},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
