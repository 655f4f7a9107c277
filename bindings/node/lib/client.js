'use strict'

// The client. Each method checks its arguments and makes one call; what happens then is the core's business.

const native = require('./native')
const { checkKey, checkOptions, checkToken, defaultLeaseMs, wrong } = require('./arguments')
const { call, calls, make, open } = require('./bridge')
const { typeError } = require('./errors')
const { asyncDispose, inspected, madeHere, Lock, shown } = require('./lock')

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
  #servers
  #name
  #closed = false

  constructor (servers, more) {
    if (more !== undefined) throw typeError('options of a client go into one object with its servers: new Client({ servers, … })')
    const options = typeof servers === 'string' || Array.isArray(servers) ? { servers } : servers
    this.#client = make(this, { ...checkOptions(options, clientOptions) })
    this.#servers = options?.servers ?? (process.env.FAIRLOCK_SERVERS || '127.0.0.1:7420')
    this.#name = options?.name
  }

  static async connect (servers, options) {
    for (const name in options) {
      if (Object.hasOwn(clientOptions, name)) throw typeError(`${name} is an option of the client, and goes into one object with its servers: Client.connect({ servers, … })`)
    }
    const { signal } = checkOptions(options, callOptions)
    signal?.throwIfAborted()
    const client = new this(servers)
    try {
      await call(native().connected(open(), client.#client), signal)
    } catch (error) {
      await client.close()
      throw error
    }
    return client
  }

  // These two are no `async` functions: one promise less for each lock.
  acquire (key, options) {
    try {
      checkKey(key)
      if (options === undefined) {
        return call(calls().acquire(this.#client, key), undefined, new Lock(madeHere, copied(key)))
      }
      const { waitMs, leaseMs, keepAlive, maxHoldMs, onLost, signal } = checkOptions(options, acquireOptions)
      signal?.throwIfAborted()
      const lock = new Lock(madeHere, copied(key), leaseMs, onLost)
      return call(calls().acquire(this.#client, key, waitMs, leaseMs, maxHoldMs, flag(keepAlive)), signal, lock)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  tryAcquire (key, options) {
    try {
      checkKey(key)
      const { leaseMs, keepAlive, maxHoldMs, onLost, signal } = checkOptions(options, tryOptions)
      signal?.throwIfAborted()
      const lock = new Lock(madeHere, copied(key), leaseMs, onLost)
      return call(calls().tryAcquire(this.#client, key, leaseMs, maxHoldMs, flag(keepAlive)), signal, lock)
    } catch (error) {
      return Promise.reject(error)
    }
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
    return await call(native().inspect(open(), this.#client, key), signal)
  }

  async waiters (key, options) {
    checkKey(key)
    const { limit, signal } = checkOptions(options, waitersOptions)
    signal?.throwIfAborted()
    return await call(native().waiters(open(), this.#client, key, limit), signal)
  }

  async locks (options) {
    const { prefix, after, limit, signal } = checkOptions(options, locksOptions)
    signal?.throwIfAborted()
    return await call(native().locks(open(), this.#client, prefix, after, limit), signal)
  }

  async status (options) {
    const { signal } = checkOptions(options, callOptions)
    signal?.throwIfAborted()
    return await call(native().status(open(), this.#client), signal)
  }

  async release (key, token, options) {
    if (options !== undefined) throw typeError('a release takes no options: it is never given up')
    checkKey(key)
    checkToken(token)
    return await call(native().releaseToken(open(), this.#client, key, token))
  }

  async keep (key, token, options) {
    checkKey(key)
    checkToken(token)
    const { leaseMs = defaultLeaseMs, signal } = checkOptions(options, keepOptions)
    signal?.throwIfAborted()
    return await call(native().keepToken(open(), this.#client, key, token, leaseMs), signal)
  }

  async close () {
    this.#closed = true
    return await call(native().close(open(), this.#client))
  }

  [asyncDispose] () {
    return this.close()
  }

  [inspected] (depth, options, inspect) {
    const facts = { servers: this.#servers, ...this.#name !== undefined && { name: this.#name }, closed: this.#closed }
    return shown('Client', facts, depth, options, inspect)
  }
}

const flag = (value) => value ? 1 : undefined

/** Bytes may be written over while the lock is held; text stays as it is. */
const copied = (key) => typeof key === 'string' ? key : new Uint8Array(key)

module.exports = { Client }
