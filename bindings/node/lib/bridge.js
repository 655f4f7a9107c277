'use strict'

// Calls that take time: each gets an id, and the addon says under that id what became of it. One bridge for
// each JavaScript environment. Promises in here are never rejected, so none can be rejected unhandled; errors
// are made where a caller waits, so that their stacks say who.

const native = require('./native')
const { errorFrom } = require('./errors')

/** What a call under way ends with if not with a value. */
class Failed {
  constructor (failure) { this.failure = failure }
}
class Aborted {
  constructor (reason) { this.reason = reason }
}

const underWay = new Map()
/**
 * Who wants to hear of the loss of a lock. The list holds its controller weakly: what listens to the loss often refers to
 * the lock, and must not keep it from being collected. The lock keeps the controller.
 */
const lossListeners = new Map()
const collected = new FinalizationRegistry((id) => lossListeners.delete(id))
let lastId = 0
let bridge

function drain () {
  const outcomes = native().drain(bridge)
  for (let at = 0; at < outcomes.length; at += 3) {
    const id = outcomes[at]
    const failure = outcomes[at + 1]
    const value = outcomes[at + 2]
    const call = underWay.get(id)
    if (call !== undefined) {
      underWay.delete(id)
      if (call.signal !== undefined) forget(call.signal, id)
      call.resolve(failure === undefined ? value : new Failed(failure))
    } else {
      lossListeners.get(id)?.deref()?.abort(errorFrom(value))
      lossListeners.delete(id)
    }
  }
}

// Bun has functions of the names of libuv that do nothing but end the process.
const readsItself = process.versions.bun === undefined && /^1\./.test(process.versions.uv)

const open = () => bridge ??= native().openBridge(drain, readsItself)

/**
 * Begins a call and gives a promise of its outcome, to be looked at with `finished`. `begin` is given the addon, the bridge and the
 * id, and gives back a failure if nothing was begun. `owner` is kept from being collected as long as the call is under way.
 */
function call (owner, begin, signal) {
  signal?.throwIfAborted()
  return new Promise((resolve) => {
    const id = ++lastId
    const failure = begin(native(), open(), id)
    if (failure) return resolve(new Failed(failure))
    underWay.set(id, { owner, resolve, signal })
    if (signal !== undefined) abortOn(signal, id)
  })
}

/** The calls that each signal can end. One listener for all of them: Node takes more than ten of one signal for a leak. */
const endedBy = new WeakMap()

function abortOn (signal, id) {
  let calls = endedBy.get(signal)
  if (calls === undefined) {
    calls = { ids: new Set(), listener: () => abort(signal) }
    endedBy.set(signal, calls)
  }
  if (calls.ids.size === 0) signal.addEventListener('abort', calls.listener, { once: true })
  calls.ids.add(id)
}

function forget (signal, id) {
  const calls = endedBy.get(signal)
  calls.ids.delete(id)
  if (calls.ids.size === 0) signal.removeEventListener('abort', calls.listener)
}

function abort (signal) {
  const { ids } = endedBy.get(signal)
  for (const id of ids) {
    const { resolve } = underWay.get(id)
    underWay.delete(id)
    native().cancel(bridge, id)
    resolve(new Aborted(signal.reason))
  }
  ids.clear()
}

/** The value of an outcome, or its error thrown. */
function finished (outcome) {
  if (outcome instanceof Failed) throw errorFrom(outcome.failure)
  if (outcome instanceof Aborted) throw outcome.reason
  return outcome
}

/** Aborts the controller when the lock is lost. */
function listenForLoss (lock, held, controller) {
  const id = ++lastId
  lossListeners.set(id, new WeakRef(controller))
  collected.register(lock, id)
  native().watchLock(open(), id, held)
}

/** What a call that is done at once gave: the value, or its failure thrown. */
function now (outcome) {
  if (outcome?.kind !== undefined) throw errorFrom(outcome)
  return outcome
}

/** A client of this environment. */
const make = (options) => now(native().newClient(open(), options))

/** Keeps this environment alive, or no longer. */
const hold = () => native().hold(open())
const letGo = () => native().letGo(open())

module.exports = { call, finished, hold, letGo, listenForLoss, make, now }
