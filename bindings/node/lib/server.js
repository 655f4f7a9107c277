'use strict'

// A node inside this process, for tests and for programs that bring their own.

const { checkOptionsObject, wrong } = require('./arguments')
const { asyncDispose } = require('./lock')
const { call, finished, hold, letGo, open } = require('./bridge')
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
      if (!['string', 'number', 'boolean'].includes(typeof value)) throw wrong(name, 'a string, a number or true or false', value)
      given[name] = value
    }
    const server = finished(await call(native().startServer(open(), given)))
    return new Server(madeHere, server)
  }

  get address () { return this.#address }

  async stop () {
    this.unref()
    this.#stopped ??= call(native().stopServer(open(), this.#server))
    finished(await this.#stopped)
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

module.exports = { Server }
