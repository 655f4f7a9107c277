// Goal: what `npm pack` makes installs without Rust and works, as ES module and as CommonJS; and it is small.
// Method: pack, install into an empty folder with a PATH on which there is no cargo, run.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import test from 'node:test'
import { promisify } from 'node:util'
import { node, packageFolder } from './support.mjs'

const run = promisify(execFile)
const server = await node()
const addon = fs.readdirSync(packageFolder).find((name) => name.endsWith('.node'))

const unlessRelease = process.env.FAIRLOCK_NODE_PROFILE === 'release' ? false : 'only an addon as it is published is small'
test('the addon has at most 4 MB', { skip: unlessRelease }, (t) => {
  const { size } = fs.statSync(path.join(packageFolder, addon))
  t.diagnostic(`${addon}: ${(size / 1e6).toFixed(2)} MB`)
  assert.ok(size <= 4_000_000)
})

test('npm pack, npm install, import, require, without cargo', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'fairlock-pack-'))
  t.after(() => fs.rmSync(folder, { recursive: true }))
  const bin = path.join(folder, 'bin')
  fs.mkdirSync(bin)
  fs.symlinkSync(process.execPath, path.join(bin, 'node'))
  for (const tool of ['sh', 'env']) fs.symlinkSync((await run('which', [tool])).stdout.trim(), path.join(bin, tool))
  const npm = fs.realpathSync((await run('which', ['npm'])).stdout.trim())
  const withoutCargo = { ...process.env, PATH: bin, npm_config_audit: 'false', npm_config_fund: 'false', npm_config_update_notifier: 'false' }
  await assert.rejects(run('cargo', ['--version'], { env: withoutCargo }))

  const packed = await run(process.execPath, [npm, 'pack', '--json', '--pack-destination', folder], { cwd: packageFolder, env: withoutCargo })
  const [{ filename, files }] = JSON.parse(packed.stdout.slice(packed.stdout.indexOf('[')))
  const names = files.map((file) => file.path).sort()
  assert.deepEqual(names.filter((name) => !name.startsWith('lib/')),
    ['README.md', addon, 'index.d.mts', 'index.d.ts', 'index.js', 'index.mjs', 'package.json'].sort())

  const app = path.join(folder, 'app')
  fs.mkdirSync(app)
  fs.writeFileSync(path.join(app, 'package.json'), '{ "private": true }')
  const begun = performance.now()
  const installed = await run(process.execPath, [npm, 'install', '--offline', path.join(folder, filename)], { cwd: app, env: withoutCargo })
  t.diagnostic(`installed in ${Math.round(performance.now() - begun)} ms`)
  // npm speaks of `prepare` where a package comes from a file, and does not run it; from a registry it says nothing.
  const warnings = installed.stderr.split('\n').filter((line) => /warn/i.test(line) && !line.includes('install-scripts'))
  assert.deepEqual(warnings, [])
  const { scripts } = JSON.parse(fs.readFileSync(path.join(app, 'node_modules/fairlock/package.json'), 'utf8'))
  for (const script of ['preinstall', 'install', 'postinstall']) assert.equal(scripts[script], undefined)
  const use = `const client = new Client('${server.address}'); client.withLock('packed', (lock) => console.log(typeof lock.token))`
  for (const [type, head] of [['module', "import { Client } from 'fairlock'"], ['commonjs', "const { Client } = require('fairlock')"]]) {
    const used = await run(process.execPath, [`--input-type=${type}`, '--eval', `${head}; ${use}`], { cwd: app, env: withoutCargo })
    assert.equal(used.stdout, 'bigint\n')
  }
})

test('the loader: the override first, then the package of the platform; else it says what it tried', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'fairlock-loader-'))
  t.after(() => fs.rmSync(folder, { recursive: true }))
  for (const name of ['index.js', 'package.json', 'lib']) fs.cpSync(path.join(packageFolder, name), path.join(folder, name), { recursive: true })
  const use = (env) => run(process.execPath, ['--eval', "new (require('./index.js').Fence)(); console.log('loaded')"], { cwd: folder, env: { ...process.env, ...env } })
  await assert.rejects(use(), /no addon for .*Tried:[^]*fairlock\..*\.node/)
  assert.equal((await use({ FAIRLOCK_NODE_ADDON: path.join(packageFolder, addon) })).stdout, 'loaded\n')

  await run(process.execPath, [path.join(packageFolder, 'scripts/platform-package.js'), path.join(folder, 'node_modules')])
  assert.equal((await use()).stdout, 'loaded\n')
  const target = addon.slice('fairlock.'.length, -'.node'.length)
  const described = JSON.parse(fs.readFileSync(path.join(folder, `node_modules/@fairlock/${target}/package.json`), 'utf8'))
  assert.deepEqual([described.name, described.os, described.cpu], [`@fairlock/${target}`, [process.platform], [process.arch]])
})
