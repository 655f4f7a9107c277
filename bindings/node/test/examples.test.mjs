// Goal: the examples run and print what they promise.
// Method: in a folder where `fairlock` is this package, against a node of this process.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import test, { after } from 'node:test'
import { promisify } from 'node:util'
import { node, packageFolder } from './support.mjs'

const run = promisify(execFile)
const server = await node()
const examples = path.join(packageFolder, '../../examples/node')
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'fairlock-examples-'))
after(() => fs.rmSync(folder, { recursive: true }))
fs.cpSync(examples, folder, { recursive: true, filter: (file) => !file.includes('node_modules') })
fs.mkdirSync(path.join(folder, 'node_modules'))
fs.symlinkSync(packageFolder, path.join(folder, 'node_modules/fairlock'), 'dir')

const outputs = {
  'first_lock.mjs': /^holding example:order:42, token \d+\nreleased example:order:42\n$/,
  'scheduled_job.mjs': /^nightly report: running it\n(nightly report: has run already, nothing to do\n){2}runs: 1\n$/,
  'leader_election.mjs': /^alpha leads\nalpha still leads after more than a lease\nalpha steps down\nbeta leads\nbeta steps down\n$/,
  'protected_resource.mjs': /^slow writer: token (\d+)\nfast writer: token (\d+)\nfast writer: written\nslow writer: refused, a newer token has been here\nslow writer: had lost the lock \(expired\)\n$/,
}

test('every example is run here', () => {
  assert.deepEqual(fs.readdirSync(examples).filter((name) => name.endsWith('.mjs')).sort(), Object.keys(outputs).sort())
})

test('the sample of the README with nodes of its own ends by itself', async () => {
  const readme = fs.readFileSync(path.join(packageFolder, 'README.md'), 'utf8')
  const samples = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code).filter((code) => code.includes('Server.start'))
  assert.equal(samples.length, 1)
  fs.writeFileSync(path.join(folder, 'sample.mjs'), samples[0])
  await run(process.execPath, ['--unhandled-rejections=strict', 'sample.mjs'], { cwd: folder, timeout: 20_000 })
})

for (const [name, expected] of Object.entries(outputs)) {
  test(name, async () => {
    const { stdout, stderr } = await run(process.execPath, ['--unhandled-rejections=strict', name],
      { cwd: folder, env: { ...process.env, FAIRLOCK_SERVERS: server.address }, timeout: 20_000 })
    assert.match(stdout, expected)
    assert.equal(stderr, '')
  })
}
