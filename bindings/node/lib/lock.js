'use strict'

// A held lock. Who holds it is this object: when it is collected, the lock is released in the background.

const native = require('./native')
const { checkOptions } = require('./arguments')
const { call, finished, listenForLoss, open } = require('./bridge')
const { errorFrom, typeError } = require('./errors')

// Node has it from 20.4 on. Compilers that know `await using` fall back to the same stand-in.
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')
const madeHere = Symbol('made here')
const keepOptions = { leaseMs: 'number', signal: 'signal' }

class Lock {
  #held
  #key
  #lost

  constructor (secret, held, key, onLost) {
    if (secret !== madeHere) throw typeError('a Lock comes from client.acquire()')
    this.#held = held
    this.#key = key
    if (onLost !== undefined) this.#tell(onLost)
  }

  get key () { return this.#key }
  get token () { return native().lockToken(this.#held) }
  get leaseMs () { return native().lockLeaseMs(this.#held) }
  get remainingMs () { return native().lockRemainingMs(this.#held) }
  get held () { return native().lockHeld(this.#held) }

  get lostSignal () {
    this.#lost ??= watch(this, this.#held)
    return this.#lost.signal
  }

  #tell (onLost) {
    const signal = this.lostSignal
    if (signal.aborted) {
      process.nextTick(onLost, signal.reason)
    } else {
      signal.addEventListener('abort', () => onLost(signal.reason), { once: true })
    }
  }

  async keep (options) {
    const { leaseMs, signal } = checkOptions(options, keepOptions)
    signal?.throwIfAborted()
    return finished(await call(native().keepLock(open(), this.#held, leaseMs), signal))
  }

  async release () {
    return finished(await call(native().releaseLock(open(), this.#held)))
  }

  async [asyncDispose] () {
    await this.release()
  }
}

/** A controller that aborts when the lock is lost. */
function watch (lock, held) {
  const controller = new AbortController()
  const loss = native().lockLost(held)
  if (loss === null) listenForLoss(lock, held, controller)
  else controller.abort(errorFrom(loss))
  return controller
}

module.exports = { asyncDispose, Lock, madeHere }
