"""A protected resource that checks the token. A lock alone cannot stop a holder that stood still past
the end of its lease and writes on when it wakes. The resource can: it keeps the highest token it has
seen beside what it stores, and refuses a lower one. Here the resource is a row of SQLite."""

import sqlite3
import sys

import fairlock


def write_fenced(resource: sqlite3.Connection, token: int, text: str) -> bool:
    """Writes if the token is not older than the mark in the row: one statement, so nobody can come in between."""
    with resource:
        written = resource.execute(
            "UPDATE resource SET text = ?1, token = ?2 WHERE id = 1 AND token <= ?2",
            # Tokens stay below 2⁶³, so that databases can hold them.
            (text, token),
        )
    if written.rowcount == 1:
        print(f"{text}: written")
    else:
        print(f"{text}: refused, a newer token has been here")
    return written.rowcount == 1


def main() -> int:
    resource = sqlite3.connect(":memory:")
    resource.executescript(
        """
        CREATE TABLE resource (id INTEGER PRIMARY KEY, text TEXT, token INTEGER NOT NULL DEFAULT 0);
        INSERT INTO resource (id) VALUES (1);
        """
    )

    client = fairlock.Client()

    def acquire(who: str, lease: float) -> fairlock.Lock:
        lock = client.acquire("example:resource", lease=lease)
        print(f"{who}: token {lock.token}")
        return lock

    # The slow writer stands still until its lease is over, and the fast one gets the lock.
    slow = acquire("slow writer", lease=0.2)
    fast = acquire("fast writer", lease=30)

    fast_wrote = write_fenced(resource, fast.token, "fast writer")
    slow_wrote = write_fenced(resource, slow.token, "slow writer")
    resource.close()

    fast.release()
    if not slow.release():
        print(f"slow writer: had lost the lock ({slow.lost()})")
    if fast_wrote and not slow_wrote:
        return 0
    print("the fence did not hold")
    return 1


if __name__ == "__main__":
    sys.exit(main())
