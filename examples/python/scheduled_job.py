"""A scheduled job that must run once: the same schedule wakes three workers, as it would on three
machines. Each takes the lock; the first one runs the job and leaves a note that it has; the others
find the note. A worker that dies on the way leaves no note, and the next one runs the job."""

import threading

import fairlock

# Stands for a row in the database, or a file beside the report. Only the holder touches it.
runs = 0


def worker() -> None:
    global runs
    # However long the job takes.
    with fairlock.Client() as client, client.lock("example:nightly-report", lease=10, keep_alive=True):
        if runs > 0:
            print("nightly report: has run already, nothing to do")
        else:
            print("nightly report: running it")
            runs += 1


def main() -> None:
    workers = [threading.Thread(target=worker) for _ in range(3)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    print(f"runs: {runs}")


if __name__ == "__main__":
    main()
