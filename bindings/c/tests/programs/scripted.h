/* A server that does what a test wants and what no real one would do on demand. */

#ifndef SCRIPTED_H
#define SCRIPTED_H

#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

enum { SCRIPTED_CONNECTIONS = 16, SCRIPTED_LINE = 4096 };

/* Answers one request, given as its letter, key, and tag with a space before it, or as "". */
typedef void (*scripted_answer)(FILE *out, char op, const char *key, const char *tag);

struct scripted {
    scripted_answer answer;
    char address[32];
    int listener, stop[2];
    pthread_t thread;
};

static inline void scripted_line(struct scripted *server, FILE *out, char *line)
{
    char *tag = strrchr(line, '#'), *key = strchr(line, ' ');
    char no_tag[] = "";
    if (tag != NULL && tag > line)
        tag[-1] = '\0';
    else
        tag = no_tag;
    if (line[0] == 'H') {
        fprintf(out, "H 1 role=active node=%s active=%s peers=%s server=scripted\n", server->address,
                server->address, server->address);
    } else if (line[0] == 'P') {
        fprintf(out, "P%s%s\n", *tag ? " " : "", tag);
    } else if (key != NULL) {
        char *end = strchr(key + 1, ' ');
        if (end != NULL)
            *end = '\0';
        server->answer(out, line[0], key + 1, tag);
    }
    fflush(out);
}

static inline void *scripted_run(void *data)
{
    struct scripted *server = data;
    struct pollfd polled[2 + SCRIPTED_CONNECTIONS];
    FILE *in[2 + SCRIPTED_CONNECTIONS], *out[2 + SCRIPTED_CONNECTIONS];
    nfds_t count = 2;
    sigset_t broken;
    /* A client that is gone is no reason to die; other threads keep the default, on purpose. */
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, NULL);
    polled[0].fd = server->stop[0];
    polled[1].fd = server->listener;
    polled[0].events = polled[1].events = POLLIN;
    for (;;) {
        CHECK(poll(polled, count, -1) > 0 || errno == EINTR);
        if (polled[0].revents != 0)
            break;
        if (polled[1].revents != 0 && count < 2 + SCRIPTED_CONNECTIONS) {
            int connection = accept(server->listener, NULL, NULL);
            CHECK(connection >= 0);
            polled[count].fd = connection;
            polled[count].events = POLLIN;
            polled[count].revents = 0;
            in[count] = fdopen(connection, "r");
            out[count] = fdopen(dup(connection), "w");
            setvbuf(in[count], NULL, _IONBF, 0);
            count += 1;
        }
        for (nfds_t i = 2; i < count; i++) {
            char line[SCRIPTED_LINE];
            if (polled[i].revents == 0)
                continue;
            if (fgets(line, sizeof line, in[i]) == NULL) {
                polled[i].fd = -1; /* The client is gone; poll leaves it out. */
                polled[i].revents = 0;
                continue;
            }
            line[strcspn(line, "\n")] = '\0';
            scripted_line(server, out[i], line);
        }
    }
    for (nfds_t i = 2; i < count; i++) {
        fclose(in[i]);
        fclose(out[i]);
    }
    return NULL;
}

static inline void scripted_start(struct scripted *server, scripted_answer answer)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->answer = answer;
    server->listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(server->listener >= 0 && pipe(server->stop) == 0);
    CHECK(bind(server->listener, (struct sockaddr *)&address, length) == 0);
    CHECK(listen(server->listener, 16) == 0);
    CHECK(getsockname(server->listener, (struct sockaddr *)&address, &length) == 0);
    snprintf(server->address, sizeof server->address, "127.0.0.1:%d", ntohs(address.sin_port));
    CHECK(pthread_create(&server->thread, NULL, scripted_run, server) == 0);
}

static inline void scripted_stop(struct scripted *server)
{
    CHECK(write(server->stop[1], "x", 1) == 1);
    pthread_join(server->thread, NULL);
    close(server->listener);
    close(server->stop[0]);
    close(server->stop[1]);
}

#endif
