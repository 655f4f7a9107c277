'use strict'

// Calls that take time: the addon gives each a number, and says under that number what became of it. One bridge
// for each JavaScript environment. A call has one promise, the one that the caller waits for; it is settled as soon as
// the addon says so. Errors are made where a caller waits, so that their stacks say who.

const native = require('./native')
const { errorFrom } = require('./errors')

/** A call under way: who waits for it, and the lock that it is to get or to release. */
class Call {
  constructor (resolve, reject, lock) {
    this.resolve = resolve
    this.reject = reject
    this.lock = lock
  }
}

/** What a lock is told: that it was `granted`, that its release has `ended`, that somebody has to `watch` it because it may be forgotten. `lib/lock.js` has it. */
const tell = { granted: undefined, ended: undefined, watch: undefined }

/** The calls by number, and the signals that can end some of them. */
const underWay = []
const signals = new Map()

/**
 * Who wants to hear of the loss of a lock. The list holds its controller weakly: what listens to the loss often refers to
 * the lock, and must not keep it from being collected. The lock keeps the controller.
 */
const lossListeners = new Map()
const collected = new FinalizationRegistry((watch) => lossListeners.delete(watch))
let lastWatch = 0

// Bun has functions of the names of libuv that do nothing but end the process.
const readsItself = process.versions.bun === undefined && /^1\./.test(process.versions.uv)

/** The number of the bridge, opened at the first use, and the calls of it that are made without the number. */
let bridge
let fast

function open () {
  if (bridge === undefined) ({ number: bridge, calls: fast } = native().openBridge(drain, readsItself))
  return bridge
}

const calls = () => {
  if (fast === undefined) open()
  return fast
}

// Two places in front, then two or more for each entry: its number, and what it is (`kind` in bridge.rs).
const entries = new Int32Array(1024)
const [FALSE, TRUE, OBJECT, FAILURE, LOST, LOCK] = [1, 2, 3, 4, 5, 6]

/**
 * Locks that were granted in this turn of the event loop. Most are released in it; only those that are not have to be watched
 * for being forgotten.
 */
let fresh = []

function drain () {
  watchFresh()
  // Told at the end: it runs code of the program, and the calls that this begins may get numbers that are still to be settled here.
  const losses = []
  do {
    const objects = []
    const end = fast.drain(entries, objects)
    let object = 0
    for (let at = 2; at < end; at += 2) {
      const number = entries[at]
      switch (entries[at + 1]) {
        case LOCK: {
          const { resolve, lock } = ended(number)
          tell.granted(lock, entries[at + 2], entries[at + 3], entries[at + 4])
          if (entries[1] !== 0) fresh.push(lock)
          else tell.watch(lock)
          resolve(lock)
          at += 3
          break
        }
        case TRUE: settle(number, true); break
        case FALSE: settle(number, false); break
        case OBJECT: settle(number, objects[object++]); break
        case FAILURE: fail(number, objects[object++]); break
        case LOST: losses.push([number, objects[object++]]); break
        default: settle(number, undefined)
      }
    }
  } while (entries[0] !== 0)
  for (const [watch, failure] of losses) lost(watch, failure)
}

/** A call that has ended; its number may stand for another one from now on. */
function ended (number) {
  const call = underWay[number]
  underWay[number] = undefined
  if (signals.size > 0) forget(number)
  return call
}

function settle (number, value) {
  const { resolve, lock } = ended(number)
  if (lock !== undefined) tell.ended(lock, value === true)
  resolve(value)
}

function fail (number, failure) {
  const { resolve, lock } = ended(number)
  if (lock !== undefined) tell.ended(lock, false)
  resolve(failed(failure))
}

/** Rejected once the caller waits for it, which is when its stack can be seen: that takes two turns of the queue of promises. */
async function failed (failure) {
  await undefined
  await undefined
  await undefined
  throw errorFrom(failure)
}

let resolver, rejecter
const take = (resolve, reject) => {
  resolver = resolve
  rejecter = reject
}

/**
 * The promise of a call. `begun` is what the addon gave: the number of the call, or a failure if nothing was begun, which is thrown.
 * A `lock` is told of it first.
 */
function call (begun, signal, lock) {
  if (typeof begun !== 'number') throw errorFrom(begun)
  const promise = new Promise(take)
  underWay[begun] = new Call(resolver, rejecter, lock)
  // They know the promise, and with it the lock that it gives.
  resolver = rejecter = undefined
  if (signal !== undefined) abortOn(signal, begun)
  return promise
}

/** The calls that each signal can end. One listener for all of them: Node takes more than ten of one signal for a leak. */
const endedBy = new WeakMap()

function abortOn (signal, number) {
  let ends = endedBy.get(signal)
  if (ends === undefined) {
    ends = { numbers: new Set(), listener: () => abort(signal) }
    endedBy.set(signal, ends)
  }
  if (ends.numbers.size === 0) signal.addEventListener('abort', ends.listener, { once: true })
  ends.numbers.add(number)
  signals.set(number, signal)
}

function forget (number) {
  const signal = signals.get(number)
  if (signal === undefined) return
  signals.delete(number)
  const ends = endedBy.get(signal)
  ends.numbers.delete(number)
  if (ends.numbers.size === 0) signal.removeEventListener('abort', ends.listener)
}

function abort (signal) {
  const numbers = [...endedBy.get(signal).numbers]
  for (const number of numbers) {
    native().cancel(bridge, number)
    ended(number).reject(signal.reason)
  }
}

/** Aborts the controller when the lock is lost. */
function listenForLoss (lock, number, controller) {
  lastWatch = (lastWatch + 1) | 0
  lossListeners.set(lastWatch, new WeakRef(controller))
  collected.register(lock, lastWatch)
  native().watchLock(bridge, lastWatch, number)
}

function lost (watch, failure) {
  const controller = lossListeners.get(watch)?.deref()
  lossListeners.delete(watch)
  controller?.abort(errorFrom(failure))
}

/** What a call that is done at once gave: the value, or its failure thrown. */
function now (outcome) {
  if (outcome?.kind !== undefined) throw errorFrom(outcome)
  return outcome
}

/** Locks that may be forgotten, each with an object that has its number, or -1 when it is released. */
const forgotten = new FinalizationRegistry(({ number }) => {
  if (number >= 0) native().dropLock(bridge, number)
})

function watchFresh () {
  if (fresh.length === 0) return
  const locks = fresh
  fresh = []
  for (const lock of locks) tell.watch(lock)
}

const clients = new FinalizationRegistry((number) => native().dropClient(bridge, number))

/** The number of a client of this environment, which ends with its owner. */
function make (owner, options) {
  const number = now(native().newClient(open(), options))
  clients.register(owner, number)
  return number
}

/** Keeps this environment alive, or no longer. */
const hold = () => native().hold(open())
const letGo = () => native().letGo(open())

module.exports = { call, calls, forgotten, hold, letGo, listenForLoss, make, now, open, tell }
