'use strict'

// Finds the addon: what FAIRLOCK_NODE_ADDON names, else the file beside this package, else the package
// of this platform. Loaded at the first use, so that importing fairlock costs nothing.

const path = require('node:path')

const { platform, arch } = process
// glibc or musl: the file that is there and can be loaded decides.
const targets = platform === 'linux' ? [`linux-${arch}-gnu`, `linux-${arch}-musl`] : [`${platform}-${arch}`]

function load () {
  const override = process.env.FAIRLOCK_NODE_ADDON
  if (override) return require(path.resolve(override))
  const problems = []
  for (const target of targets) {
    for (const place of [`../fairlock.${target}.node`, `@fairlock/${target}`]) {
      try {
        return require(place)
      } catch (error) {
        problems.push(`  ${place}: ${error.message.split('\n')[0]}`)
      }
    }
  }
  throw new Error(
    `fairlock has no addon for ${platform}-${arch} with Node ${process.version}. Tried:\n${problems.join('\n')}\n` +
    'Where the Rust toolchain is, `npm run build` in a copy of the sources makes one.')
}

let addon
module.exports = () => addon ??= load()
