'use strict'

// Calls that take time: the addon gives each a number, and says under that number what became of it. One bridge
// for each JavaScript environment. Promises in here are never rejected, so none can be rejected unhandled; errors
// are made where a caller waits, so that their stacks say who.

const native = require('./native')
const { errorFrom } = require('./errors')

/** What a call ends with if not with a value. */
class Failed {
  constructor (failure) { this.failure = failure }
}
class Aborted {
  constructor (reason) { this.reason = reason }
}

/** Who waits for the call of each number, and the signals that can end some of them. */
const resolvers = []
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

/** The number of the bridge, opened at the first use. */
let bridge
const open = () => bridge ??= native().openBridge(drain, readsItself)

// Two places for each entry: its number, and what it is (`kind` in bridge.rs).
const entries = new Uint32Array(512)
const [FALSE, TRUE, OBJECT, FAILURE, LOST] = [1, 2, 3, 4, 5]

function drain () {
  // Told at the end: it runs code of the program, and the calls that this begins may get numbers that are still to be settled here.
  const losses = []
  let count
  do {
    const objects = []
    count = native().drain(bridge, entries, objects)
    for (let at = 0, next = 0; at < count; at++) {
      const number = entries[2 * at]
      switch (entries[2 * at + 1]) {
        case OBJECT: settle(number, objects[next++]); break
        case TRUE: settle(number, true); break
        case FALSE: settle(number, false); break
        case FAILURE: settle(number, new Failed(objects[next++])); break
        case LOST: losses.push([number, objects[next++]]); break
        default: settle(number, undefined)
      }
    }
  } while (count === entries.length / 2)
  for (const [watch, failure] of losses) lost(watch, failure)
}

function settle (number, outcome) {
  const resolve = resolvers[number]
  resolvers[number] = undefined
  if (signals.size > 0) forget(number)
  resolve(outcome)
}

/**
 * A promise of the outcome of a call, to be looked at with `finished`. `begun` is what the addon gave: the number of the call, or a failure
 * if nothing was begun.
 */
function call (begun, signal) {
  return new Promise((resolve) => {
    if (typeof begun !== 'number') return resolve(new Failed(begun))
    resolvers[begun] = resolve
    if (signal !== undefined) abortOn(signal, begun)
  })
}

/** The value of an outcome, or its error thrown. */
function finished (outcome) {
  if (outcome instanceof Failed) throw errorFrom(outcome.failure)
  if (outcome instanceof Aborted) throw outcome.reason
  return outcome
}

/** The calls that each signal can end. One listener for all of them: Node takes more than ten of one signal for a leak. */
const endedBy = new WeakMap()

function abortOn (signal, number) {
  let calls = endedBy.get(signal)
  if (calls === undefined) {
    calls = { numbers: new Set(), listener: () => abort(signal) }
    endedBy.set(signal, calls)
  }
  if (calls.numbers.size === 0) signal.addEventListener('abort', calls.listener, { once: true })
  calls.numbers.add(number)
  signals.set(number, signal)
}

function forget (number) {
  const signal = signals.get(number)
  if (signal === undefined) return
  signals.delete(number)
  const calls = endedBy.get(signal)
  calls.numbers.delete(number)
  if (calls.numbers.size === 0) signal.removeEventListener('abort', calls.listener)
}

function abort (signal) {
  const numbers = [...endedBy.get(signal).numbers]
  for (const number of numbers) {
    native().cancel(bridge, number)
    settle(number, new Aborted(signal.reason))
  }
}

/** Aborts the controller when the lock is lost. */
function listenForLoss (lock, held, controller) {
  lastWatch = (lastWatch + 1) >>> 0
  lossListeners.set(lastWatch, new WeakRef(controller))
  collected.register(lock, lastWatch)
  native().watchLock(open(), lastWatch, held)
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

module.exports = { call, finished, hold, letGo, listenForLoss, make, now, open }
