'use strict'

// A held lock. Who holds it is this object: when it is collected, the lock is released in the background.

const native = require('./native')
const { checkOptions, defaultLeaseMs } = require('./arguments')
const { call, calls, forgotten, listenForLoss, open, tell } = require('./bridge')
const { errorFrom, rangeError, typeError } = require('./errors')

// Node has it from 20.4 on. Compilers that know `await using` fall back to the same stand-in.
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')
const inspected = Symbol.for('nodejs.util.inspect.custom')
const madeHere = Symbol('made here')
const keepOptions = { leaseMs: 'number', signal: 'signal' }

class Lock {
  #key
  /** Of the lock in the addon; -1 before it is granted and once it is released. */
  #number = -1
  /** The two halves of the token: most programs look at it later or never. */
  #tokenLow = 0
  #tokenHigh = 0
  /** Undefined where only the addon knows it. */
  #leaseMs
  /** The release has begun. */
  #leaving = false
  #lost
  /** What finds the lock if this object is forgotten. */
  #watched

  constructor (secret, key, leaseMs, onLost) {
    if (secret !== madeHere) throw typeError('a Lock comes from client.acquire()')
    this.#key = key
    if (leaseMs === undefined) this.#leaseMs = defaultLeaseMs
    // Until it is granted.
    this.#lost = onLost
  }

  get key () { return this.#key }
  get token () { return BigInt.asUintN(32, BigInt(this.#tokenLow)) | BigInt(this.#tokenHigh >>> 0) << 32n }
  get leaseMs () { return this.#number < 0 ? this.#leaseMs : native().lockLeaseMs(open(), this.#number) }
  get remainingMs () { return this.#leaving ? 0 : native().lockRemainingMs(open(), this.#number) }
  get held () { return !this.#leaving && native().lockHeld(open(), this.#number) }

  get lostSignal () {
    this.#lost ??= watchLoss(this, this.#number)
    return this.#lost.signal
  }

  async keep (options) {
    const { leaseMs, signal } = checkOptions(options, keepOptions)
    signal?.throwIfAborted()
    if (this.#number < 0) throw rangeError('the lock has been released; it cannot be kept any more')
    // A lock that is being released keeps the lease that it has.
    if (leaseMs !== undefined && !this.#leaving) this.#leaseMs = undefined
    return await call(native().keepLock(open(), this.#number, leaseMs), signal)
  }

  release () {
    try {
      if (this.#number < 0) return Promise.resolve(true)
      this.#leaseMs ??= native().lockLeaseMs(open(), this.#number)
      const released = call(calls().releaseLock(this.#number), undefined, this)
      this.#leaving = true
      return released
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async [asyncDispose] () {
    await this.release()
  }

  [inspected] (depth, options, inspect) {
    const { key, token, held } = this
    return shown('Lock', { key, token, held }, depth, options, inspect)
  }

  static {
    tell.granted = (lock, number, tokenLow, tokenHigh) => {
      lock.#number = number
      lock.#tokenLow = tokenLow
      lock.#tokenHigh = tokenHigh
      const onLost = lock.#lost
      if (onLost !== undefined) {
        lock.#lost = undefined
        // Not yet: what is lost already is told at the end of the turn after this, when the program has its lock.
        queueMicrotask(() => tellLoss(lock, onLost))
      }
    }

    tell.ended = (lock, released) => {
      if (lock.#number < 0) return
      if (!released) return watch(lock)
      lock.#number = -1
      if (lock.#watched !== undefined) lock.#watched.number = -1
    }

    // The call of a release keeps the lock; where it fails the lock is watched then.
    tell.watch = (lock) => {
      if (!lock.#leaving) watch(lock)
    }

    const watch = (lock) => {
      if (lock.#watched !== undefined) return
      lock.#watched = { number: lock.#number }
      forgotten.register(lock, lock.#watched)
    }
  }
}

/** What `console.log` shows of an object of this package: its class, and what is not secret. */
function shown (name, facts, depth, options, inspect) {
  if (depth < 0) return options.stylize(`[${name}]`, 'special')
  return `${name} ${inspect(facts, { ...options, depth: options.depth === null ? null : options.depth - 1 })}`
}

function tellLoss (lock, onLost) {
  const signal = lock.lostSignal
  if (signal.aborted) {
    process.nextTick(onLost, signal.reason)
  } else {
    signal.addEventListener('abort', () => onLost(signal.reason), { once: true })
  }
}

/** A controller that aborts when the lock is lost. */
function watchLoss (lock, number) {
  const controller = new AbortController()
  // It was released, and is never lost.
  if (number < 0) return controller
  const loss = native().lockLost(open(), number)
  if (loss === null) listenForLoss(lock, number, controller)
  else controller.abort(errorFrom(loss))
  return controller
}

module.exports = { asyncDispose, inspected, Lock, madeHere, shown }
