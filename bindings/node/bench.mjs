// How fast the package is beside the same lines written by hand over a bare socket, against the same server, in turns.
//   node bench.mjs [--rounds 9] [--seconds 1] [--pin]
// One at a time: acquire, release, again. 64 under way: that many loops at once. Pairs a second, medians of the rounds.
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
    const rates = { bare: [], fairlock: [] }
    for (let round = 0; round < Number(values.rounds); round++) {
      rates.bare.push(await bare(address, together))
      rates.fairlock.push(await fairlock(address, together))
    }
    const [own, hand] = [rates.fairlock, rates.bare].map((rounds) => median(rounds.map((round) => round.rate)))
    const ratios = rates.fairlock.map(({ rate }, at) => rate / rates.bare[at].rate)
    const cpu = (of) => `${median(rates[of].map((rate) => rate.cpu)).toFixed(1)} µs`
    console.log(`${name}: bare ${Math.round(hand)}/s (${cpu('bare')} of CPU a pair), fairlock ${Math.round(own)}/s (${cpu('fairlock')}), ratio ${median(ratios).toFixed(2)}`)
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

/** One write for all that one read asks for. */
async function bare (address, together) {
  const [host, port] = address.split(':')
  const socket = net.connect(Number(port), host).setNoDelay()
  await once(socket, 'connect')
  const loops = new Map()
  let rest = ''
  let out = ''
  socket.setEncoding('latin1').on('data', (data) => {
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
