'use strict'

// Builds the addon with cargo and lays it beside the package under the name that lib/native.js looks for.
//   --if-missing   only if no addon for this platform is there or named by FAIRLOCK_NODE_ADDON (npm's `prepare`)
//   --from FILE    takes this library instead of building one (the tests build the whole workspace at once)

const { execFileSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')

const here = path.join(__dirname, '..')
const { platform, arch } = process
const musl = platform === 'linux' && !process.report.getReport().header.glibcVersionRuntime
const target = platform === 'linux' ? `linux-${arch}-${musl ? 'musl' : 'gnu'}` : `${platform}-${arch}`
const addon = path.join(here, `fairlock.${target}.node`)
const library = { win32: 'fairlock_node.dll', darwin: 'libfairlock_node.dylib' }[platform] ?? 'libfairlock_node.so'

function built () {
  const run = (args) => execFileSync('cargo', args, { cwd: here, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8', maxBuffer: 1 << 28 })
  try {
    run(['build', '--release', '--package', 'fairlock-node'])
  } catch (error) {
    if (error.code !== 'ENOENT') throw error
    console.error('fairlock: there is no addon for this platform in the package, and to build one takes the Rust toolchain (cargo).')
    process.exit(1)
  }
  const { target_directory: folder } = JSON.parse(run(['metadata', '--format-version', '1', '--no-deps']))
  return path.join(folder, 'release', library)
}

/** Renamed into place, so that a process that has the old addon loaded keeps it. */
function lay (from) {
  fs.copyFileSync(from, `${addon}.new`)
  fs.renameSync(`${addon}.new`, addon)
}

const [option, file] = process.argv.slice(2)
const there = process.env.FAIRLOCK_NODE_ADDON || fs.existsSync(addon)
if (option === '--from') lay(file)
else if (option !== '--if-missing' || !there) lay(built())
