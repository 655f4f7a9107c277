'use strict'

// For the protected resource: refuses whoever comes with a token older than the last one seen.

const native = require('./native')
const { checkKey, checkToken } = require('./arguments')
const { now } = require('./bridge')

class Fence {
  #fence = native().newFence()

  check (key, token) {
    checkKey(key)
    checkToken(token)
    now(native().fenceCheck(this.#fence, key, token))
  }

  highest (key) {
    checkKey(key)
    return native().fenceHighest(this.#fence, key)
  }

  forget (key) {
    checkKey(key)
    native().fenceForget(this.#fence, key)
  }
}

module.exports = { Fence }
