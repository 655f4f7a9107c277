'use strict'

// Types of arguments and names of options. Limits are the core's business.

const { isUint8Array } = require('node:util').types
const { rangeError, typeError } = require('./errors')

function kindOf (value) {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  const type = typeof value
  return type === 'undefined' ? type : `${/^[aeiou]/.test(type) ? 'an' : 'a'} ${type}`
}

const wrong = (name, expected, value) => typeError(`${name} has to be ${expected}, not ${kindOf(value)}`)

/** Text or bytes. Half of a surrogate pair has no bytes: two such keys would become one. */
function checkKey (key, name = 'key') {
  if (typeof key === 'string') {
    if (!key.isWellFormed()) throw rangeError(`${name} has half of a surrogate pair, which is no text; give the bytes as a Uint8Array`)
  } else if (!isUint8Array(key)) {
    throw wrong(name, 'a string or a Uint8Array', key)
  }
}

function checkToken (token) {
  if (typeof token !== 'bigint') throw wrong('token', 'a bigint', token)
}

const types = {
  number: (name, value) => { if (typeof value !== 'number') throw wrong(name, 'a number', value) },
  string: (name, value) => {
    if (typeof value !== 'string') throw wrong(name, 'a string', value)
    if (!value.isWellFormed()) throw rangeError(`${name} has half of a surrogate pair, which is no text`)
  },
  boolean: (name, value) => { if (typeof value !== 'boolean') throw wrong(name, 'true or false', value) },
  function: (name, value) => { if (typeof value !== 'function') throw wrong(name, 'a function', value) },
  key: (name, value) => checkKey(value, name),
  servers: (name, value) => {
    if (typeof value === 'string') return types.string(name, value)
    if (!Array.isArray(value)) throw wrong(name, 'an address or an array of addresses', value)
    for (const address of value) types.string(`an address in ${name}`, address)
  },
  secret: (name, value) => {
    if (!isUint8Array(value)) types.string(name, value)
  },
  signal: (name, value) => {
    // As Node does it, so that a signal of another realm or library serves too.
    if (typeof value !== 'object' || value === null || !('aborted' in value) ||
      typeof value.addEventListener !== 'function' || typeof value.removeEventListener !== 'function') {
      throw wrong(name, 'an AbortSignal', value)
    }
  },
}

const none = Object.freeze({})

/** What the core takes if it is told no lease. */
const defaultLeaseMs = 30_000

function checkOptionsObject (options) {
  if (options === undefined) return none
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw wrong('options', 'an object', options)
  }
  return options
}

/** The options, once every one of them is known and of its type. An option that is undefined is not there. */
function checkOptions (options, table) {
  if (options === undefined) return none
  checkOptionsObject(options)
  for (const name in options) {
    const type = Object.hasOwn(table, name) ? table[name] : undefined
    if (type === undefined) {
      throw typeError(`there is no option ${JSON.stringify(name)}; there are ${Object.keys(table).join(', ')}`)
    }
    if (options[name] !== undefined) types[type](name, options[name])
  }
  return options
}

module.exports = { checkKey, checkOptions, checkOptionsObject, checkToken, defaultLeaseMs, wrong }
