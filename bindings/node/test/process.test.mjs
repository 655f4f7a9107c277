// Goal: the process ends by itself when only fairlock is left, stays while a call is under way, and never ends with an error of ours.
// Method: scripts in processes of their own, against a node in this one.

import assert from 'node:assert/strict'
import test from 'node:test'
import { clientOf, eventually, newKey, node, script, sleep, waitersOf } from './support.mjs'

const server = await node()
const head = `
import { Client, Server } from '../index.mjs'
const client = new Client('${server.address}')
`

async function endsWell (code, { output = '', limitMs = 3_000, ...options } = {}) {
  const ended = await script(code, options)
  assert.equal(ended.errors, '')
  assert.equal(ended.signal, null)
  assert.equal(ended.code, 0)
  assert.equal(ended.output, output)
  assert.ok(ended.ms < limitMs, `took ${ended.ms} ms`)
  return ended
}

test('importing does nothing: the addon is not even loaded', async () => {
  await endsWell(`
    import * as fairlock from '../index.mjs'
    import fs from 'node:fs'
    const loaded = () => fs.readFileSync('/proc/self/maps', 'utf8').includes('fairlock.')
    console.log(Object.keys(fairlock).length > 10, loaded(), (new fairlock.Fence(), loaded()))`, { output: 'true false true\n' })
})

test('an idle client lets the process end', async () => {
  await endsWell(`${head} await client.withLock('${newKey()}', () => {})`)
  await endsWell(`${head}`)
  await endsWell(`import { Client } from '../index.mjs'; new Client('127.0.0.1:1')`)
})

test('a held lock lets the process end, and is released on the way', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  await endsWell(`${head} globalThis.lock = await client.acquire('${key}', { keepAlive: true })
    globalThis.signal = lock.lostSignal`)
  await eventually(async () => !(await client.inspect(key)).held)
})

test('a pending acquire keeps the process alive until it is settled', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const running = endsWell(`${head} client.acquire('${key}').then(async (lock) => { console.log('had it'); await lock.release() })`,
    { output: 'had it\n', limitMs: 10_000 })
  await eventually(async () => await waitersOf(client, key) === 1)
  await sleep(300)
  assert.equal(await waitersOf(client, key), 1)
  await lock.release()
  await running
})

test('once it is aborted, a pending acquire keeps it alive no longer', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  await client.withLock(key, { keepAlive: true }, async () => {
    await endsWell(`${head} client.acquire('${key}', { signal: AbortSignal.timeout(50) }).catch((error) => console.log(error.name))
      setTimeout(() => {}, 100)`, { output: 'TimeoutError\n' })
    await eventually(async () => await waitersOf(client, key) === 0)
  })
})

test('process.exit with a lock, a waiting call and a server ends at once', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  await client.withLock(key, { keepAlive: true }, async () => {
    await endsWell(`${head} const own = await Server.start({ listen: '127.0.0.1:0' })
      const lock = await client.acquire('${newKey()}', { keepAlive: true })
      client.acquire('${key}')
      setTimeout(() => process.exit(0), 50)`)
    await eventually(async () => await waitersOf(client, key) === 0)
  })
})

test('an uncaught error ends the process with its own message', async () => {
  const ended = await script(`${head} await client.acquire('${newKey()}'); client.acquire('${newKey()}'); throw new Error('of the program')`)
  assert.equal(ended.code, 1)
  assert.match(ended.errors, /of the program/)
})

test('nothing of the library is rejected unhandled: results that nobody waits for', async () => {
  await endsWell(`${head}
    const lock = await client.acquire('${newKey()}', { leaseMs: 50 })
    lock.lostSignal
    await new Promise((resolve) => setTimeout(resolve, 100))
    await client.close()`)
})

test('a server keeps the process alive until it is stopped, or does not if it is told so', async () => {
  await endsWell(`import { Server } from '../index.mjs'
    const server = await Server.start({ listen: '127.0.0.1:0' })
    setTimeout(() => { console.log('stopping'); server.stop() }, 200).unref()`, { output: 'stopping\n' })
  await endsWell(`import { Server } from '../index.mjs'; (await Server.start({ listen: '127.0.0.1:0' })).unref()`)
})

test('short scripts that end while they hold or wait: all with code 0, all soon', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  await client.withLock(key, { keepAlive: true }, async () => {
    const ways = [
      `globalThis.lock = await client.acquire('a')`,
      `client.acquire('${key}'); process.exitCode = 0; setImmediate(() => process.exit())`,
      `await client.acquire('${key}', { waitMs: 20 }).catch(() => {})`,
      `client.acquire('${key}', { signal: AbortSignal.timeout(20) }).catch(() => {})`,
      `client.close(); client.acquire('b').catch(() => {})`,
    ]
    const took = []
    for (let round = 0; round < 15; round++) took.push((await endsWell(`${head} ${ways[round % ways.length].replace("'a'", `'${newKey()}'`)}`)).ms)
    t.diagnostic(`slowest of ${took.length}: ${Math.round(Math.max(...took))} ms`)
  })
})

test('child processes are processes of their own: nothing is inherited', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const ended = await script(`
    import { fork } from 'node:child_process'
    import { once } from 'node:events'
    import cluster from 'node:cluster'
    ${head}
    const lock = await client.acquire('${newKey()}')
    const [code] = await once(fork('./child.mjs', ['${server.address}', '${key}'], { execArgv: [] }), 'exit')
    cluster.setupPrimary({ exec: './child.mjs', execArgv: [], args: ['${server.address}', '${key}'] })
    const [other] = await once(cluster.fork(), 'exit')
    console.log(code, other, lock.held, await lock.release())`)
  assert.equal(ended.output, 'locked\nlocked\n0 0 true true\n', ended.errors)
  assert.equal(await lock.release(), true)
})
