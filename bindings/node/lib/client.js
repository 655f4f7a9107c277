'use strict'

// The client. Each method checks its arguments and makes one call; what happens then is the core's business.

const native = require('./native')
const { checkKey, checkOptions, checkToken, wrong } = require('./arguments')
const { call, finished, make, open } = require('./bridge')
const { asyncDispose, madeHere, Lock } = require('./lock')

const clientOptions = {
  servers: 'servers',
  name: 'string',
  secret: 'secret',
  secretFile: 'string',
  connectTimeoutMs: 'number',
  retryForMs: 'number',
  followMoves: 'string',
  tls: 'boolean',
  caFile: 'string',
  certFile: 'string',
  keyFile: 'string',
  serverName: 'string',
}
const callOptions = { signal: 'signal' }
const tryOptions = { leaseMs: 'number', keepAlive: 'boolean', maxHoldMs: 'number', onLost: 'function', signal: 'signal' }
const acquireOptions = { ...tryOptions, waitMs: 'number' }
const keepOptions = { leaseMs: 'number', signal: 'signal' }
const waitersOptions = { limit: 'number', signal: 'signal' }
const locksOptions = { prefix: 'key', after: 'key', limit: 'number', signal: 'signal' }

class Client {
  #client

  constructor (servers) {
    const options = typeof servers === 'string' || Array.isArray(servers) ? { servers } : servers
    this.#client = make(this, { ...checkOptions(options, clientOptions) })
  }

  static async connect (servers, options) {
    const { signal } = checkOptions(options, callOptions)
    signal?.throwIfAborted()
    const client = new this(servers)
    try {
      finished(await call(native().connected(open(), client.#client), signal))
    } catch (error) {
      await client.close()
      throw error
    }
    return client
  }

  async acquire (key, options) {
    checkKey(key)
    const { waitMs, leaseMs, keepAlive, maxHoldMs, onLost, signal } = checkOptions(options, acquireOptions)
    signal?.throwIfAborted()
    const ownKey = copied(key)
    const begun = native().acquire(open(), this.#client, key, waitMs, leaseMs, keepAlive, maxHoldMs)
    return new Lock(madeHere, finished(await call(begun, signal)), ownKey, onLost)
  }

  async tryAcquire (key, options) {
    checkKey(key)
    const { leaseMs, keepAlive, maxHoldMs, onLost, signal } = checkOptions(options, tryOptions)
    signal?.throwIfAborted()
    const ownKey = copied(key)
    const begun = native().tryAcquire(open(), this.#client, key, leaseMs, keepAlive, maxHoldMs)
    const held = finished(await call(begun, signal))
    return held === null ? null : new Lock(madeHere, held, ownKey, onLost)
  }

  async withLock (key, options, body) {
    if (body === undefined && typeof options === 'function') [options, body] = [undefined, options]
    if (typeof body !== 'function') throw wrong('the last argument', 'a function', body)
    const lock = await this.acquire(key, options)
    let result
    try {
      result = await body(lock)
    } catch (error) {
      // What went wrong with the release is worth less than what went wrong with the work.
      await lock.release().catch(() => {})
      throw error
    }
    await lock.release()
    return result
  }

  async inspect (key, options) {
    checkKey(key)
    const { signal } = checkOptions(options, callOptions)
    signal?.throwIfAborted()
    return finished(await call(native().inspect(open(), this.#client, key), signal))
  }

  async waiters (key, options) {
    checkKey(key)
    const { limit = 100, signal } = checkOptions(options, waitersOptions)
    signal?.throwIfAborted()
    return finished(await call(native().waiters(open(), this.#client, key, limit), signal))
  }

  async locks (options) {
    const { prefix, after, limit = 1000, signal } = checkOptions(options, locksOptions)
    signal?.throwIfAborted()
    return finished(await call(native().locks(open(), this.#client, prefix, after, limit), signal))
  }

  async status (options) {
    const { signal } = checkOptions(options, callOptions)
    signal?.throwIfAborted()
    return finished(await call(native().status(open(), this.#client), signal))
  }

  async release (key, token) {
    checkKey(key)
    checkToken(token)
    return finished(await call(native().releaseToken(open(), this.#client, key, token)))
  }

  async keep (key, token, options) {
    checkKey(key)
    checkToken(token)
    const { leaseMs = 30_000, signal } = checkOptions(options, keepOptions)
    signal?.throwIfAborted()
    return finished(await call(native().keepToken(open(), this.#client, key, token, leaseMs), signal))
  }

  async close () {
    return finished(await call(native().close(open(), this.#client)))
  }

  [asyncDispose] () {
    return this.close()
  }
}

/** Bytes may be written over while the lock is held; text stays as it is. */
const copied = (key) => typeof key === 'string' ? key : new Uint8Array(key)

module.exports = { Client }
