"""Leader election: who holds the lock leads, and keep-alive holds it for as long as the leader lives.
A leader that loses the lock is told before anybody else can have it, and stops leading."""

import asyncio

import fairlock

# How long nobody leads if the leader dies.
LEASE = 1.0


async def campaign(name: str, term: float, elected: asyncio.Event) -> None:
    """Stands for election and leads for `term`, or until the lead is lost. `elected` is told in between."""
    async with fairlock.AsyncClient() as client:
        async with client.lock("example:leader", lease=LEASE, keep_alive=True) as lock:
            print(f"{name} leads")
            elected.set()

            leading = asyncio.create_task(lead(term))
            lost = asyncio.create_task(lock.lost())
            await asyncio.wait([leading, lost], return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                leading.cancel()
                print(f"{name} has lost the lead: {lost.result()}")
                return
            if term > LEASE:
                print(f"{name} still leads after more than a lease")
            print(f"{name} steps down")
        # The next in line leads at once.
        await lost


async def lead(term: float) -> None:
    """What only a leader does."""
    await asyncio.sleep(term)


async def main() -> None:
    alpha_leads = asyncio.Event()

    async def beta() -> None:
        # So that alpha is the first in line.
        await alpha_leads.wait()
        await campaign("beta", 0.05, asyncio.Event())

    await asyncio.gather(campaign("alpha", 1.25, alpha_leads), beta())


if __name__ == "__main__":
    asyncio.run(main())
