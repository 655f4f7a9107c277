// How fast the package is beside the same lines written by hand over a bare socket, against the same server, in turns:
// `simple` as most people would write them (a promise and a write for each request), `bare` with some care (a promise for each
// request, one write for all of a turn), `fastest` as fast as it goes (no promises, one write for all that one read asks for).
//   node bench.mjs [--rounds 9] [--seconds 1] [--pin]
// `one at a time`: acquire, release, again. `64 under way`: that many loops at once. Pairs a second, medians of the rounds.
// --pin puts this process on one core and the server on another.

import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Client, Server } from './index.mjs'

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '9' }, seconds: { type: 'string', default: '1' }, pin: { type: 'boolean' }, server: { type: 'boolean' } } })
const pin = (pid, core) => execFileSync('taskset', ['-a', '-c', '-p', String(core), String(pid)], { stdio: 'ignore' })

if (values.server) {
  process.send((await Server.start({ listen: '127.0.0.1:0' })).address)
} else {
  const server = fork(fileURLToPath(import.meta.url), ['--server'])
  const [address] = await once(server, 'message')
  if (values.pin) {
    pin(process.pid, 0)
    pin(server.pid, 1)
  }
  const workloads = { 'one at a time': 1, '64 under way': 64 }
  for (const [name, together] of Object.entries(workloads)) {
    const ways = { simple, bare, fastest, fairlock }
    const rounds = Object.fromEntries(Object.keys(ways).map((way) => [way, []]))
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const way in ways) rounds[way].push(await ways[way](address, together))
    }
    console.log(name)
    for (const way in ways) {
      const rate = median(rounds[way].map((round) => round.rate))
      const cpu = median(rounds[way].map((round) => round.cpu))
      const ratio = median(rounds.fairlock.map((round, at) => round.rate / rounds[way][at].rate))
      console.log(`  ${way.padEnd(8)} ${String(Math.round(rate)).padStart(7)}/s  ${cpu.toFixed(1).padStart(5)} µs of CPU a pair  fairlock is ${ratio.toFixed(2)} of it`)
    }
  }
  server.kill()
}

function median (numbers) {
  return numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)]
}

/** Runs loops for the time and gives how many turns they made a second, and what of this process's CPU each took. */
async function measure (together, loop) {
  let turns = 0
  const before = process.cpuUsage()
  const begun = performance.now()
  const end = begun + Number(values.seconds) * 1000
  await Promise.all(Array.from({ length: together }, (_, at) => loop(`bench-${at}`, () => { turns++; return performance.now() < end })))
  const { user, system } = process.cpuUsage(before)
  return { rate: turns / (performance.now() - begun) * 1000, cpu: (user + system) / turns }
}

async function fairlock (address, together) {
  const client = await Client.connect(address)
  const rate = await measure(together, async (key, goOn) => {
    do {
      await (await client.acquire(key)).release()
    } while (goOn())
  })
  await client.close()
  return rate
}

async function connected (address) {
  const [host, port] = address.split(':')
  const socket = net.connect(Number(port), host).setNoDelay().setEncoding('latin1')
  await once(socket, 'connect')
  return socket
}

function simple (address, together) {
  return byHand(address, together, (socket) => (line) => socket.write(line))
}

function bare (address, together) {
  return byHand(address, together, (socket) => {
    let out = ''
    const flush = () => {
      socket.write(out, 'latin1')
      out = ''
    }
    return (line) => {
      if (out === '') process.nextTick(flush)
      out += line
    }
  })
}

/** A promise for each request, answers matched by key. */
async function byHand (address, together, writer) {
  const socket = await connected(address)
  const write = writer(socket)
  const waiting = new Map()
  let rest = ''
  socket.on('data', (data) => {
    const lines = (rest + data).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      const fields = line.split(' ')
      waiting.get(fields[1])(fields)
    }
  })
  const ask = (key, line) => new Promise((resolve) => {
    waiting.set(key, resolve)
    write(line)
  })
  const rate = await measure(together, async (key, goOn) => {
    do {
      const [, , token] = await ask(key, `A ${key} 30 0\n`)
      await ask(key, `R ${key} ${token}\n`)
    } while (goOn())
  })
  socket.destroy()
  return rate
}

async function fastest (address, together) {
  const socket = await connected(address)
  const loops = new Map()
  let rest = ''
  let out = ''
  socket.on('data', (data) => {
    const lines = (rest + data).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      const [operation, key, token] = line.split(' ')
      const loop = loops.get(key)
      if (operation === 'A') out += `R ${key} ${token}\n`
      else if (loop.goOn()) out += `A ${key} 30 0\n`
      else loop.resolve()
    }
    if (out !== '') socket.write(out)
    out = ''
  })
  const rate = await measure(together, (key, goOn) => new Promise((resolve) => {
    loops.set(key, { goOn, resolve })
    socket.write(`A ${key} 30 0\n`)
  }))
  socket.destroy()
  return rate
}
