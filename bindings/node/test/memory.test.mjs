// Goal: memory stays flat, whatever is done over and over.
// Method: the same work over and over; what leaks makes every round grow, while the allocators' own
// moods pass, so one round that grows hardly at all is the proof.

import assert from 'node:assert/strict'
import test from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { clientOf, eventually, newKey, node, rejection, waitersOf } from './support.mjs'

const server = await node()
const pairs = Number(process.env.FAIRLOCK_TEST_PAIRS ?? 20_000)
setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc')

async function resident () {
  for (let round = 0; round < 3; round++) {
    collectGarbage()
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  return process.memoryUsage().rss
}

async function flat (t, work, slack) {
  await work()
  await work()
  let before = await resident()
  let least = Infinity
  for (let round = 0; round < 4 && least >= slack; round++) {
    await work()
    const after = await resident()
    t.diagnostic(`${Math.round(before / 1024)} KiB, then ${Math.round(after / 1024)} KiB`)
    least = Math.min(least, after - before)
    before = after
  }
  assert.ok(least < slack, `grew by at least ${Math.round(least / 1024)} KiB each time`)
}

async function many (count, one, together = 64) {
  let begun = 0
  await Promise.all(Array.from({ length: together }, async () => {
    while (begun < count) await one(begun++)
  }))
}

test(`acquire-release pairs, ${pairs} a round`, async (t) => {
  const client = clientOf(t, server)
  const prefix = newKey()
  await flat(t, () => many(pairs, async (at) => {
    const lock = await client.acquire(`${prefix}/${at}`)
    if (at % 7 === 0) lock.lostSignal.addEventListener('abort', () => lock)
    await lock.release()
  }), 3 << 20)
})

test('aborted and timed-out acquires with one long-lived signal', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const forever = new AbortController()
  await client.withLock(key, { keepAlive: true }, async () => {
    await flat(t, () => many(600, async (at) => {
      const signal = AbortSignal.any([forever.signal, AbortSignal.timeout(1)])
      await rejection(client.acquire(key, at % 2 ? { signal } : { waitMs: 1, signal: forever.signal }))
    }), 3 << 20)
    await eventually(async () => await waitersOf(client, key) === 0)
  })
})

test('clients made and closed', async (t) => {
  await flat(t, () => many(150, async () => {
    const client = clientOf({ after () {} }, server)
    await client.withLock(newKey(), () => {})
    await client.close()
  }, 8), 3 << 20)
  const client = clientOf(t, server)
  await eventually(async () => (await client.status()).connections < 10)
})
