'use strict'

// A node inside this process, for tests and for programs that bring their own.

const { checkOptionsObject, wrong } = require('./arguments')
const { asyncDispose } = require('./lock')
const { call, hold, letGo, open } = require('./bridge')
const native = require('./native')
const { typeError } = require('./errors')

const madeHere = Symbol('made here')

class Server {
  #server
  #address
  /** Whether this server keeps the process alive. */
  #holds = false
  #stopped

  constructor (secret, server) {
    if (secret !== madeHere) throw typeError('a Server comes from Server.start()')
    this.#server = server
    this.#address = native().serverAddress(server)
    this.ref()
  }

  static async start (options) {
    const given = {}
    for (const [name, value] of Object.entries(checkOptionsObject(options))) {
      if (value === undefined) continue
      checkName(name)
      given[name] = plain(name, value)
    }
    const server = await call(native().startServer(open(), given))
    return new Server(madeHere, server)
  }

  static freeAddress () {
    return native().freeAddress()
  }

  get address () { return this.#address }

  stop () { return this.#end(true) }

  kill () { return this.#end(false) }

  async #end (inOrder) {
    this.unref()
    this.#stopped ??= call(native().stopServer(open(), this.#server, inOrder))
    await this.#stopped
  }

  ref () {
    if (!this.#holds) hold()
    this.#holds = true
    return this
  }

  unref () {
    if (this.#holds) letGo()
    this.#holds = false
    return this
  }

  [asyncDispose] () {
    return this.stop()
  }
}

function checkName (name) {
  const names = native().serverSettings()
  if (names.includes(name)) return
  const near = names.filter((known) => known.toLowerCase().startsWith(name.slice(0, 5).toLowerCase()))
  throw typeError(`there is no option ${JSON.stringify(name)}; there ${near.length === 1 ? 'is' : 'are'} ${(near.length > 0 ? near : names).join(', ')}`)
}

/** A setting as the core reads it. */
function plain (name, value) {
  if (name === 'peers' && Array.isArray(value) && value.every((peer) => typeof peer === 'string')) return value.join(',')
  if (!['string', 'number', 'boolean'].includes(typeof value)) throw wrong(name, 'a string, a number or true or false', value)
  return value
}

module.exports = { Server }
