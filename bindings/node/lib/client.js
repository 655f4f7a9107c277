'use strict'

// The client. Each method checks its arguments and makes one call; what happens then is the core's business.

const native = require('./native')
const { checkKey, checkOptions, checkToken, wrong } = require('./arguments')
const { call, finished, make } = require('./bridge')
const { asyncDispose, madeHere, Lock } = require('./lock')

const clientOptions = {
  servers: 'servers',
  name: 'string',
  secret: 'secret',
  secretFile: 'string',
  connectTimeoutMs: 'number',
  retryForMs: 'number',
  followMoves: 'string',
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
    this.#client = make({ ...checkOptions(options, clientOptions) })
  }

  static async connect (servers, options) {
    const { signal } = checkOptions(options, callOptions)
    const client = new this(servers)
    try {
      finished(await call(client, (addon, bridge, id) => addon.connected(bridge, id, client.#client), signal))
    } catch (error) {
      await client.close()
      throw error
    }
    return client
  }

  async acquire (key, options) {
    checkKey(key)
    const { waitMs, leaseMs, keepAlive, maxHoldMs, onLost, signal } = checkOptions(options, acquireOptions)
    const ownKey = copied(key)
    const held = finished(await call(this, (addon, bridge, id) =>
      addon.acquire(bridge, id, this.#client, key, waitMs, leaseMs, keepAlive, maxHoldMs), signal))
    return new Lock(madeHere, held, ownKey, onLost)
  }

  async tryAcquire (key, options) {
    checkKey(key)
    const { leaseMs, keepAlive, maxHoldMs, onLost, signal } = checkOptions(options, tryOptions)
    const ownKey = copied(key)
    const held = finished(await call(this, (addon, bridge, id) =>
      addon.tryAcquire(bridge, id, this.#client, key, leaseMs, keepAlive, maxHoldMs), signal))
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
    return finished(await call(this, (addon, bridge, id) => addon.inspect(bridge, id, this.#client, key), signal))
  }

  async waiters (key, options) {
    checkKey(key)
    const { limit = 100, signal } = checkOptions(options, waitersOptions)
    return finished(await call(this, (addon, bridge, id) => addon.waiters(bridge, id, this.#client, key, limit), signal))
  }

  async locks (options) {
    const { prefix, after, limit = 1000, signal } = checkOptions(options, locksOptions)
    return finished(await call(this, (addon, bridge, id) => addon.locks(bridge, id, this.#client, prefix, after, limit), signal))
  }

  async status (options) {
    const { signal } = checkOptions(options, callOptions)
    return finished(await call(this, (addon, bridge, id) => addon.status(bridge, id, this.#client), signal))
  }

  async release (key, token) {
    checkKey(key)
    checkToken(token)
    return finished(await call(this, (addon, bridge, id) => addon.releaseToken(bridge, id, this.#client, key, token)))
  }

  async keep (key, token, options) {
    checkKey(key)
    checkToken(token)
    const { leaseMs = 30_000, signal } = checkOptions(options, keepOptions)
    return finished(await call(this, (addon, bridge, id) => addon.keepToken(bridge, id, this.#client, key, token, leaseMs), signal))
  }

  async close () {
    return finished(await call(this, (addon, bridge, id) => addon.close(bridge, id, this.#client)))
  }

  [asyncDispose] () {
    return this.close()
  }
}

/** Bytes may be written over while the lock is held; text stays as it is. */
const copied = (key) => typeof key === 'string' ? key : new Uint8Array(key)

module.exports = { Client }
