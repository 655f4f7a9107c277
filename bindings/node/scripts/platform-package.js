'use strict'

// Makes the package of one platform, `@fairlock/<platform>`, out of the addon that was built on it: node scripts/platform-package.js FOLDER
// A release publishes one for each platform and names them all as optional dependencies of `fairlock`.

const fs = require('node:fs')
const path = require('node:path')

const here = path.join(__dirname, '..')
const { version, license, engines } = require('../package.json')
const addon = fs.readdirSync(here).find((name) => /^fairlock\..*\.node$/.test(name))
const target = addon.slice('fairlock.'.length, -'.node'.length)
const [os, cpu, libc] = target.split('-')

const folder = path.join(process.argv[2], '@fairlock', target)
fs.mkdirSync(folder, { recursive: true })
fs.copyFileSync(path.join(here, addon), path.join(folder, addon))
fs.writeFileSync(path.join(folder, 'package.json'), `${JSON.stringify({
  name: `@fairlock/${target}`,
  version,
  description: `The addon of fairlock for ${target}`,
  license,
  engines,
  os: [os],
  cpu: [cpu],
  ...(libc && { libc: [{ gnu: 'glibc' }[libc] ?? libc] }),
  main: addon,
  files: [addon],
}, undefined, 2)}\n`)
