// Goal: every row of the table of errors reaches JavaScript as the class and code that the table names.
// Method: a node where the error comes about by itself, a scripted server where it does not.

import assert from 'node:assert/strict'
import test from 'node:test'
import * as fairlock from '../index.mjs'
import errors from '../lib/errors.js'
import native from '../lib/native.js'
import { clientOf, deadAddress, eventually, newKey, node, rejection, scripted } from './support.mjs'

const { FairlockError, Fence, Server } = fairlock
const server = await node()

function is (error, name, code, reason) {
  assert.equal(error.name, name, String(error.stack))
  assert.equal(error.code, code)
  assert.ok(error instanceof fairlock[name], `instance of ${name}`)
  assert.ok(error instanceof FairlockError && error instanceof Error)
  assert.equal(error.reason, reason)
  assert.ok(error.message.length > 10, error.message)
  assert.ok(error.stack.startsWith(`${name}: `), error.stack)
}

test('every kind of the core has its code here, the same as in the table', () => {
  const rows = native().errorCodes()
  assert.ok(rows.length >= 10)
  for (const { kind, code } of rows) {
    const error = errors.errorFrom({ kind, message: 'text', reason: 'expired' })
    if (code !== '') assert.equal(error.code, code, kind)
    assert.equal(error.message, 'text')
  }
})

test('WaitTimeout: not had within the wait', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const begun = performance.now()
  const error = await rejection(client.acquire(key, { waitMs: 50 }))
  is(error, 'WaitTimeout', 'ERR_WAIT_TIMEOUT')
  assert.ok(error.message.includes(key), error.message)
  assert.ok(performance.now() - begun >= 49, 'never early')
  assert.equal((await client.inspect(key)).waiters, 0)
  assert.equal(await lock.release(), true)
})

test('ConnectionFailed: names each address tried and why it failed, within the connect time-out', async (t) => {
  const dead = [await deadAddress(), await deadAddress()]
  const client = clientOf(t, dead, { connectTimeoutMs: 300 })
  for (const call of [() => client.acquire('k'), () => client.tryAcquire('k'), () => client.inspect('k'), () => client.status()]) {
    const begun = performance.now()
    const error = await rejection(call())
    is(error, 'ConnectionFailed', 'ERR_CONNECTION_FAILED')
    for (const address of dead) assert.ok(error.message.includes(address), error.message)
    assert.match(error.message, /refused/i)
    // Each call waits for a try that began after it, and tries are three seconds apart.
    assert.ok(performance.now() - begun < 5_000)
  }
  is(await rejection(fairlock.Client.connect({ servers: dead, connectTimeoutMs: 300 })), 'ConnectionFailed', 'ERR_CONNECTION_FAILED')
})

test('ConnectionFailed: no node is active', async (t) => {
  const standby = await scripted(t, ([operation, key], _say, socket, tag) => socket.write(`E ${operation} ${key} unavailable${tag} nobody is\n`))
  const client = clientOf(t, standby)
  is(await rejection(client.acquire('k')), 'ConnectionFailed', 'ERR_CONNECTION_FAILED')
})

test('Refused: with the code that the server gave, known or not', async (t) => {
  let reason
  // The tag stands before the text of a refusal.
  const refusing = await scripted(t, ([operation, key], _say, socket, tag) => socket.write(`E ${operation} ${key} ${reason}${tag} because\n`))
  const client = clientOf(t, refusing)
  for (reason of ['denied', 'busy', 'internal', 'quota']) {
    is(await rejection(client.acquire('k')), 'Refused', 'ERR_REFUSED', reason)
    is(await rejection(client.inspect('k')), 'Refused', 'ERR_REFUSED', reason)
  }
})

test('Refused: auth', async (t) => {
  const guarded = await node({ secret: 'sesame' })
  const stranger = clientOf(t, guarded, { secret: 'wrong' })
  is(await rejection(stranger.acquire(newKey())), 'Refused', 'ERR_REFUSED', 'auth')
  const friend = clientOf(t, guarded, { secret: 'sesame' })
  await (await friend.acquire(newKey())).release()
  const bytes = clientOf(t, guarded, { secret: Buffer.from('sesame') })
  await (await bytes.acquire(newKey())).release()
})

test('RangeError: what only the server knows to be too much', async (t) => {
  const client = clientOf(t, await node({ maxLeaseMs: 1_000 }))
  const error = await rejection(client.acquire(newKey(), { leaseMs: 2_000 }))
  assert.ok(error instanceof RangeError)
  assert.equal(error.code, 'ERR_OUT_OF_RANGE')
})

test('LockLost: a keep after an operator took the lock', async (t) => {
  const client = clientOf(t, server)
  const operator = clientOf(t, server)
  const lock = await client.acquire(newKey())
  assert.equal(await operator.release(lock.key, lock.token), true)
  is(await rejection(lock.keep()), 'LockLost', 'ERR_LOCK_LOST', 'taken')
  assert.equal(lock.held, false)
  assert.equal(await lock.release(), false)
})

test('ReleaseUnconfirmed: no answer to a release for five seconds', async (t) => {
  const silent = await scripted(t, ([operation, key], say) => {
    if (operation === 'A') say(`A ${key} 1234`)
  })
  const client = clientOf(t, silent)
  const lock = await client.acquire('k')
  const begun = performance.now()
  is(await rejection(lock.release()), 'ReleaseUnconfirmed', 'ERR_RELEASE_UNCONFIRMED')
  const took = performance.now() - begun
  assert.ok(took > 4_800 && took < 8_000, `${took} ms`)
  assert.ok(silent.lines.filter((line) => line.startsWith('R ')).length > 10, 'repeated')
})

test('StaleToken: the fence has seen a higher one', () => {
  const fence = new Fence()
  fence.check('k', 5n)
  fence.check('k', 5n)
  fence.check(new Uint8Array([107]), 2n ** 63n - 1n)
  assert.equal(fence.highest('k'), 2n ** 63n - 1n)
  let error
  try { fence.check('k', 5n) } catch (caught) { error = caught }
  is(error, 'StaleToken', 'ERR_STALE_TOKEN')
  fence.forget('k')
  assert.equal(fence.highest('k'), null)
  fence.check('k', 1n)
})

test('ClientClosed: after close, and for what was under way', async (t) => {
  const client = clientOf(t, server)
  const other = clientOf(t, server)
  const key = newKey()
  const lock = await other.acquire(key)
  const waiting = rejection(client.acquire(key))
  await eventually(async () => (await other.inspect(key)).waiters === 1)
  await client.close()
  is(await waiting, 'ClientClosed', 'ERR_CLOSED')
  is(await rejection(client.acquire(key)), 'ClientClosed', 'ERR_CLOSED')
  is(await rejection(client.tryAcquire(key)), 'ClientClosed', 'ERR_CLOSED')
  is(await rejection(client.inspect(key)), 'ClientClosed', 'ERR_CLOSED')
  await client.close()
  await eventually(async () => (await other.inspect(key)).waiters === 0)
  await lock.release()
})

test('ServerError: the address is taken', async () => {
  is(await rejection(Server.start({ listen: server.address })), 'ServerError', 'ERR_SERVER')
})

test('errors say where the caller stood', async (t) => {
  const client = clientOf(t, server)
  async function somewhereInTheProgram () { await client.acquire('') }
  const error = await rejection(somewhereInTheProgram())
  assert.match(error.stack, /somewhereInTheProgram/)
})

test('so do those that come later', async (t) => {
  const client = clientOf(t, server)
  const lock = await client.acquire(newKey())
  async function somewhereInTheProgram () { await client.acquire(lock.key, { waitMs: 10 }) }
  const error = await rejection(somewhereInTheProgram())
  is(error, 'WaitTimeout', 'ERR_WAIT_TIMEOUT')
  assert.match(error.stack, /somewhereInTheProgram/)
  await lock.release()
})
