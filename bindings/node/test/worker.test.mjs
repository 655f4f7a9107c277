// Goal: worker threads use fairlock like any other thread, and may end at any moment.
// Method: workers that hold, wait and end by themselves or are terminated, against a node of this thread.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import test from 'node:test'
import { Worker } from 'node:worker_threads'
import { clientOf, eventually, newKey, node, packageFolder, waitersOf } from './support.mjs'

const server = await node()
const rounds = Number(process.env.FAIRLOCK_TEST_WORKERS ?? 100)

function work (code, workerData = {}) {
  const worker = new Worker(`
    const { parentPort, workerData } = require('node:worker_threads')
    const { Client, Fence } = require(${JSON.stringify(packageFolder)})
    const client = new Client(${JSON.stringify(server.address)})
    ;(async () => { ${code} })()`, { eval: true, workerData })
  worker.on('error', (error) => { throw error })
  return worker
}

test('workers lock against each other and the main thread', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const counter = new Int32Array(new SharedArrayBuffer(8))
  const workers = Array.from({ length: 4 }, () => work(`
    for (let round = 0; round < 50; round++) await client.withLock(workerData.key, async () => {
      if (Atomics.add(workerData.counter, 1, 1) !== 0) throw new Error('two inside')
      await new Promise(setImmediate)
      workerData.counter[0]++
      Atomics.sub(workerData.counter, 1, 1)
    })`, { key, counter }))
  const ended = workers.map((worker) => once(worker, 'exit'))
  for (let round = 0; round < 50; round++) await client.withLock(key, () => { counter[0]++ })
  for (const [code] of await Promise.all(ended)) assert.equal(code, 0)
  assert.equal(counter[0], 250)
})

test('a worker that holds a lock ends by itself, and the lock is released', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const worker = work(`globalThis.lock = await client.acquire(workerData.key, { keepAlive: true }); lock.lostSignal`, { key })
  const [code] = await once(worker, 'exit')
  assert.equal(code, 0)
  await eventually(async () => !(await client.inspect(key)).held)
})

test('a pending acquire keeps a worker alive; terminated, it leaves the queue', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const lock = await client.acquire(key)
  const worker = work(`parentPort.postMessage('waiting'); await client.acquire(workerData.key)`, { key })
  await once(worker, 'message')
  await eventually(async () => await waitersOf(client, key) === 1)
  await worker.terminate()
  await eventually(async () => await waitersOf(client, key) === 0)
  assert.equal(await lock.release(), true)
  assert.equal((await client.inspect(key)).held, false)
})

test('a worker terminated while its loop is blocked loses nothing for the others', async (t) => {
  const client = clientOf(t, server)
  const key = newKey()
  const worker = work(`await client.acquire(workerData.key); parentPort.postMessage('holding'); for (;;);`, { key })
  await once(worker, 'message')
  const waiting = client.acquire(key)
  await worker.terminate()
  await (await waiting).release()
})

test('a worker leaves nothing open', async () => {
  const open = () => readdirSync('/proc/self/fd').length
  const one = () => once(work('await client.withLock(workerData.key, () => {}); await client.close()', { key: newKey() }), 'exit')
  for (let round = 0; round < 3; round++) await one()
  const before = open()
  for (let round = 0; round < 10; round++) await one()
  await eventually(() => open() < before + 5)
})

test(`${rounds} workers started and ended in every phase`, async (t) => {
  const client = clientOf(t, server)
  const hot = newKey()
  const ways = [
    `await client.withLock(workerData.key, () => {})`,
    `globalThis.lock = await client.acquire(workerData.key); lock.lostSignal`,
    `client.acquire(workerData.hot); parentPort.postMessage('terminate me')`,
    `client.acquire(workerData.key); process.exit()`,
    `client.close()`,
    `const controller = new AbortController(); client.acquire(workerData.hot, { signal: controller.signal }).catch(() => {}); setImmediate(() => controller.abort())`,
  ]
  await client.withLock(hot, { keepAlive: true }, async () => {
    let next = 0
    await Promise.all(Array.from({ length: 4 }, async () => {
      while (next < rounds) {
        const way = next++ % ways.length
        const worker = work(ways[way], { key: newKey(), hot })
        const exit = once(worker, 'exit')
        worker.once('message', () => worker.terminate())
        await exit
      }
    }))
    await eventually(async () => await waitersOf(client, hot) === 0)
  })
  assert.equal((await client.status()).waiting, 0)
})
