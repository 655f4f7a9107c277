// Leader election: who holds the lock leads, and keep-alive holds it for as long as the leader lives.
// A leader that loses the lock is told before anybody else can have it, and stops leading.

import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'fairlock'

/** How long nobody leads if the leader dies. */
const leaseMs = 1_000

/** Stands for election and leads for `termMs`, or until the lead is lost. `elected` is called in between. */
async function campaign (name, termMs, elected = () => {}) {
  const client = new Client()
  const lock = await client.acquire('example:leader', { leaseMs, keepAlive: true })
  console.log(`${name} leads`)
  elected()
  try {
    await lead(termMs, lock.lostSignal)
    if (termMs > leaseMs) console.log(`${name} still leads after more than a lease`)
    console.log(`${name} steps down`)
  } catch (error) {
    if (!lock.lostSignal.aborted) throw error
    console.log(`${name} has lost the lead: ${lock.lostSignal.reason.reason}`)
  } finally {
    await lock.release() // The next in line leads at once.
    await client.close()
  }
}

/** What only a leader does, until the signal says that it is none. */
async function lead (termMs, signal) {
  await sleep(termMs, undefined, { signal })
}

let beta
await campaign('alpha', 1_250, () => { beta = campaign('beta', 50) })
await beta
