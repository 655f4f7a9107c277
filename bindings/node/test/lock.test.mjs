// Goal: locks do what the README says: fairness, leases, renewals, losses told once, scopes, collection.
// Method: two clients and a node in this process; waits are for events.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import test from 'node:test'
import { inspect } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Worker } from 'node:worker_threads'
import { Client, Lock, LockLost } from '../index.mjs'
import { clientOf, eventually, newKey, node, packageFolder, rejection, scripted, sleep, waitersOf } from './support.mjs'

const server = await node()
setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc')

test('acquire, look, release', async (t) => {
  const client = clientOf(t, server, { name: 'the tester' })
  const key = newKey()
  const lock = await client.acquire(key, { leaseMs: 20_000 })
  assert.ok(lock instanceof Lock)
  assert.equal(lock.key, key)
  assert.equal(typeof lock.token, 'bigint')
  assert.equal(lock.leaseMs, 20_000)
  assert.ok(lock.remainingMs > 15_000 && lock.remainingMs <= 20_000)
  assert.equal(lock.held, true)
  const state = await client.inspect(key)
  assert.deepEqual({ ...state, remainingMs: 0, address: '' },
    { held: true, waiters: 0, token: lock.token, remainingMs: 0, name: 'the tester', address: '' })
  assert.ok(state.remainingMs > 15_000 && state.remainingMs <= 20_000)
  assert.equal(await lock.release(), true)
  assert.equal(lock.held, false)
  assert.equal(lock.remainingMs, 0)
  assert.equal(await lock.release(), true, 'released is released')
  assert.deepEqual(await client.inspect(key), { held: false, waiters: 0, token: null, remainingMs: null, name: null, address: null })
})

test('a released lock stays what it was, and has nothing to do with locks that come later', async (t) => {
  const client = clientOf(t, server)
  const first = await client.acquire(newKey())
  const other = await client.acquire(newKey(), { leaseMs: 20_000 })
  const kept = await client.acquire(newKey())
  await kept.keep({ leaseMs: 40_000 })
  const leases = [first, other, kept].map((lock) => lock.leaseMs)
  assert.deepEqual(leases, [30_000, 20_000, 40_000])
  const { token } = first
  // Two at once, and one later.
  assert.deepEqual(await Promise.all([first.release(), first.release(), other.release(), kept.release()]), [true, true, true, true])
  const later = await Promise.all(Array.from({ length: 5 }, () => client.acquire(newKey())))
  assert.equal(await first.release(), true)
  assert.equal((await rejection(first.keep())).name, 'RangeError')
  assert.deepEqual([first.held, first.remainingMs, first.token], [false, 0, token])
  assert.deepEqual([first, other, kept].map((lock) => lock.leaseMs), leases)
  assert.equal(first.lostSignal.aborted, false)
  for (const lock of later) assert.equal(lock.held, true)
  for (const lock of later) assert.equal(await lock.release(), true)
})

test('more is granted in one turn than is handed over at a time', async (t) => {
  const client = clientOf(t, server)
  const prefix = newKey()
  const locks = await Promise.all(Array.from({ length: 1_000 }, (_, at) => client.acquire(`${prefix}/${at}`)))
  const tokens = new Set(locks.map((lock) => lock.token))
  assert.equal(tokens.size, 1_000)
  for (const lock of locks) assert.equal((await client.inspect(lock.key)).token, lock.token)
  assert.deepEqual(new Set(await Promise.all(locks.map((lock) => lock.release()))), new Set([true]))
})

test('a lease that somebody tries to change while the lock is being released stays the lease', async (t) => {
  const client = clientOf(t, server)
  const lock = await client.acquire(newKey(), { leaseMs: 20_000 })
  const released = lock.release()
  assert.equal((await rejection(lock.keep({ leaseMs: 50_000 }))).name, 'RangeError')
  assert.equal(await released, true)
  assert.equal(lock.leaseMs, 20_000)
})

test('console.log shows what a lock and a client are, and no secret', async (t) => {
  const client = clientOf(t, server, { name: 'me', secret: 'sesame' })
  const plain = clientOf(t, server)
  const lock = await plain.acquire('order:42')
  assert.equal(inspect(lock), `Lock { key: 'order:42', token: ${lock.token}n, held: true }`)
  await lock.release()
  assert.equal(inspect(lock), `Lock { key: 'order:42', token: ${lock.token}n, held: false }`)
  assert.equal(inspect(client), `Client { servers: '${server.address}', name: 'me', closed: false }`)
  await client.close()
  assert.equal(inspect(client), `Client { servers: '${server.address}', name: 'me', closed: true }`)
  assert.equal(inspect({ one: { lock } }, { breakLength: Infinity }), `{ one: { lock: Lock { key: 'order:42', token: ${lock.token}n, held: false } } }`)
  assert.equal(inspect([[lock]], { depth: 1 }), '[ [ [Lock] ] ]')
})

test('tokens are exact and rise', async (t) => {
  const client = clientOf(t, server)
  let last = 0n
  for (let round = 0; round < 20; round++) {
    const lock = await client.acquire(newKey())
    assert.ok(lock.token > last)
    assert.ok(lock.token > 2n ** 53n, 'beyond what a number holds')
    last = lock.token
    await lock.release()
  }
})

test('first come, first served', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const first = await client.acquire(key)
  const order = []
  const calls = []
  for (let place = 1; place <= 10; place++) {
    calls.push(client.withLock(key, (lock) => { order.push(place) }))
    await eventually(async () => await waitersOf(client, key) === place)
  }
  const queue = await client.waiters(key, { limit: 3 })
  assert.equal(queue.count, 10)
  assert.deepEqual(queue.first.map((waiter) => waiter.position), [1, 2, 3])
  assert.ok(queue.first[0].waitedMs >= queue.first[2].waitedMs)
  await first.release()
  await Promise.all(calls)
  assert.deepEqual(order, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
})

test('lists have a thousand rows at most where nobody says how many', async (t) => {
  const operator = await scripted(t, ([operation, key], say) => {
    if (operation === 'W' || operation === 'L') say(`${operation} ${key} 0`)
  })
  const client = clientOf(t, operator)
  await client.waiters('k')
  await client.waiters('k', { limit: 5 })
  await client.locks()
  const asked = operator.lines.filter((line) => 'WL'.includes(line[0])).map((line) => line.replace(/ #.*/, ''))
  assert.deepEqual(asked, ['W k 1000', 'W k 5', 'L - 1000'])
})

test('tryAcquire: null if somebody else has it, whoever that is', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.tryAcquire(key)
  assert.equal(await client.tryAcquire(key), null)
  assert.equal(await clientOf(t, server).tryAcquire(key), null)
  assert.equal(await waitersOf(client, key), 0)
  await lock.release()
  await (await client.tryAcquire(key)).release()
})

test('withLock: gives what the body gave, releases always, hides no error of the body', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  assert.equal(await client.withLock(key, async (lock) => { assert.equal(lock.held, true); return 7 }), 7)
  assert.equal(await client.withLock(key, { leaseMs: 1_000 }, () => 'sync'), 'sync')
  assert.equal(await client.withLock(key, undefined, () => null), null)
  const oops = new Error('oops')
  assert.equal(await rejection(client.withLock(key, async () => { throw oops })), oops)
  assert.equal(await rejection(client.withLock(key, () => { throw oops })), oops)
  assert.equal(await rejection(client.withLock(key, async (lock) => { await client.release(key, lock.token); throw oops })), oops)
  assert.equal(await client.withLock(key, async (lock) => { await lock.release(); return 1 }), 1)
  assert.equal((await client.inspect(key)).held, false)
})

test('Symbol.asyncDispose releases and closes', async (t) => {
  const client = new Client(server.address)
  const key = newKey()
  const lock = await client.acquire(key)
  await lock[Symbol.asyncDispose]()
  assert.equal((await client.inspect(key)).held, false)
  await lock[Symbol.asyncDispose]()
  await client[Symbol.asyncDispose]()
  assert.equal((await rejection(client.acquire(key))).code, 'ERR_CLOSED')
})

test('Client.connect: as soon as there is a connection', async (t) => {
  const client = await Client.connect([server.address, server.address])
  t.after(() => client.close())
  assert.equal((await client.status()).role, 'active')
  const status = await client.status()
  assert.equal(status.node, server.address)
  assert.deepEqual(status.standbys, [])
  assert.deepEqual(status.peers, [status.node])
})

test('operators see and release locks of others, page by page', async (t) => {
  const holder = clientOf(t, server, { name: 'holder' })
  const operator = clientOf(t, server)
  const prefix = `${newKey()}/`
  const locks = []
  for (let at = 0; at < 7; at++) locks.push(await holder.acquire(`${prefix}${at}`))
  const seen = []
  let after
  do {
    const page = await operator.locks({ prefix, after, limit: 3 })
    assert.ok(page.locks.length <= 3)
    seen.push(...page.locks)
    after = page.next ?? undefined
  } while (after !== undefined)
  assert.deepEqual(seen.map((lock) => [lock.key, lock.token, lock.name]).sort(), locks.map((lock) => [lock.key, lock.token, 'holder']).sort())
  for (const { key, token } of seen) assert.equal(await operator.keep(key, token, { leaseMs: 60_000 }), true)
  for (const { key, token } of seen) assert.equal(await operator.release(key, token), true)
  assert.equal(await operator.release(seen[0].key, seen[0].token), false)
  assert.equal(await operator.keep(seen[0].key, seen[0].token), false)
  for (const lock of locks) assert.equal(await lock.release(), false)
})

test('keep: the lease begins anew', async (t) => {
  const client = clientOf(t, server)
  const lock = await client.acquire(newKey(), { leaseMs: 1_000 })
  await sleep(100)
  assert.ok(lock.remainingMs <= 900)
  await lock.keep()
  assert.ok(lock.remainingMs > 900)
  await lock.keep({ leaseMs: 50_000 })
  assert.ok(lock.remainingMs > 45_000)
  for (const leaseMs of [0, -1, NaN]) assert.equal((await rejection(lock.keep({ leaseMs }))).name, 'RangeError')
  assert.equal((await rejection(lock.keep({ lease: 1 }))).name, 'TypeError')
  assert.equal((await rejection(lock.keep(1_000))).name, 'TypeError')
  assert.equal(await lock.release(), true)
})

test('a lock whose lease ends says so once, before anybody else can get it', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const told = []
  const lock = await client.acquire(key, { leaseMs: 200, onLost: (error) => told.push(error) })
  const next = client.acquire(key)
  lock.lostSignal.addEventListener('abort', () => told.push('signal'))
  const second = await next
  assert.equal(lock.held, false)
  await eventually(() => lock.lostSignal.aborted)
  assert.ok(told[0] instanceof LockLost)
  assert.equal(told[0].reason, 'expired')
  assert.equal(told[0], lock.lostSignal.reason)
  assert.throws(() => lock.lostSignal.throwIfAborted(), LockLost)
  assert.deepEqual(told.slice(1), ['signal'])
  assert.equal(await lock.release(), false)
  assert.equal(await second.release(), true)
  await sleep(50)
  assert.equal(told.length, 2)
})

test('a lock that is lost on its way to the program is told to be so once the program has it', async (t) => {
  const client = clientOf(t, server)
  await client.status()
  const told = []
  const acquire = async () => await client.acquire(newKey(), { leaseMs: 20, onLost: ({ reason }) => told.push([reason, lock.held]) })
  const granted = acquire()
  // The loop stands still until the lease is over.
  const until = performance.now() + 100
  while (performance.now() < until);
  const lock = await granted
  await eventually(() => told.length > 0)
  assert.deepEqual(told, [['expired', false]])
  assert.equal(lock.lostSignal.reason.reason, 'expired')
})

test('a loss that nobody listened to is known to whoever asks later', async (t) => {
  const client = clientOf(t, server)
  const lock = await client.acquire(newKey(), { leaseMs: 100 })
  await eventually(() => !lock.held)
  assert.equal(lock.lostSignal.aborted, true)
  assert.equal(lock.lostSignal.reason.reason, 'expired')
})

test('closing the client tells its locks and releases them', async (t) => {
  const client = clientOf(t, server)
  const other = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const { lostSignal } = lock
  await client.close()
  await eventually(() => lostSignal.aborted)
  assert.equal(lostSignal.reason.reason, 'closed')
  assert.equal((await other.inspect(key)).held, false)
  assert.equal(lock.held, false)
})

test('a released lock is never lost', async (t) => {
  const client = clientOf(t, server)
  const told = []
  const lock = await client.acquire(newKey(), { leaseMs: 150, onLost: () => told.push('lost') })
  const { lostSignal } = lock
  await lock.release()
  await sleep(250)
  assert.equal(lostSignal.aborted, false)
  assert.deepEqual(told, [])
})

test('keepAlive: renewed for longer than the lease, until maxHold', async (t) => {
  const client = clientOf(t, server)
  const lock = await client.acquire(newKey(), { leaseMs: 1_000, keepAlive: true, maxHoldMs: 1_500 })
  const begun = performance.now()
  await sleep(1_300)
  assert.equal(lock.held, true)
  await eventually(() => lock.lostSignal.aborted)
  assert.equal(lock.lostSignal.reason.reason, 'expired')
  assert.ok(performance.now() - begun > 1_500)
})

test('keepAlive goes on while the event loop is blocked', async (t) => {
  const client = clientOf(t, server)
  const other = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key, { leaseMs: 1_000, keepAlive: true })
  const { lostSignal } = lock
  const waiting = other.acquire(key)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_500)
  assert.equal(lock.held, true)
  await sleep(20)
  assert.equal(lostSignal.aborted, false)
  assert.equal(await lock.release(), true)
  await (await waiting).release()
})

test('keepAlive goes on while the event loop is blocked by what starts calls', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  // The loop reads.
  for (let round = 0; round < 20; round++) await client.withLock(newKey(), () => {})
  const lock = await client.acquire(key, { leaseMs: 1000, keepAlive: true })
  const tries = []
  const pause = new Int32Array(new SharedArrayBuffer(4))
  for (const begun = performance.now(); performance.now() - begun < 2500;) {
    tries.push(client.tryAcquire(key))
    Atomics.wait(pause, 0, 0, 10)
  }
  assert.equal(lock.held, true)
  assert.deepEqual(new Set(await Promise.all(tries)), new Set([null]))
  assert.equal(await lock.release(), true)
})

test('a lock taken while the event loop is blocked is told once, when the loop goes on', async (t) => {
  let granted
  const mean = await scripted(t, ([operation, key], say) => {
    if (operation === 'A') say(`A ${key} 99`)
    if (operation === 'K') say(`K ${key} stale`)
  })
  const client = clientOf(t, mean)
  let told = 0
  const lock = await client.acquire('k', { leaseMs: 1_000, keepAlive: true, onLost: () => told++ })
  const until = performance.now() + 100
  while (performance.now() < until);
  assert.equal(told, 0)
  await eventually(() => told > 0)
  await sleep(100)
  assert.equal(told, 1)
  assert.equal(lock.lostSignal.reason.reason, 'taken')
  void granted
})

test('a lock that nobody refers to any more is released, also if it is listened to', async (t) => {
  const client = clientOf(t, server)
  const keys = [newKey(), newKey()]
  await (async () => {
    await client.acquire(keys[0])
    const lock = await client.acquire(keys[1], { onLost: () => lock.release() })
    lock.lostSignal.addEventListener('abort', () => lock.key)
  })()
  for (const key of keys) {
    await eventually(async () => {
      collectGarbage()
      await sleep(1)
      return !(await client.inspect(key)).held
    })
  }
})

test('locks are found when they are forgotten, whichever way they came', async (t) => {
  const client = clientOf(t, server)
  const prefix = newKey()
  const forget = async (at) => { await client.acquire(`${prefix}/${at}`) }
  const use = async (at) => { for (let round = 0; round < 3; round++) await (await client.acquire(`${prefix}/used/${at}`)).release() }
  // Beside others that are released at once; in the same turn, and handed over by fairlock's own thread because the loop stood still.
  await Promise.all(Array.from({ length: 20 }, (_, at) => Promise.all([forget(at), use(at)])))
  const late = Promise.all(Array.from({ length: 20 }, (_, at) => forget(20 + at)))
  await Promise.resolve()
  const until = performance.now() + 100
  while (performance.now() < until);
  await late
  await eventually(async () => {
    collectGarbage()
    await sleep(1)
    return (await client.locks({ prefix: `${prefix}/` })).locks.length === 0
  })
})

test('a lock is found when it is forgotten, also if it was the last thing that its environment asked for', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const worker = new Worker(`
    const { parentPort } = require('node:worker_threads')
    const { Client } = require(${JSON.stringify(packageFolder)})
    const collectGarbage = require('node:vm').runInNewContext('gc')
    const client = new Client(${JSON.stringify(server.address)})
    const forget = async () => { await client.acquire(${JSON.stringify(key)}) }
    forget().then(() => { parentPort.postMessage('holding'); setInterval(collectGarbage, 5) })`, { eval: true })
  t.after(() => worker.terminate())
  await once(worker, 'message')
  await eventually(async () => !(await client.inspect(key)).held)
})

test('a released lock that is collected takes no other lock with it', async (t) => {
  const client = clientOf(t, server)
  // Held for longer than the turn in which it came, so somebody waits for it to be forgotten.
  const use = async () => { const lock = await client.acquire(newKey()); await sleep(1); await lock.release() }
  await Promise.all(Array.from({ length: 10 }, use))
  const later = await Promise.all(Array.from({ length: 10 }, () => client.acquire(newKey())))
  for (let round = 0; round < 5; round++) { collectGarbage(); await sleep(5) }
  for (const lock of later) assert.equal((await client.inspect(lock.key)).token, lock.token)
  for (const lock of later) assert.equal(await lock.release(), true)
})

test('a held lock keeps its client', async (t) => {
  let lock = await (async () => new Client(server.address).acquire(newKey(), { leaseMs: 1_000, keepAlive: true }))()
  for (let round = 0; round < 5; round++) {
    collectGarbage()
    await sleep(250)
  }
  assert.equal(lock.held, true)
  assert.equal(await lock.release(), true)
  lock = undefined
})

test('a call keeps its client', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const waiting = (() => new Client(server.address).acquire(key))()
  await eventually(async () => { collectGarbage(); return await waitersOf(client, key) === 1 })
  for (let round = 0; round < 5; round++) { collectGarbage(); await sleep(5) }
  await lock.release()
  await (await waiting).release()
})

test('an error thrown by onLost is the program\'s own, and everything goes on', async (t) => {
  const client = clientOf(t, server)
  const thrown = []
  const catchIt = (error) => thrown.push(error.message)
  process.setUncaughtExceptionCaptureCallback(catchIt)
  t.after(() => process.setUncaughtExceptionCaptureCallback(null))
  await client.acquire(newKey(), { leaseMs: 50, onLost: () => { throw new Error('mine') } }).then((lock) => eventually(() => lock.lostSignal.aborted))
  await eventually(() => thrown.length > 0)
  assert.deepEqual(thrown, ['mine'])
  assert.equal(await client.withLock(newKey(), () => 1), 1)
})

test('calls begun by a listener of a loss get their own outcomes, not those that came with the loss', async (t) => {
  const client = clientOf(t, server)
  for (let round = 0; round < 20; round++) {
    const begun = []
    const lock = await client.acquire(newKey(), { leaseMs: 20, onLost: () => { for (let at = 0; at < 5; at++) begun.push(client.tryAcquire(newKey())) } })
    // Losses and outcomes of the same moment are drained together, because the loop is blocked until then.
    const calls = Array.from({ length: 5 }, (_, at) => client.inspect(newKey()))
    const until = performance.now() + 40
    while (performance.now() < until);
    for (const state of await Promise.all(calls)) assert.equal(state.held, false)
    await eventually(() => begun.length === 5)
    for (const granted of await Promise.all(begun)) assert.equal(await granted.release(), true)
    assert.equal(lock.held, false)
  }
})
