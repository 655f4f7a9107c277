// Goal: memory stays flat, whatever is done over and over.
// Method: the same work in two halves; what is resident after the second must not be much more than after the first.

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

async function flat (t, half, slack) {
  await half()
  await half()
  const before = await resident()
  await half()
  const after = await resident()
  t.diagnostic(`${Math.round(before / 1024)} KiB, then ${Math.round(after / 1024)} KiB`)
  assert.ok(after - before < slack, `grew by ${Math.round((after - before) / 1024)} KiB`)
}

async function many (count, one, together = 64) {
  let begun = 0
  await Promise.all(Array.from({ length: together }, async () => {
    while (begun < count) await one(begun++)
  }))
}

test(`${3 * pairs} acquire-release pairs`, async (t) => {
  const client = clientOf(t, server)
  const prefix = newKey()
  await flat(t, () => many(pairs, async (at) => {
    const lock = await client.acquire(`${prefix}/${at}`)
    if (at % 7 === 0) lock.lostSignal.addEventListener('abort', () => lock)
    await lock.release()
  }), 6 << 20)
})

test('aborted and timed-out acquires with one long-lived signal', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const forever = new AbortController()
  await client.withLock(key, { keepAlive: true }, async () => {
    await flat(t, () => many(600, async (at) => {
      const signal = AbortSignal.any([forever.signal, AbortSignal.timeout(1)])
      await rejection(client.acquire(key, at % 2 ? { signal } : { waitMs: 1, signal: forever.signal }))
    }), 6 << 20)
    await eventually(async () => await waitersOf(client, key) === 0)
  })
})

test('clients made and closed', async (t) => {
  await flat(t, () => many(150, async () => {
    const client = clientOf({ after () {} }, server)
    await client.withLock(newKey(), () => {})
    await client.close()
  }, 8), 6 << 20)
  const client = clientOf(t, server)
  await eventually(async () => (await client.status()).connections < 10)
})
