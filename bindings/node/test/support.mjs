// What the tests share: a node, a scripted server, other processes, and waiting for an event with a limit.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'
import path from 'node:path'
import { after } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Client, Server } from '../index.mjs'

export const packageFolder = path.join(path.dirname(fileURLToPath(import.meta.url)), '..')

/** A node for all tests of a file. */
export async function node (options) {
  const server = await Server.start({ listen: '127.0.0.1:0', ...options })
  after(() => server.stop())
  return server
}

/** A client that is closed when the test ends. */
export function clientOf (t, server, options) {
  const servers = server.address ?? server
  const client = new Client({ servers, ...options })
  t.after(() => client.close())
  return client
}

let lastKey = 0
/** A key that no other test uses. */
export const newKey = () => `key-${process.pid}-${++lastKey}`

/** Waits until `look` gives something true, and gives that. */
export async function eventually (look, what = String(look), limitMs = 10_000) {
  const end = Date.now() + limitMs
  for (;;) {
    const seen = await look()
    if (seen) return seen
    if (Date.now() > end) assert.fail(`not within ${limitMs} ms: ${what}`)
    await sleep(5)
  }
}

export const waitersOf = async (client, key) => (await client.inspect(key)).waiters

/** What a promise that has to be rejected is rejected with. */
export async function rejection (promise) {
  let value
  try {
    value = await promise
  } catch (error) {
    return error
  }
  assert.fail(`resolved with ${String(value)} instead of being rejected`)
}

/** Runs a script in a process of its own, as a module in the folder of the tests. */
export async function script (code, { env, args = [], limitMs = 20_000 } = {}) {
  const begun = performance.now()
  const child = spawn(process.execPath, ['--unhandled-rejections=strict', ...args, '--input-type=module', '--eval', code], {
    cwd: path.join(packageFolder, 'test'),
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const timer = setTimeout(() => child.kill('SIGKILL'), limitMs)
  let output = ''
  let errors = ''
  child.stdout.on('data', (data) => { output += data })
  child.stderr.on('data', (data) => { errors += data })
  const [code_, signal] = await once(child, 'close')
  clearTimeout(timer)
  return { code: code_, signal, output, errors, ms: performance.now() - begun }
}

/**
 * A server that answers as the test says: `answer(fields, say, socket, tag)` for each line but the hello and the pings.
 * `fields` are those of the line without the tag; `say(text)` answers with the tag.
 */
export async function scripted (t, answer, { hello = true } = {}) {
  const lines = []
  const sockets = new Set()
  const server = net.createServer((socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    let rest = ''
    socket.on('data', (data) => {
      const whole = (rest + data).split('\n')
      rest = whole.pop()
      for (const line of whole) {
        lines.push(line)
        const fields = line.split(' ')
        const tag = fields.at(-1).startsWith('#') ? ` ${fields.pop()}` : ''
        const say = (text) => socket.write(`${text}${tag}\n`)
        if (fields[0] === 'H' && hello) socket.write(`H 1 role=active node=${address} active=${address} peers=${address} server=test\n`)
        else if (fields[0] === 'P') say('P')
        else answer(fields, say, socket, tag)
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = `127.0.0.1:${server.address().port}`
  const stop = () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  }
  t.after(stop)
  return { address, lines, sockets, stop }
}

/** An address at which nobody listens. */
export async function deadAddress () {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = `127.0.0.1:${server.address().port}`
  server.close()
  await once(server, 'close')
  return address
}

export { sleep }
