// Goal: an aborted acquire is rejected with the signal's reason in every phase and leaves nothing behind.
// Method: abort before, while waiting, at the moment of the grant and after it; count listeners, waiters and held keys.

import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import test from 'node:test'
import { clientOf, eventually, newKey, node, rejection, scripted, sleep, waitersOf } from './support.mjs'

const server = await node()
const listeners = (signal) => getEventListeners(signal, 'abort').length

test('before: nothing is sent', async (t) => {
  const ears = await scripted(t, () => {})
  const client = clientOf(t, ears)
  const reason = new Error('changed my mind')
  const signal = AbortSignal.abort(reason)
  for (const call of [() => client.acquire('k', { signal }), () => client.tryAcquire('k', { signal }),
    () => client.withLock('k', { signal }, () => {}), () => client.inspect('k', { signal }), () => client.status({ signal })]) {
    assert.equal(await rejection(call()), reason)
  }
  await sleep(50)
  assert.deepEqual(ears.lines.filter((line) => !/^[HP] ?/.test(line)), [])
  assert.equal(listeners(signal), 0)
})

test('while it waits: out of the queue, rejected at once, listener gone', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const controller = new AbortController()
  const waiting = rejection(client.acquire(key, { signal: controller.signal }))
  await eventually(async () => await waitersOf(client, key) === 1)
  assert.equal(listeners(controller.signal), 1)
  const begun = performance.now()
  controller.abort()
  const error = await waiting
  assert.ok(performance.now() - begun < 50)
  assert.equal(error, controller.signal.reason)
  assert.equal(error.name, 'AbortError')
  assert.equal(listeners(controller.signal), 0)
  await eventually(async () => await waitersOf(client, key) === 0)
  assert.equal(await lock.release(), true)
  assert.equal((await client.inspect(key)).held, false)
})

test('the reason may be anything', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  for (const reason of ['text', 7, null, false]) {
    const controller = new AbortController()
    const waiting = rejection(client.acquire(key, { signal: controller.signal }))
    await eventually(async () => await waitersOf(client, key) === 1)
    controller.abort(reason)
    assert.equal(await waiting, reason)
    await eventually(async () => await waitersOf(client, key) === 0)
  }
  await lock.release()
})

test('AbortSignal.timeout and AbortSignal.any', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const error = await rejection(client.acquire(key, { signal: AbortSignal.any([AbortSignal.timeout(30), new AbortController().signal]) }))
  assert.equal(error.name, 'TimeoutError')
  await eventually(async () => await waitersOf(client, key) === 0)
  await lock.release()
})

test('in the same turn as the call, before anything came back', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  for (let round = 0; round < 20; round++) {
    const controller = new AbortController()
    const call = rejection(client.acquire(key, { signal: controller.signal }))
    controller.abort('at once')
    assert.equal(await call, 'at once')
  }
  await eventually(async () => (await client.inspect(key)).held === false)
})

test('at the moment of the grant: either the lock or the reason, and never a lock that nobody has', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const had = { lock: 0, reason: 0 }
  for (let round = 0; round < 100; round++) {
    const lock = await client.acquire(key)
    const controller = new AbortController()
    const next = client.acquire(key, { signal: controller.signal }).then(
      async (lock) => { had.lock++; await lock.release() },
      (error) => { assert.equal(error, controller.signal.reason); had.reason++ })
    const released = lock.release()
    // The grant arrives while the loop is busy, or is drained together with the release, or comes later than the abort.
    const until = performance.now() + round % 10 / 10
    while (performance.now() < until);
    if (round % 3 === 0) setImmediate(() => controller.abort())
    else if (round % 3 === 1) released.then(() => controller.abort())
    else controller.abort()
    await Promise.all([next, released])
    assert.equal(listeners(controller.signal), 0)
  }
  assert.equal(had.lock + had.reason, 100)
  const state = await eventually(async () => { const state = await client.inspect(key); return !state.held && state })
  assert.equal(state.waiters, 0)
})

test('after: the lock stays, the listener is gone', async (t) => {
  const client = clientOf(t, server)
  const controller = new AbortController()
  const lock = await client.acquire(newKey(), { signal: controller.signal })
  assert.equal(listeners(controller.signal), 0)
  controller.abort()
  await sleep(20)
  assert.equal(lock.held, true)
  assert.equal(lock.lostSignal.aborted, false)
  assert.equal(await lock.release(), true)
})

test('300 aborted acquires leave no waiter and no held key', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const controllers = Array.from({ length: 300 }, () => new AbortController())
  const calls = controllers.map(({ signal }) => rejection(client.acquire(key, { signal })))
  await eventually(async () => await waitersOf(client, key) === 300)
  for (const controller of controllers) controller.abort()
  await Promise.all(calls)
  await eventually(async () => await waitersOf(client, key) === 0)
  assert.equal(await lock.release(), true)
  const state = await client.inspect(key)
  assert.deepEqual([state.held, state.waiters], [false, 0])
})

test('one signal for many calls: no warning, and one abort ends them all', async (t) => {
  const client = clientOf(t, server)
  const warnings = []
  const warned = (warning) => warnings.push(warning)
  process.on('warning', warned)
  const key = newKey()
  const lock = await client.acquire(key)
  const controller = new AbortController()
  const calls = Array.from({ length: 50 }, () => rejection(client.acquire(key, { signal: controller.signal })))
  await eventually(async () => await waitersOf(client, key) === 50)
  controller.abort('enough')
  assert.deepEqual(await Promise.all(calls), Array(50).fill('enough'))
  await eventually(async () => await waitersOf(client, key) === 0)
  await lock.release()
  process.off('warning', warned)
  assert.deepEqual(warnings, [])
  assert.equal(listeners(controller.signal), 0)
})

test('a keep and a look can be given up too', async (t) => {
  const silent = await scripted(t, ([operation, key], say) => {
    if (operation === 'A') say(`A ${key} 77`)
    if (operation === 'R') say(`R ${key} ok`)
  })
  const client = clientOf(t, silent)
  const lock = await client.acquire('k')
  for (const call of [(signal) => lock.keep({ signal }), (signal) => client.inspect('k', { signal }), (signal) => client.locks({ signal })]) {
    assert.equal((await rejection(call(AbortSignal.timeout(20)))).name, 'TimeoutError')
  }
  assert.equal(await lock.release(), true)
})
