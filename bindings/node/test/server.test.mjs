// Goal: the node inside the process is a real one, and its options are all those of the core.

import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import test from 'node:test'
import { Client, Server } from '../index.mjs'
import native from '../lib/native.js'
import { newKey, packageFolder } from './support.mjs'

test('starts on a free port, serves, stops', async () => {
  const server = await Server.start({ listen: '127.0.0.1:0', maxKeys: 10, spin: 'off', maxUnread: '1MiB' })
  assert.match(server.address, /^127\.0\.0\.1:\d+$/)
  const client = new Client({ servers: server.address, connectTimeoutMs: 200 })
  assert.equal(await client.withLock(newKey(), () => 5), 5)
  await client.close()
  await Promise.all([server.stop(), server.stop()])
  await server.stop()
  const late = new Client({ servers: server.address, connectTimeoutMs: 200 })
  await assert.rejects(late.status(), { code: 'ERR_CONNECTION_FAILED' })
  await late.close()
})

test('Symbol.asyncDispose stops it', async () => {
  const server = await Server.start({ listen: '127.0.0.1:0' })
  await server[Symbol.asyncDispose]()
})

test('with a data dir tokens rise over restarts', async (t) => {
  const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), 'fairlock-test-'))
  t.after(() => fs.rmSync(dataDir, { recursive: true }))
  let last = 0n
  for (let round = 0; round < 3; round++) {
    const server = await Server.start({ listen: '127.0.0.1:0', dataDir })
    const client = new Client(server.address)
    await client.withLock('k', (lock) => {
      assert.ok(lock.token > last)
      last = lock.token
    })
    await assert.rejects(Server.start({ listen: '127.0.0.1:0', dataDir }), { code: 'ERR_SERVER' })
    await client.close()
    await server.stop()
  }
})

test('the types name every setting of the core, and no other', () => {
  const types = fs.readFileSync(path.join(packageFolder, 'index.d.ts'), 'utf8')
  const body = /interface ServerOptions \{([^}]*)\}/.exec(types)[1]
  const named = [...body.matchAll(/^ {2}(\w+)\?:/gm)].map((match) => match[1])
  assert.deepEqual(named.sort(), native().serverSettings().sort())
})
