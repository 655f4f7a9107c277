// Goal: bad input gets a clear error of JavaScript's own kind before anything is sent.
// Method: a table of calls against a scripted server that must not hear of any of them.

import assert from 'node:assert/strict'
import test from 'node:test'
import { Client, Fence, Lock, Server } from '../index.mjs'
import { clientOf, newKey, node, rejection, scripted } from './support.mjs'

const huge = [NaN, -1, -0.001, Infinity, -Infinity, 1e300, Number.MAX_VALUE]
const noNumber = ['1', 1n, true, null, {}, [], () => {}, Symbol('x')]
const badKeys = {
  RangeError: ['', 'x'.repeat(513), 'ä'.repeat(257), '\ud800', 'a\udc00b', 'x\ud83d', new Uint8Array(0), new Uint8Array(513)],
  TypeError: [undefined, null, 1, 1n, true, {}, ['k'], new Uint16Array(2), new ArrayBuffer(2), new DataView(new ArrayBuffer(2)), Symbol('k')],
}

function * acquires (client) {
  for (const [name, method] of [['acquire', (...a) => client.acquire(...a)], ['tryAcquire', (...a) => client.tryAcquire(...a)],
    ['withLock', (key, options) => client.withLock(key, options, () => assert.fail('had the lock'))]]) {
    for (const [kind, keys] of Object.entries(badKeys)) {
      for (const key of keys) yield [kind, `${name} key`, () => method(key, {})]
    }
    for (const leaseMs of [...huge, 0, 0.5, 366 * 86_400_000]) yield ['RangeError', `${name} leaseMs ${leaseMs}`, () => method('k', { leaseMs })]
    for (const maxHoldMs of [...huge, 0, 0.5]) yield ['RangeError', `${name} maxHoldMs ${maxHoldMs}`, () => method('k', { maxHoldMs, keepAlive: true })]
    yield ['RangeError', `${name} keepAlive with a short lease`, () => method('k', { keepAlive: true, leaseMs: 999 })]
    for (const value of noNumber) {
      yield ['TypeError', `${name} leaseMs ${String(value)}`, () => method('k', { leaseMs: value })]
      yield ['TypeError', `${name} maxHoldMs ${String(value)}`, () => method('k', { maxHoldMs: value })]
    }
    for (const keepAlive of [1, 'yes', null]) yield ['TypeError', `${name} keepAlive`, () => method('k', { keepAlive })]
    for (const onLost of [1, 'f', null, {}]) yield ['TypeError', `${name} onLost`, () => method('k', { onLost })]
    for (const signal of [1, 'abort', null, {}, new AbortController(), { aborted: false, throwIfAborted () {}, addEventListener () {} }]) yield ['TypeError', `${name} signal`, () => method('k', { signal })]
    for (const options of [null, 1, 'lease', [], () => {}]) {
      if (name !== 'withLock') yield ['TypeError', `${name} options`, () => method('k', options)]
    }
    for (const wrong of ['lease', 'LeaseMs', 'wait', 'timeout', '__proto__x', 'toString']) {
      yield ['TypeError', `${name} option ${wrong}`, () => method('k', { [wrong]: 1 })]
    }
    if (name === 'tryAcquire') yield ['TypeError', 'tryAcquire waitMs', () => method('k', { waitMs: 1 })]
    else {
      for (const waitMs of [...huge, 0.5, 1e-9, 366 * 86_400_000]) yield ['RangeError', `${name} waitMs ${waitMs}`, () => method('k', { waitMs })]
      for (const value of noNumber) yield ['TypeError', `${name} waitMs ${String(value)}`, () => method('k', { waitMs: value })]
    }
  }
  for (const body of [undefined, null, 1, {}]) yield ['TypeError', 'withLock body', () => client.withLock('k', {}, body)]
}

function * operators (client) {
  const tokens = { RangeError: [0n, -1n, 2n ** 63n, 2n ** 64n + 1n, -(2n ** 64n)], TypeError: [1, '1', null, undefined, {}] }
  for (const [kind, keys] of Object.entries(badKeys)) {
    for (const key of keys) {
      yield [kind, 'inspect', () => client.inspect(key)]
      yield [kind, 'waiters', () => client.waiters(key)]
      yield [kind, 'release', () => client.release(key, 1n)]
      yield [kind, 'keep', () => client.keep(key, 1n)]
      if (key !== undefined && key?.length !== 0) yield [kind, 'locks', () => client.locks({ prefix: key })]
    }
  }
  for (const [kind, values] of Object.entries(tokens)) {
    for (const token of values) {
      yield [kind, 'release token', () => client.release('k', token)]
      yield [kind, 'keep token', () => client.keep('k', token)]
    }
  }
  for (const leaseMs of [...huge, 0]) yield ['RangeError', 'keep leaseMs', () => client.keep('k', 1n, { leaseMs })]
  for (const limit of [0, -1, 1.5, NaN, Infinity, 1e9]) {
    yield ['RangeError', `waiters limit ${limit}`, () => client.waiters('k', { limit })]
    yield ['RangeError', `locks limit ${limit}`, () => client.locks({ limit })]
  }
  yield ['TypeError', 'waiters limit', () => client.waiters('k', { limit: '1' })]
  yield ['TypeError', 'locks option', () => client.locks({ prefixes: 'k' })]
  yield ['TypeError', 'locks options', () => client.locks('k')]
  yield ['TypeError', 'status option', () => client.status({ key: 'k' })]
}

async function fails (kind, what, call) {
  let promise
  assert.doesNotThrow(() => { promise = call() }, `${what} throws instead of rejecting`)
  const error = await rejection(promise)
  assert.equal(error.name, kind, `${what}: ${error.stack}`)
  assert.equal(error.code, kind === 'TypeError' ? 'ERR_INVALID_ARG_TYPE' : 'ERR_OUT_OF_RANGE', what)
  assert.ok(error.message.length > 5)
}

test('bad arguments of calls are rejected, and the server hears of none', async (t) => {
  const ears = await scripted(t, () => {})
  const client = clientOf(t, ears)
  for (const [kind, what, call] of [...acquires(client), ...operators(client)]) await fails(kind, what, call)
  assert.deepEqual(ears.lines.filter((line) => !/^[HP] ?/.test(line)), [])
})

test('bad options of a client are thrown', () => {
  const table = {
    TypeError: [null, 1, true, { servers: 1 }, { servers: [1] }, { servers: {} }, { name: 1 }, { secret: 1 }, { secretFile: 1 },
      { connectTimeoutMs: '1' }, { retryForMs: null }, { followMoves: 1 }, { server: 'a' }, { leaseMs: 1 }, () => {}],
    RangeError: ['', [], 'a:b', 'a:99999', 'a b:1', ['a:1', ''], { servers: '\ud800' }, { name: '' }, { name: 'x'.repeat(129) }, { name: '\udc00' },
      { secret: '' }, { secret: 'x'.repeat(513) }, { secretFile: '/no/such/file' }, { secret: 'a', secretFile: 'b' },
      { followMoves: 'none' }, ...[...huge, 0].map((connectTimeoutMs) => ({ connectTimeoutMs })), ...huge.map((retryForMs) => ({ retryForMs }))],
  }
  for (const [name, values] of Object.entries(table)) {
    for (const value of values) {
      assert.throws(() => new Client(value), (error) => error.name === name || assert.fail(`${JSON.stringify(value)}: ${error.stack}`), name)
    }
  }
})

test('what is wrong is said in the words of this package', async (t) => {
  const client = clientOf(t, '127.0.0.1:1')
  const table = [
    [() => client.acquire('k', { leaseMs: 0 }), /^leaseMs is 0; give a time from a millisecond to a year$/],
    [() => client.acquire('k', { leaseMs: 999, keepAlive: true }), /^leaseMs is 999; give at least a second, or no keepAlive$/],
    [() => client.acquire('k', { waitMs: 366 * 86_400_000 }), /^waitMs is 31622400000; .*0 to wait without limit$/],
    [() => client.acquire('k', { maxHoldMs: 0 }), /^maxHoldMs is 0; /],
    [async () => new Client({ connectTimeoutMs: 0 }), /^connectTimeoutMs is 0; /],
    [async () => new Client({ secret: 'a', secretFile: 'b' }), /^both secret and secretFile are given/],
    [async () => new Client({ certFile: 'a' }), /^certFile is given without keyFile/],
    [async () => new Client({ tls: false, caFile: 'a' }), /^caFile is given, but tls is off/],
    [async () => new Client({ secretFile: '/no/ca_file' }), /\/no\/ca_file/],
    [() => Server.start({ maxLease: 60 }), /there is no option "maxLease"; there (?:is|are) .*\bmaxLeaseMs\b/],
    [() => Server.start({ xyz: 60 }), /there is no option "xyz"; there are .*\bmaxLeaseMs\b/],
  ]
  for (const [call, expected] of table) assert.match((await rejection(call())).message, expected)
})

test('what nobody would look at is refused', async (t) => {
  const client = clientOf(t, '127.0.0.1:1')
  assert.throws(() => new Client('127.0.0.1:1', { secret: 'x' }), { name: 'TypeError', message: /new Client\(\{ servers, … \}\)/ })
  const wrong = await rejection(Client.connect('127.0.0.1:1', { secret: 'x' }))
  assert.equal(wrong.name, 'TypeError')
  assert.match(wrong.message, /Client\.connect\(\{ servers, … \}\)/)
  const given = await rejection(client.release('k', 1n, { signal: AbortSignal.timeout(1000) }))
  assert.equal(given.name, 'TypeError')
  for (const [variable, named] of [['FAIRLOCK_TLS', /FAIRLOCK_TLS/], ['FAIRLOCK_SERVER', /FAIRLOCK_SERVERS/]]) {
    process.env[variable] = 'perhaps'
    try {
      assert.throws(() => new Client(), { name: 'RangeError', message: named })
    } finally {
      delete process.env[variable]
    }
  }
})

test('bad settings of a server are rejected', async () => {
  const table = {
    TypeError: [null, 1, 'listen', [], { listen: 1 }, { port: 1 }, { maxLeaseMs: '1' }, { maxKeys: '1' }, { insecure: 1 }, { spin: true }, { listen: {} }],
    RangeError: [{ listen: 'x' }, { listen: '0.0.0.0:0' }, { maxLeaseMs: -1 }, { maxLeaseMs: NaN }, { maxKeys: 1.5 }, { maxKeys: 0 }, { spin: 'fast' },
      { ephemeral: true, dataDir: '/tmp/x' }],
  }
  for (const [name, values] of Object.entries(table)) {
    for (const value of values) {
      const error = await rejection(Server.start(value))
      assert.equal(error.name, name, `${JSON.stringify(value)}: ${error.stack}`)
    }
  }
})

test('bad arguments of a fence are thrown', () => {
  const fence = new Fence()
  for (const key of badKeys.TypeError) assert.throws(() => fence.check(key, 1n), { name: 'TypeError' })
  for (const token of [0n, -1n, 2n ** 63n, 2n ** 64n + 1n]) assert.throws(() => fence.check('k', token), { name: 'RangeError' })
  for (const token of [1, '1', null]) assert.throws(() => fence.check('k', token), { name: 'TypeError' })
})

test('objects that only the library makes cannot be made', () => {
  assert.throws(() => new Lock(), { name: 'TypeError' })
  assert.throws(() => new Server(), { name: 'TypeError' })
})

test('keys are bytes: text and its UTF-8 are one key, everything else is another', async (t) => {
  const client = clientOf(t, await node())
  const strange = ['a b', 'a%20b', '\0', '\n', '\u007f', '%', '-', '#1', '\u00e4', 'a\u0308', '🔒', 'key', 'key ', 'KEY',
    Uint8Array.of(0xff, 0xfe), Uint8Array.of(0xc3), 'x'.repeat(512)]
  const held = []
  for (const key of strange) {
    const lock = await client.tryAcquire(key)
    assert.notEqual(lock, null, `${key} is another key's`)
    assert.deepEqual(lock.key, key)
    held.push(lock)
  }
  assert.equal(await client.tryAcquire(Buffer.from('\u00e4')), null)
  assert.equal(await client.tryAcquire(Buffer.from('🔒')), null)
  const seen = new Map((await client.locks()).locks.map((lock) => [Buffer.from(lock.keyBytes).toString('hex'), lock.token]))
  for (const lock of held) assert.equal(seen.get(Buffer.from(lock.key).toString('hex')), lock.token)
  for (const lock of held) assert.equal(await lock.release(), true)
})

test('an option that is undefined is not there, and bytes given as a key may be written over', async (t) => {
  const client = clientOf(t, await node())
  const bytes = Buffer.from(newKey())
  const text = bytes.toString()
  const promise = client.acquire(bytes, { leaseMs: undefined, waitMs: undefined, keepAlive: undefined, maxHoldMs: undefined, onLost: undefined, signal: undefined })
  bytes.fill(0)
  const lock = await promise
  assert.equal(Buffer.from(lock.key).toString(), text)
  assert.equal(lock.leaseMs, 30_000)
  assert.equal((await client.inspect(text)).token, lock.token)
  await lock.release()
})

test('a key is the same as text and as bytes, whatever its length', async (t) => {
  const client = clientOf(t, await node())
  for (const letter of ['k', 'é', '字', '😀']) {
    for (const length of [1, 20, 60, 61, 62, 63, 64, 65, 82, 83, 84, 85, 86, 125, 126, 127, 128, 129, 245, 250, 251, 252, 253, 255, 256, 257, 511, 512]) {
      const text = letter.repeat(length)
      const bytes = new TextEncoder().encode(text)
      if (bytes.length > 512) continue
      const lock = await client.acquire(text)
      assert.equal((await client.inspect(bytes)).token, lock.token)
      await lock.release()
    }
  }
})
