'use strict'

// The error classes, and how what the addon says becomes one of them. The kinds and codes are those of the
// table in the core; a test compares the two.

/** What all errors of this package have in common, but for wrong arguments: those are TypeError and RangeError. */
class FairlockError extends Error {
  constructor (message, code) {
    super(message)
    this.code = code
  }
}

function named (name, code, withReason = false) {
  const Class = {
    [name]: class extends FairlockError {
      constructor (message, reason) {
        super(message, code)
        if (withReason) this.reason = reason
      }
    },
  }[name]
  Object.defineProperty(Class.prototype, 'name', { value: name, configurable: true, writable: true })
  return Class
}
Object.defineProperty(FairlockError.prototype, 'name', { value: 'FairlockError', configurable: true, writable: true })

const WaitTimeout = named('WaitTimeout', 'ERR_WAIT_TIMEOUT')
const ConnectionFailed = named('ConnectionFailed', 'ERR_CONNECTION_FAILED')
const Refused = named('Refused', 'ERR_REFUSED', true)
const LockLost = named('LockLost', 'ERR_LOCK_LOST', true)
const ReleaseUnconfirmed = named('ReleaseUnconfirmed', 'ERR_RELEASE_UNCONFIRMED')
const StaleToken = named('StaleToken', 'ERR_STALE_TOKEN')
const ClientClosed = named('ClientClosed', 'ERR_CLOSED')
const ServerError = named('ServerError', 'ERR_SERVER')

const classOfKind = {
  WaitTimeout,
  ConnectionFailed,
  Refused,
  LockLost,
  ReleaseUnconfirmed,
  StaleToken,
  Closed: ClientClosed,
  Server: ServerError,
}

const withCode = (error, code) => Object.assign(error, { code })
const typeError = (message) => withCode(new TypeError(message), 'ERR_INVALID_ARG_TYPE')
const rangeError = (message) => withCode(new RangeError(message), 'ERR_OUT_OF_RANGE')

/** Options in the words of the core and of the server, by which name JavaScript knows them; nothing that is part of a path or of a longer word. */
const coreOptions = /(?<=^|[ (`])(?:keep_alive|max_hold|secret_file|ca_file|cert_file|key_file|server_name)(?=[ ,;:)?`]|$)/g
const inCamelCase = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())

/** The error for `{ kind, message, reason }` of the addon. */
function errorFrom ({ kind, message: said, reason }) {
  const message = said.replace(coreOptions, inCamelCase)
  if (kind === 'InvalidArgument') return rangeError(message)
  if (kind === 'WrongType') return typeError(message)
  const Class = classOfKind[kind]
  if (Class !== undefined) return new Class(message, reason)
  // What no caller here can see: this package gives calls up by itself, and Node does not fork.
  return new FairlockError(message, kind === 'Cancelled' ? 'ABORT_ERR' : `ERR_${kind.toUpperCase()}`)
}

module.exports = {
  classes: {
    FairlockError,
    WaitTimeout,
    ConnectionFailed,
    Refused,
    LockLost,
    ReleaseUnconfirmed,
    StaleToken,
    ClientClosed,
    ServerError,
  },
  errorFrom,
  rangeError,
  typeError,
}
