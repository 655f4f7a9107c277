/*
 * The driver in C: does what each line of its standard input says and prints what the caller got. It
 * decides nothing about locks; the drivers in the other languages read the same lines and print the same.
 *
 * Calls block a thread each; those that the play ends from outside are started with a callback, because only they
 * can be cancelled, and only they may be under way when their client is closed.
 */
#define _POSIX_C_SOURCE 200809L

#include <fairlock.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS = 32, WORDS = 24 };

struct play;

/* One operation of a play: the lock it ended with, and how to cancel it. */
struct operation {
    struct play *play;
    char name[8];
    fairlock_lock *lock;
    fairlock_pending *pending;
    int given_up;
};

struct play {
    char number[24];
    fairlock_client *client;
    fairlock_fence *fence;
    /* Commands under way on threads that use the client. */
    int blocking;
    struct operation operations[OPERATIONS];
    int count;
    struct play *next;
};

/* A command: `play verb op argument…`. The words point into the line. */
struct command {
    struct play *play;
    struct operation *operation;
    char *line;
    char *words[WORDS];
    int count;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void say(const struct operation *operation, const char *text) {
    /* One call of stdio is one line, whatever thread it comes from. */
    printf("%s %s %s\n", operation->play->number, operation->name, text);
}

static void say_status(const struct operation *operation, fairlock_status status, const char *reason) {
    char text[128];
    switch (status) {
    case FAIRLOCK_WAIT_TIMEOUT: say(operation, "error wait_timeout"); return;
    case FAIRLOCK_CONNECTION_FAILED: say(operation, "error connection_failed"); return;
    case FAIRLOCK_INVALID_ARGUMENT: say(operation, "error invalid_argument"); return;
    case FAIRLOCK_REFUSED:
        snprintf(text, sizeof text, "error refused %s", reason);
        say(operation, text);
        return;
    case FAIRLOCK_LOCK_LOST:
        snprintf(text, sizeof text, "error lock_lost %s", reason);
        say(operation, text);
        return;
    case FAIRLOCK_RELEASE_UNCONFIRMED: say(operation, "error release_unconfirmed"); return;
    case FAIRLOCK_STALE_TOKEN: say(operation, "error stale_token"); return;
    case FAIRLOCK_CLOSED: say(operation, "error closed"); return;
    case FAIRLOCK_FORKED: say(operation, "error forked"); return;
    case FAIRLOCK_CANCELLED: say(operation, "error cancelled"); return;
    default:
        snprintf(text, sizeof text, "error %s", fairlock_status_string(status));
        say(operation, text);
    }
}

static int digit(char c) {
    return c <= '9' ? c - '0' : c - 'A' + 10;
}

/* Turns %XX back, in place; returns the length. */
static size_t decode(char *text) {
    char *to = text;
    for (const char *from = text; *from != 0; from++) {
        if (*from == '%') {
            *to++ = (char)(digit(from[1]) << 4 | digit(from[2]));
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
    return (size_t)(to - text);
}

static void encode(const char *key, size_t length, char *to) {
    for (size_t at = 0; at < length; at++) {
        unsigned char byte = (unsigned char)key[at];
        if (byte <= 0x20 || byte == 0x7F || byte == '%') {
            to += sprintf(to, "%%%02X", byte);
        } else {
            *to++ = (char)byte;
        }
    }
    *to = 0;
}

static const char *option(const struct command *command, const char *name) {
    size_t length = strlen(name);
    for (int at = 2; at < command->count; at++) {
        const char *word = command->words[at];
        if (strncmp(word, name, length) == 0 && word[length] == '=') return word + length + 1;
    }
    return NULL;
}

static uint64_t milliseconds(const struct command *command, const char *name, uint64_t otherwise) {
    const char *text = option(command, name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static int says(const struct command *command, const char *flag) {
    for (int at = 2; at < command->count; at++) {
        if (strcmp(command->words[at], flag) == 0) return 1;
    }
    return 0;
}

/* The operation of this name; a new one if there is none yet. */
static struct operation *operation_of(struct play *play, const char *name) {
    pthread_mutex_lock(&mutex);
    struct operation *found = NULL;
    for (int at = 0; at < play->count; at++) {
        if (strcmp(play->operations[at].name, name) == 0) found = &play->operations[at];
    }
    if (found == NULL && play->count < OPERATIONS) {
        found = &play->operations[play->count++];
        found->play = play;
        snprintf(found->name, sizeof found->name, "%s", name);
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

static void on_lost(void *data, fairlock_lost_reason reason) {
    static const char *const words[] = {"", "lost expired", "lost taken", "lost unconfirmed", "lost closed"};
    say(data, words[reason]);
}

static void acquired(void *data, fairlock_status status, fairlock_lock *lock) {
    struct operation *operation = data;
    if (status != FAIRLOCK_OK) {
        say_status(operation, status, fairlock_last_reason());
    } else if (lock == NULL) {
        say(operation, "none");
    } else {
        size_t length;
        const char *key = fairlock_lock_key(lock, &length);
        char spelling[3 * 512 + 1], text[sizeof spelling + 40];
        encode(key, length, spelling);
        snprintf(text, sizeof text, "granted %s %llu", spelling, (unsigned long long)fairlock_lock_token(lock));
        pthread_mutex_lock(&mutex);
        operation->lock = lock;
        pthread_mutex_unlock(&mutex);
        say(operation, text);
    }
}

static void released(struct operation *operation, fairlock_status status, const char *reason) {
    if (operation->given_up) return;
    if (status == FAIRLOCK_OK) say(operation, "released true");
    else if (status == FAIRLOCK_LOCK_LOST) say(operation, "released false");
    else say_status(operation, status, reason);
}

static void released_later(void *data, fairlock_status status) {
    released(data, status, fairlock_last_reason());
}

/* The lock of the operation that the command names. Who frees it takes it. */
static fairlock_lock *lock_of(const struct command *command, int take) {
    struct operation *owner = operation_of(command->play, command->words[2]);
    pthread_mutex_lock(&mutex);
    fairlock_lock *lock = owner->lock;
    if (take) owner->lock = NULL;
    pthread_mutex_unlock(&mutex);
    return lock;
}

static void acquire(struct command *command, int is_try) {
    struct operation *operation = command->operation;
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    options.lease_ms = milliseconds(command, "lease", options.lease_ms);
    options.wait_ms = milliseconds(command, "wait", 0);
    options.max_hold_ms = milliseconds(command, "max_hold", 0);
    options.keep_alive = says(command, "keep_alive");
    options.on_lost = on_lost;
    options.on_lost_data = operation;
    int cancellable = says(command, "cancellable");
    char *key = command->words[2];
    size_t length = decode(key);
    fairlock_client *client = command->play->client;
    fairlock_lock *lock = NULL;
    fairlock_status status;
    if (cancellable) {
        status = is_try ? fairlock_try_acquire_async(client, key, length, &options, acquired, operation, &operation->pending)
                        : fairlock_acquire_async(client, key, length, &options, acquired, operation, &operation->pending);
        if (status != FAIRLOCK_OK) say_status(operation, status, fairlock_last_reason());
        return;
    }
    status = is_try ? fairlock_try_acquire(client, key, length, &options, &lock)
                    : fairlock_acquire(client, key, length, &options, &lock);
    acquired(operation, status, lock);
}

static void open_client(struct command *command) {
    fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;
    const char *listed = option(command, "follow_moves");
    char *name = (char *)option(command, "name");
    char *secret = (char *)option(command, "secret");
    if (name != NULL) decode(name);
    if (secret != NULL) decode(secret);
    options.name = name;
    options.secret = secret;
    options.connect_timeout_ms = milliseconds(command, "connect_timeout", options.connect_timeout_ms);
    options.retry_for_ms = milliseconds(command, "retry_for", 0);
    if (listed != NULL && strcmp(listed, "listed") == 0) options.follow_moves = FAIRLOCK_FOLLOW_LISTED;
    fairlock_status status = fairlock_client_open(option(command, "servers"), &options, &command->play->client);
    if (status == FAIRLOCK_OK) say(command->operation, "open");
    else say_status(command->operation, status, fairlock_last_reason());
}

/* One command, on a thread where it may block. */
static void obey(struct command *command) {
    struct operation *operation = command->operation;
    const char *verb = command->words[0];
    char text[64];
    if (strcmp(verb, "open") == 0) {
        open_client(command);
    } else if (strcmp(verb, "acquire") == 0) {
        acquire(command, 0);
    } else if (strcmp(verb, "try") == 0) {
        acquire(command, 1);
    } else if (strcmp(verb, "release") == 0) {
        if (says(command, "cancellable")) {
            fairlock_release_async(lock_of(command, 1), released_later, operation);
        } else {
            fairlock_status status = fairlock_release(lock_of(command, 1));
            released(operation, status, fairlock_last_reason());
        }
    } else if (strcmp(verb, "keep") == 0) {
        fairlock_status status = fairlock_lock_keep(lock_of(command, 0), milliseconds(command, "lease", 0));
        if (status == FAIRLOCK_OK) say(operation, "kept");
        else say_status(operation, status, fairlock_last_reason());
    } else if (strcmp(verb, "remaining") == 0) {
        uint64_t remaining = fairlock_lock_remaining_ms(lock_of(command, 0));
        snprintf(text, sizeof text, "remaining %llu", (unsigned long long)remaining);
        say(operation, text);
    } else if (strcmp(verb, "held") == 0) {
        say(operation, fairlock_lock_held(lock_of(command, 0)) ? "held true" : "held false");
    } else if (strcmp(verb, "leave") == 0) {
        fairlock_release(lock_of(command, 1));
        say(operation, "left");
    } else if (strcmp(verb, "fail") == 0) {
        /* No scopes here: whoever cleans up ignores what the release says and goes on with the first error. */
        fairlock_release(lock_of(command, 1));
        say(operation, "failed body");
    } else if (strcmp(verb, "fence") == 0) {
        char *key = command->words[2];
        size_t length = decode(key);
        uint64_t token = strtoull(command->words[3], NULL, 10);
        fairlock_status status = fairlock_fence_check(command->play->fence, key, length, token);
        if (status == FAIRLOCK_OK) say(operation, "passed");
        else say_status(operation, status, fairlock_last_reason());
    } else if (strcmp(verb, "close") == 0) {
        fairlock_client *client = command->play->client;
        command->play->client = NULL;
        fairlock_client_close(client);
        say(operation, "closed");
    } else {
        say(operation, "unknown verb");
    }
}

static void *obey_on_thread(void *data) {
    struct command *command = data;
    struct play *play = command->play;
    obey(command);
    free(command->line);
    free(command);
    pthread_mutex_lock(&mutex);
    play->blocking--;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* What the caller may do while other operations of the play are under way. */
static void cancel(struct operation *operation) {
    if (operation->pending != NULL) {
        fairlock_cancel(operation->pending);
    } else {
        /* A release cannot be given up here; a caller can only stop to wait for it. */
        operation->given_up = 1;
        say(operation, "error cancelled");
    }
}

static void *close_on_thread(void *client) {
    fairlock_client_close(client);
    return NULL;
}

static void end(struct play *play) {
    /* Operations may still be under way and tell the play what became of them, so it stays in memory. */
    for (int at = 0; at < play->count; at++) {
        fairlock_pending_free(play->operations[at].pending);
        play->operations[at].pending = NULL;
    }
    pthread_mutex_lock(&mutex);
    fairlock_client *client = play->blocking == 0 ? play->client : NULL;
    play->client = NULL;
    pthread_mutex_unlock(&mutex);
    /* Closed, so that it does not go on connecting to a server that is gone; that takes up to a second. */
    pthread_t thread;
    if (client != NULL && pthread_create(&thread, NULL, close_on_thread, client) == 0) pthread_detach(thread);
}

int main(void) {
    struct play *plays = NULL;
    char *line = NULL;
    size_t size = 0;
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    puts("ready");
    while (getline(&line, &size, stdin) > 0) {
        struct command *command = calloc(1, sizeof *command);
        command->line = strdup(line);
        char *rest = NULL;
        char *number = strtok_r(command->line, " \n", &rest);
        for (char *word = strtok_r(NULL, " \n", &rest); word != NULL && command->count < WORDS;
             word = strtok_r(NULL, " \n", &rest)) {
            command->words[command->count++] = word;
        }
        struct play *play = plays;
        while (play != NULL && strcmp(play->number, number) != 0) play = play->next;
        if (play == NULL) {
            play = calloc(1, sizeof *play);
            snprintf(play->number, sizeof play->number, "%s", number);
            play->fence = fairlock_fence_new();
            play->next = plays;
            plays = play;
        }
        command->play = play;
        const char *verb = command->words[0];
        if (strcmp(verb, "end") == 0) {
            end(play);
        } else {
            command->operation = operation_of(play, command->words[1]);
        }
        int blocks = strcmp(verb, "end") != 0 && strcmp(verb, "cancel") != 0 && strcmp(verb, "open") != 0 &&
                     !says(command, "cancellable");
        pthread_t thread;
        pthread_mutex_lock(&mutex);
        play->blocking += blocks;
        pthread_mutex_unlock(&mutex);
        if (blocks && pthread_create(&thread, NULL, obey_on_thread, command) == 0) {
            pthread_detach(thread);
            continue;
        }
        if (strcmp(verb, "cancel") == 0) cancel(command->operation);
        else if (strcmp(verb, "end") != 0) obey(command);
        free(command->line);
        free(command);
    }
    free(line);
    return 0;
}
