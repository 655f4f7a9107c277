/* Three nodes inside the process: what a client notices when they go. */

#define _XOPEN_SOURCE 700
#include "check.h"

enum { NODES = 3 };

struct cluster {
    char addresses[NODES][FAIRLOCK_FREE_ADDRESS_SIZE];
    /* All of them, with commas between them: what nodes and clients take. */
    char list[NODES * FAIRLOCK_FREE_ADDRESS_SIZE];
    fairlock_server *nodes[NODES];
};

/* Whether the node at `address` is active and has that many standbys. */
static int serves(const char *address, int standbys)
{
    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    options.follow_moves = FAIRLOCK_FOLLOW_LISTED;
    options.connect_timeout_ms = 1000;
    fairlock_client *client;
    fairlock_view *view;
    int does = 0;
    OK(fairlock_client_open(address, &options, &client));
    if (fairlock_server_status(client, &view) == FAIRLOCK_OK) {
        const fairlock_node_status *node = fairlock_view_node(view);
        int count = node->standbys[0] != '\0';
        for (const char *at = node->standbys; *at != '\0'; at++)
            count += *at == ',';
        does = strcmp(node->role, "active") == 0 && count == standbys;
        fairlock_view_free(view);
    }
    fairlock_client_close(client);
    return does;
}

static void await_serving(const char *address, int standbys)
{
    double limit = seconds_now() + LIMIT_SECONDS;
    while (!serves(address, standbys)) {
        CHECK(seconds_now() < limit);
        pause_ms(1);
    }
}

static void start_cluster(struct cluster *cluster)
{
    cluster->list[0] = '\0';
    for (int i = 0; i < NODES; i++) {
        OK(fairlock_server_free_address(cluster->addresses[i]));
        if (i > 0)
            strcat(cluster->list, ",");
        strcat(cluster->list, cluster->addresses[i]);
    }
    for (int i = 0; i < NODES; i++) {
        /* Under valgrind a node can be silent for longer than others would wait. */
        const fairlock_setting settings[] = {
            {"peers", cluster->list}, {"node", cluster->addresses[i]},
            {"failure_timeout", "30"}, {"discovery_timeout", "30"}, {NULL, NULL},
        };
        OK(fairlock_server_start(NULL, settings, &cluster->nodes[i]));
        CHECK_TEXT(cluster->addresses[i], fairlock_server_address(cluster->nodes[i]));
    }
    await_serving(cluster->addresses[0], NODES - 1);
}

struct granted {
    fairlock_lock *lock;
    struct event event;
};

static void on_granted(void *data, fairlock_status status, fairlock_lock *lock)
{
    struct granted *granted = data;
    CHECK_STATUS(FAIRLOCK_OK, status);
    granted->lock = lock;
    event_happens(&granted->event);
}

/* A lock and its queue outlive the active node, which ends in this way. */
static void outlive(fairlock_status (*end)(fairlock_server *))
{
    struct cluster cluster;
    struct granted granted = {NULL, EVENT_INIT};
    fairlock_lock *lock;

    start_cluster(&cluster);
    fairlock_client *client = open_client_at(cluster.list);
    fairlock_client *other = open_client_at(cluster.addresses[2]);
    OK(fairlock_acquire(client, KEY("order:42"), NULL, &lock));
    uint64_t token = fairlock_lock_token(lock);
    OK(fairlock_acquire_async(other, KEY("order:42"), NULL, on_granted, &granted, NULL));
    await_waiting(client, KEY("order:42"), 1);
    await_serving(cluster.addresses[0], NODES - 1);

    OK(end(cluster.nodes[0]));
    await_serving(cluster.addresses[1], NODES - 2);
    CHECK(fairlock_lock_held(lock) == 1);
    CHECK(waiting(client, KEY("order:42")) == 1);
    CHECK(event_times(&granted.event) == 0);
    OK(fairlock_release(lock));
    event_wait(&granted.event, 1);
    CHECK(fairlock_lock_token(granted.lock) > token);
    OK(fairlock_release(granted.lock));

    fairlock_client_close(client);
    fairlock_client_close(other);
    OK(fairlock_server_kill(cluster.nodes[2]));
    OK(fairlock_server_stop(cluster.nodes[1]));
}

static void the_active_node_stops_in_order(void) { outlive(fairlock_server_stop); }

static void the_active_node_is_killed(void) { outlive(fairlock_server_kill); }

static void settings_of_a_cluster_are_checked(void)
{
    static const fairlock_setting cases[][3] = {
        {{"peers", "a:1,b:1"}, {"node", "c:1"}, {NULL, NULL}},
        {{"peers", "a:1,a:1"}, {"node", "a:1"}, {NULL, NULL}},
        {{"peers", "a:1,b:1"}, {NULL, NULL}, {NULL, NULL}},
        {{"node", "a:1"}, {NULL, NULL}, {NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fairlock_server *server;
        CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_server_start(NULL, cases[i], &server));
        CHECK(server == NULL);
    }
    CHECK_STATUS(FAIRLOCK_INVALID_ARGUMENT, fairlock_server_free_address(NULL));
    OK(fairlock_server_kill(NULL));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"the_active_node_stops_in_order", the_active_node_stops_in_order},
        {"the_active_node_is_killed", the_active_node_is_killed},
        {"settings_of_a_cluster_are_checked", settings_of_a_cluster_are_checked},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
