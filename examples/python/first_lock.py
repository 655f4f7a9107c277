"""A first lock: take it, do the work with its token, let it go."""

import sys

import fairlock

KEY = "example:order:42"


def main() -> int:
    # The servers of FAIRLOCK_SERVERS, or 127.0.0.1:7420; `fairlock.Client("…")` names others.
    client = fairlock.Client()
    try:
        # If this process dies, others wait no longer than the lease.
        with client.lock(KEY, lease=30, wait=5) as lock:
            # What is protected should be given the token, so that it can refuse an older one.
            print(f"holding {KEY}, token {lock.token}")
    except fairlock.WaitTimeout:
        print(f"somebody else holds {KEY}")
        return 1
    print(f"released {KEY}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
