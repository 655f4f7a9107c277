// Three nodes inside the test process: what a client notices when they go.

import assert from 'node:assert/strict'
import test from 'node:test'
import { Client, Server } from '../index.mjs'
import { clientOf, eventually, waitersOf } from './support.mjs'

/** Nodes that know of each other, by their addresses, the one of highest priority first. */
async function clusterOf (t, size, options) {
  const peers = Array.from({ length: size }, () => Server.freeAddress())
  const nodes = new Map()
  for (const node of peers) nodes.set(node, await Server.start({ peers, node, ...options }))
  t.after(() => Promise.all([...nodes.values()].map((node) => node.kill())))
  await serving(peers[0], size - 1)
  return nodes
}

/** Waits until a node is active and so many others have a copy of its state. */
async function serving (address, standbys) {
  const client = new Client({ servers: address, followMoves: 'listed' })
  await eventually(async () => {
    const status = await client.status()
    return status.role === 'active' && status.standbys.length === standbys
  }, `${address} serves, with ${standbys} standbys`)
  await client.close()
}

for (const way of ['stop', 'kill']) {
  test(`a lock and its queue outlive the active node: ${way}`, async (t) => {
    const nodes = await clusterOf(t, 3)
    const peers = [...nodes.keys()]
    const client = clientOf(t, peers)
    const other = clientOf(t, peers[2])
    const lock = await client.acquire('order:42')
    assert.deepEqual((await client.status()).peers, peers)
    let granted = false
    const next = other.acquire('order:42').finally(() => { granted = true })
    await eventually(async () => await waitersOf(client, 'order:42') === 1)
    await serving(peers[0], 2)
    await nodes.get(peers[0])[way]()
    await serving(peers[1], 1)
    assert.ok(lock.held)
    assert.equal(await waitersOf(client, 'order:42'), 1)
    assert.equal(granted, false)
    assert.equal(await lock.release(), true)
    const later = await next
    assert.ok(later.token > lock.token)
    await later.release()
  })
}

test('free addresses differ and nobody is there', async () => {
  const addresses = new Set(Array.from({ length: 20 }, () => Server.freeAddress()))
  assert.equal(addresses.size, 20)
  const client = new Client({ servers: [...addresses][0], connectTimeoutMs: 100 })
  await assert.rejects(client.status(), { code: 'ERR_CONNECTION_FAILED' })
  await client.close()
})

test('settings of a cluster are checked', async () => {
  const node = Server.freeAddress()
  for (const [options, message] of [
    [{ peers: ['a:1', 'b:1'], node: 'c:1' }, /that is none of `peers`, which are a:1,b:1/],
    [{ peers: [node, node], node }, /stands twice/],
    [{ node }, /`peers` is missing/],
    [{ peers: [node] }, /say which of `peers`/]
  ]) {
    await assert.rejects(Server.start(options), (error) => error instanceof RangeError && message.test(error.message))
  }
  await assert.rejects(Server.start({ peers: [1, 2], node }), TypeError)
})
