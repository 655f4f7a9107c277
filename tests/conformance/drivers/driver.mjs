// The driver in JavaScript: does what each line of its standard input says and prints what the caller got. It
// decides nothing about locks; the drivers in the other languages read the same lines and print the same.

import { createInterface } from 'node:readline'
import {
  Client, ClientClosed, ConnectionFailed, Fence, LockLost, Refused, ReleaseUnconfirmed, StaleToken, WaitTimeout,
} from '../../../bindings/node/index.mjs'

class Body extends Error {}

const say = (line) => process.stdout.write(`${line}\n`)

function decode (spelling) {
  const bytes = []
  const raw = Buffer.from(spelling)
  for (let at = 0; at < raw.length; at++) {
    if (raw[at] === 0x25) {
      bytes.push(parseInt(raw.toString('latin1', at + 1, at + 3), 16))
      at += 2
    } else {
      bytes.push(raw[at])
    }
  }
  return Buffer.from(bytes)
}

/** Text where the bytes are text, as most callers give a key. */
function key (spelling) {
  const bytes = decode(spelling)
  const text = bytes.toString()
  return Buffer.from(text).equals(bytes) ? text : bytes
}

function encode (key) {
  const escaped = []
  for (const byte of Buffer.from(key)) {
    if (byte <= 0x20 || byte === 0x25 || byte === 0x7F) {
      escaped.push(...Buffer.from(`%${byte.toString(16).toUpperCase().padStart(2, '0')}`))
    } else {
      escaped.push(byte)
    }
  }
  return Buffer.from(escaped).toString()
}

function spell (error) {
  if (error instanceof Body) return 'failed body'
  if (error instanceof Refused) return `error refused ${error.reason}`
  if (error instanceof LockLost) return `error lock_lost ${error.reason}`
  if (error instanceof WaitTimeout) return 'error wait_timeout'
  if (error instanceof ConnectionFailed) return 'error connection_failed'
  if (error instanceof ReleaseUnconfirmed) return 'error release_unconfirmed'
  if (error instanceof StaleToken) return 'error stale_token'
  if (error instanceof ClientClosed) return 'error closed'
  if (error instanceof RangeError || error instanceof TypeError) return 'error invalid_argument'
  if (error?.name === 'AbortError') return 'error cancelled'
  return `error ${error?.name} ${error?.message}`
}

class Play {
  client = null
  locks = new Map()
  aborts = new Map()
  fence = new Fence()

  constructor (number) { this.number = number }

  say (op, text) { say(`${this.number} ${op} ${text}`) }

  open (options) {
    this.client = new Client({
      servers: options.servers.split(','),
      name: options.name && decode(options.name).toString(),
      secret: options.secret && decode(options.secret).toString(),
      connectTimeoutMs: options.connect_timeout && Number(options.connect_timeout),
      retryForMs: options.retry_for && Number(options.retry_for),
      followMoves: options.follow_moves,
    })
    return 'open'
  }

  granted (op, lock) {
    if (lock === null) return 'none'
    this.locks.set(op, lock)
    return `granted ${encode(lock.key)} ${lock.token}`
  }

  take (op) {
    const lock = this.locks.get(op)
    this.locks.delete(op)
    return lock
  }

  /** Leaves the lock's scope as `await using` does, which this version of Node cannot parse yet. */
  async scope (lock, body) {
    try {
      body()
    } catch (error) {
      await lock[Symbol.asyncDispose]().catch(() => {})
      throw error
    }
    await lock[Symbol.asyncDispose]()
  }

  lockOptions (op, flags, options, signal) {
    return {
      leaseMs: options.lease && Number(options.lease),
      ...(options.wait && { waitMs: Number(options.wait) }),
      keepAlive: flags.includes('keep_alive'),
      maxHoldMs: options.max_hold && Number(options.max_hold),
      onLost: (lost) => this.say(op, `lost ${lost.reason}`),
      signal,
    }
  }

  async call (verb, op, flags, options, signal) {
    const [first, second] = flags
    switch (verb) {
      case 'open':
        return this.open(options)
      case 'acquire':
        return this.granted(op, await this.client.acquire(key(first), this.lockOptions(op, flags, options, signal)))
      case 'try':
        return this.granted(op, await this.client.tryAcquire(key(first), this.lockOptions(op, flags, options, signal)))
      case 'release': {
        // A release cannot be given up in this language; a caller can only stop to wait for it.
        const gaveUp = new Promise((resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason), { once: true })
        })
        return `released ${await Promise.race([this.locks.get(first).release(), gaveUp])}`
      }
      case 'keep':
        await this.locks.get(first).keep({ leaseMs: options.lease && Number(options.lease), signal })
        return 'kept'
      case 'remaining':
        return `remaining ${Math.floor(this.locks.get(first).remainingMs)}`
      case 'held':
        return `held ${this.locks.get(first).held}`
      case 'leave':
        await this.scope(this.take(first), () => {})
        return 'left'
      case 'fail':
        await this.scope(this.take(first), () => { throw new Body('body') })
        return 'never'
      case 'fence':
        this.fence.check(key(first), BigInt(second))
        return 'passed'
      case 'close':
        await this.client.close()
        return 'closed'
      default:
        return `unknown verb ${verb}`
    }
  }

  async obey (verb, op, words) {
    if (verb === 'cancel') return this.aborts.get(op)?.abort()
    const flags = words.filter((word) => !word.includes('='))
    const options = Object.fromEntries(words.filter((word) => word.includes('=')).map((word) => {
      const at = word.indexOf('=')
      return [word.slice(0, at), word.slice(at + 1)]
    }))
    const abort = new AbortController()
    this.aborts.set(op, abort)
    try {
      this.say(op, await this.call(verb, op, flags, options, abort.signal))
    } catch (error) {
      this.say(op, spell(error))
    }
  }
}

const plays = new Map()
say('ready')
for await (const line of createInterface({ input: process.stdin })) {
  const [number, verb, op, ...words] = line.split(' ')
  if (verb === 'end') {
    // Closed, so that it does not go on connecting to a server that is gone.
    plays.get(number)?.client?.close()
    plays.delete(number)
    continue
  }
  if (!plays.has(number)) plays.set(number, new Play(number))
  plays.get(number).obey(verb, op, words)
}
process.exit(0)
