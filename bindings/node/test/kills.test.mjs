// Goal: a server that dies, and one that comes back, are what the README says to those who wait, hold and ask.
// Method: the real binary (FAIRLOCK_BIN) in a process of its own, killed.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import test from 'node:test'
import { clientOf, eventually, newKey, rejection, waitersOf } from './support.mjs'

const skip = process.env.FAIRLOCK_BIN ? false : 'FAIRLOCK_BIN does not name the server'

async function start (t, listen = '127.0.0.1:0') {
  const child = spawn(process.env.FAIRLOCK_BIN, ['--listen', listen, '--ephemeral'], { stdio: ['ignore', 'pipe', 'ignore'] })
  t.after(() => child.kill('SIGKILL'))
  for await (const line of createInterface({ input: child.stdout })) {
    const address = /^listening on (\S+)/.exec(line)?.[1]
    if (address) return { address, kill: () => { child.kill('SIGKILL'); return once(child, 'exit') } }
  }
  assert.fail('the server ended before it listened')
}

test('killed: who waits is told, who holds is told in time, and a new one serves the same client', { skip }, async (t) => {
  const first = await start(t)
  const client = clientOf(t, first, { connectTimeoutMs: 300 })
  const key = newKey()
  const lock = await client.acquire(key, { leaseMs: 2_000, keepAlive: true })
  const { lostSignal } = lock
  let lostAt
  lostSignal.addEventListener('abort', () => { lostAt = performance.now() })
  const waiting = rejection(client.acquire(key))
  await eventually(async () => await waitersOf(client, key) === 1)
  const begun = performance.now()
  await first.kill()
  assert.equal((await waiting).code, 'ERR_CONNECTION_FAILED')
  assert.equal((await rejection(client.tryAcquire(key))).code, 'ERR_CONNECTION_FAILED')
  await eventually(() => lostSignal.aborted)
  assert.ok(lostAt - begun < 3_000, `told after ${lostAt - begun} ms`)
  assert.match(lostSignal.reason.reason, /^(unconfirmed|expired)$/)
  assert.equal(lock.held, false)

  await start(t, first.address)
  const again = await eventually(() => client.tryAcquire(key).catch(() => null))
  assert.ok(again.token > lock.token, 'tokens rise over restarts')
  assert.equal(await again.release(), true)
  assert.equal(await lock.release(), false)
})

test('retryForMs: an acquire outlives a restart', { skip }, async (t) => {
  const first = await start(t)
  const client = clientOf(t, first, { connectTimeoutMs: 300, retryForMs: 20_000 })
  await client.withLock(newKey(), () => {})
  await first.kill()
  const waiting = client.acquire(newKey())
  await start(t, first.address)
  await (await waiting).release()
})
