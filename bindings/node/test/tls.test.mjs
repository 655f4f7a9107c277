// TLS through the real addon: what the options do is proved in the core, here that they arrive.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { Client, Server } from '../index.mjs'
import { clientOf, rejection } from './support.mjs'

let folder
const file = (name) => path.join(folder, name)
const own = (name) => ({ tlsCert: file(`${name}.pem`), tlsKey: file(`${name}.key`) })
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'fairlock-tls-'))
  execFileSync(process.env.FAIRLOCK_TEST_CERTIFICATES, [folder])
})
after(() => fs.rmSync(folder, { recursive: true }))

async function node (t, settings) {
  const server = await Server.start({ listen: '127.0.0.1:0', ...settings })
  t.after(() => server.stop())
  return server
}

test('locks over TLS, one and many at once', async (t) => {
  const client = clientOf(t, await node(t, own('server')), { caFile: file('ca.pem'), serverName: 'localhost' })
  await client.withLock('order:42', async (lock) => {
    assert.ok(lock.token > 0n)
    assert.equal(await client.tryAcquire('order:42'), null)
  })
  const locks = await Promise.all(Array.from({ length: 300 }, (_, number) => client.acquire(`key ${number}`)))
  await Promise.all(locks.map((lock) => lock.release()))
})

test('both sides show a certificate', async (t) => {
  const server = await node(t, { ...own('server'), tlsClientCa: file('ca.pem'), tlsClientAuth: 'required' })
  const caFile = file('ca.pem')
  const known = clientOf(t, server, { caFile, certFile: file('client.pem'), keyFile: file('client.key') })
  await (await known.acquire('k')).release()
  const error = await rejection(Client.connect({ servers: server.address, caFile, connectTimeoutMs: 1000 }))
  assert.equal(error.code, 'ERR_CONNECTION_FAILED')
  assert.match(error.message, /wants a certificate of this client/)
})

test('a server that is not trusted, one without TLS, and a client without it', async (t) => {
  const caFile = file('ca.pem')
  const stranger = await node(t, own('stranger'))
  let error = await rejection(Client.connect({ servers: stranger.address, caFile, connectTimeoutMs: 1000 }))
  assert.match(error.message, /no CA that is known here has signed it/)
  const plain = await node(t, {})
  error = await rejection(Client.connect({ servers: plain.address, caFile, connectTimeoutMs: 1000 }))
  assert.match(error.message, /does not speak TLS/)
  error = await rejection(Client.connect({ servers: stranger.address, tls: false }))
  assert.equal(error.code, 'ERR_REFUSED')
  assert.match(error.message, /this port speaks TLS/)
})

test('files that cannot be used are named', async () => {
  assert.throws(() => new Client({ caFile: file('no-such.pem') }), { name: 'RangeError', message: /no-such\.pem/ })
  assert.throws(() => new Client({ caFile: file('ca.pem'), certFile: file('client.pem') }), /keyFile|key_file/)
  assert.throws(() => new Client({ tls: 'yes' }), TypeError)
  const error = await rejection(Server.start({ listen: '127.0.0.1:0', ...own('expired') }))
  assert.match(error.message, /expired\.pem: .*it expired/)
})
