// Goal: the types are right for strict programs, as ES modules and as CommonJS, and say what is there.
// Method: the TypeScript compiler over programs that use everything; the names compared with those of the module.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import test from 'node:test'
import { promisify } from 'node:util'
import * as fairlock from '../index.mjs'
import { packageFolder } from './support.mjs'

const run = promisify(execFile)
/** Where test.sh keeps the compiler and the types of Node. */
const tools = process.env.FAIRLOCK_NPM_TOOLS ?? path.join(os.homedir(), '.cache/fairlock/npm')

test('tsc --strict passes where it should and complains where it should', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'fairlock-types-'))
  t.after(() => fs.rmSync(folder, { recursive: true }))
  fs.mkdirSync(path.join(folder, 'node_modules'))
  fs.symlinkSync(packageFolder, path.join(folder, 'node_modules/fairlock'), 'dir')
  for (const name of ['@types', 'undici-types']) {
    fs.symlinkSync(path.join(tools, 'node_modules', name), path.join(folder, 'node_modules', name), 'dir')
  }
  const program = fs.readFileSync(path.join(packageFolder, 'test/types.program.ts'), 'utf8')
  fs.writeFileSync(path.join(folder, 'module.mts'), program)
  fs.writeFileSync(path.join(folder, 'common.cts'), program)
  const options = ['--strict', '--noEmit', '--target', 'es2022', '--types', 'node', '--module', 'node20', '--preserveSymlinks', '--skipLibCheck', 'false']
  const { stdout } = await run(process.execPath, [path.join(tools, 'node_modules/typescript/bin/tsc'), ...options, 'module.mts', 'common.cts'], { cwd: folder })
    .catch((error) => error)
  assert.equal(stdout, '')
})

test('types, ES module and CommonJS have the same names', () => {
  const common = createRequire(import.meta.url)('..')
  const types = fs.readFileSync(path.join(packageFolder, 'index.d.ts'), 'utf8')
  const classes = [...types.matchAll(/^export class (\w+)/gm)].map((match) => match[1]).sort()
  assert.deepEqual(Object.keys(common).sort(), classes)
  assert.deepEqual(Object.keys(fairlock).sort(), classes)
  for (const name of classes) assert.equal(fairlock[name], common[name], 'one class, however it is loaded')
})

test('the types of a class name what the class has', () => {
  const types = fs.readFileSync(path.join(packageFolder, 'index.d.ts'), 'utf8')
  for (const name of ['Client', 'Lock', 'Server', 'Fence']) {
    const body = new RegExp(`^export class ${name}\\b[^]*?^}`, 'm').exec(types)[0]
    const named = new Set([...body.matchAll(/^ {2}(?:readonly )?(\w+)[ :<]/gm)].map((match) => match[1]))
    for (const word of ['static', 'private', 'constructor']) named.delete(word)
    const has = Object.getOwnPropertyNames(fairlock[name].prototype).filter((member) => member !== 'constructor')
    assert.deepEqual([...named].sort(), has.sort(), name)
  }
})
