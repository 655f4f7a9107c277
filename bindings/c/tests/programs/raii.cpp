// The header in C++: handles in owners of their own, callbacks to lambdas, exceptions of the caller.

#include "check.h"

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Free {
    void operator()(fairlock_client *client) const { fairlock_client_close(client); }
    void operator()(fairlock_lock *lock) const { fairlock_release(lock); }
    void operator()(fairlock_pending *pending) const { fairlock_pending_free(pending); }
    void operator()(fairlock_server *server) const { fairlock_server_stop(server); }
    void operator()(fairlock_fence *fence) const { fairlock_fence_free(fence); }
    void operator()(fairlock_view *view) const { fairlock_view_free(view); }
};

using Client = std::unique_ptr<fairlock_client, Free>;
using Lock = std::unique_ptr<fairlock_lock, Free>;
using Pending = std::unique_ptr<fairlock_pending, Free>;
using Server = std::unique_ptr<fairlock_server, Free>;
using Fence = std::unique_ptr<fairlock_fence, Free>;
using View = std::unique_ptr<fairlock_view, Free>;

struct Error : std::runtime_error {
    fairlock_status status;
    explicit Error(fairlock_status status)
        : std::runtime_error(fairlock_last_error()), status(status)
    {
    }
};

void throw_unless_ok(fairlock_status status)
{
    if (status != FAIRLOCK_OK)
        throw Error(status);
}

Server start()
{
    fairlock_server *server = nullptr;
    throw_unless_ok(fairlock_server_start(nullptr, nullptr, &server));
    return Server(server);
}

Client open(const Server &server)
{
    return Client(open_client(server.get()));
}

Lock acquire(const Client &client, const std::string &key,
             const fairlock_options &options = FAIRLOCK_OPTIONS_INIT)
{
    fairlock_lock *lock = nullptr;
    throw_unless_ok(fairlock_acquire(client.get(), key.data(), key.size(), &options, &lock));
    return Lock(lock);
}

bool is_held(const Client &client, const std::string &key)
{
    fairlock_view *view = nullptr;
    throw_unless_ok(fairlock_inspect(client.get(), key.data(), key.size(), &view));
    View owned(view);
    return fairlock_view_lock(view, 0) != nullptr;
}

// A function as a callback, freed by its only call.
using Answer = std::function<void(fairlock_status, Lock)>;

extern "C" void call_answer(void *data, fairlock_status status, fairlock_lock *lock)
{
    std::unique_ptr<Answer> answer(static_cast<Answer *>(data));
    (*answer)(status, Lock(lock));
}

Pending acquire_async(const Client &client, const std::string &key, Answer answer)
{
    std::unique_ptr<Answer> data(new Answer(std::move(answer)));
    fairlock_pending *pending = nullptr;
    throw_unless_ok(fairlock_acquire_async(client.get(), key.data(), key.size(), nullptr, call_answer,
                                           data.get(), &pending));
    data.release(); // The callback has it now.
    return Pending(pending);
}

void a_scope_releases()
{
    Server server = start();
    Client client = open(server);
    {
        Lock lock = acquire(client, "order:42");
        CHECK(fairlock_lock_token(lock.get()) != 0);
        CHECK(is_held(client, "order:42"));
    }
    CHECK(!is_held(client, "order:42"));
}

void an_exception_releases()
{
    Server server = start();
    Client client = open(server);
    try {
        Lock lock = acquire(client, "order:42");
        throw std::logic_error("the work went wrong");
    } catch (const std::logic_error &error) {
        CHECK_TEXT("the work went wrong", error.what());
    }
    CHECK(!is_held(client, "order:42"));
}

void a_status_becomes_an_exception()
{
    Server server = start();
    Client client = open(server);
    Lock lock = acquire(client, "k");
    fairlock_options options = FAIRLOCK_OPTIONS_INIT;
    options.wait_ms = 20;
    try {
        acquire(client, "k", options);
        CHECK(!"two holders");
    } catch (const Error &error) {
        CHECK(error.status == FAIRLOCK_WAIT_TIMEOUT);
        CHECK(error.what()[0] != '\0');
    }
}

void a_lambda_is_called_back()
{
    Server server = start();
    Client client = open(server);
    std::promise<Lock> promise;
    Pending pending = acquire_async(client, std::string("a\0b", 3), [&](fairlock_status status, Lock lock) {
        CHECK_STATUS(FAIRLOCK_OK, status);
        promise.set_value(std::move(lock));
    });
    Lock lock = promise.get_future().get();
    std::size_t length = 0;
    const char *key = fairlock_lock_key(lock.get(), &length);
    CHECK(std::string(key, length) == std::string("a\0b", 3));
}

void a_cancelled_lambda_is_freed()
{
    Server server = start();
    Client client = open(server);
    Lock lock = acquire(client, "k");
    std::vector<Pending> pending;
    std::atomic<int> cancelled{0};
    for (int i = 0; i < 50; i++)
        pending.push_back(acquire_async(client, "k", [&](fairlock_status status, Lock) {
            CHECK_STATUS(FAIRLOCK_CANCELLED, status);
            cancelled++;
        }));
    for (const Pending &one : pending)
        throw_unless_ok(fairlock_cancel(one.get()));
    client.reset(); // Waits for all of them.
    CHECK(cancelled == 50);
}

void threads_take_turns()
{
    Server server = start();
    Client client = open(server);
    long counter = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int j = 0; j < 25; j++) {
                Lock lock = acquire(client, "counter");
                counter++;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    CHECK(counter == 100);
}

void a_fence_in_an_owner()
{
    Fence fence(fairlock_fence_new());
    throw_unless_ok(fairlock_fence_check(fence.get(), KEY("k"), 2));
    try {
        throw_unless_ok(fairlock_fence_check(fence.get(), KEY("k"), 1));
        CHECK(!"an older token passed");
    } catch (const Error &error) {
        CHECK(error.status == FAIRLOCK_STALE_TOKEN);
    }
}

} // namespace

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"a_scope_releases", a_scope_releases},
        {"an_exception_releases", an_exception_releases},
        {"a_status_becomes_an_exception", a_status_becomes_an_exception},
        {"a_lambda_is_called_back", a_lambda_is_called_back},
        {"a_cancelled_lambda_is_freed", a_cancelled_lambda_is_freed},
        {"threads_take_turns", threads_take_turns},
        {"a_fence_in_an_owner", a_fence_in_an_owner},
        {NULL, NULL},
    };
    return run_tests(tests, argc, argv);
}
